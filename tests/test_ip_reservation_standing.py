"""Standing reservations: of which pods, in which order they are written, and who may take them away."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, takewhile
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from api.ip_reservation import FINISHED, RESERVE, RESERVE_FINISHED
from api.standing import RESERVED, STANDING, epoch_in, expression_of, mark_of, with_epoch
from calico.pools import Pool, pools_of
from calico.segment import IPReservation, Record
from cli.explain.matching import evaluate
from controllers.ip_reservation import standing
from controllers.ip_reservation.caches import decode_pod
from controllers.ip_reservation.calls import LOOK_UPS
from controllers.ip_reservation.late_reservations import GATHER, TOGETHER
from controllers.ip_reservation.pools import STALE
from controllers.ip_reservation.release_planner import FEW, Cause, Life, Pods
from controllers.ip_reservation.release_planner import plan as plan_releases
from controllers.ip_reservation.snapshot import settled_of
from controllers.ip_reservation.standing import (
    KEY,
    PERIOD,
    PROPAGATION,
    Candidates,
    EpochReconciler,
    MarkReconciler,
    StandingReconciler,
    plan,
    pool_of,
)
from dev.fake_api import Reply, refusal
from dev.fake_api.calls import Request
from kube.errors import Conflict, KubeError
from kube.resources import PODS, STATEFUL_SETS, VALIDATING_WEBHOOKS
from kube.types import OwnerReference, Pod, key_of
from settings import IPReservationSettings
from settings.ip_reservation import SameAddress
from tests.calico_pools import a_block, a_pool
from tests.factories import NOW, ago, numbered, raw_pod, record, segment
from tests.ip_reservation_world import TERMINATING, Raw, Served, encoded
from tests.metrics import sample
from tests.pages import ROOT

SETTINGS = IPReservationSettings()
EPOCH = "0123456789abcdef"
NAME = "drawbridge"
WEBHOOKS = ("ip-reservation", "ip-reservation-kube-system")


def configuration() -> Raw:
    path = "/validate/pods/ip-reservation"
    webhooks = [
        {
            "name": f"{name}.drawbridge.io",
            "clientConfig": {"service": {"name": "webhook", "namespace": NAME, "path": path}},
            "matchConditions": [{"name": "pod-needs-a-reservation", "expression": "true"}],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        for name in WEBHOOKS
    ]
    return {"metadata": {"name": NAME}, "webhooks": webhooks}


def decoded(raw: Raw) -> Pod:
    return decode_pod(encoded(raw))


def marked(raw: Raw, epoch: str = EPOCH) -> Raw:
    annotations = {**(raw["metadata"].get("annotations") or {}), RESERVED: mark_of(epoch, decoded(raw))}
    return {**raw, "metadata": {**raw["metadata"], "annotations": annotations}}


# The match condition.

POD = raw_pod()
OTHER_ADDRESS = {**marked(POD), "status": {**POD["status"], "podIPs": [{"ip": "10.0.0.2"}]}}
OTHER_POD = {**marked(POD), "metadata": {**marked(POD)["metadata"], "uid": "another"}}
TWO = {**POD, "status": {**POD["status"], "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}}


@pytest.mark.parametrize(
    ("old", "asks"),
    [
        pytest.param(marked(POD), False, id="marked"),
        pytest.param(marked(TWO), False, id="marked, of both families"),
        pytest.param(POD, True, id="not marked"),
        pytest.param(marked(POD, "f" * 16), True, id="marked in another epoch"),
        pytest.param(OTHER_ADDRESS, True, id="with another address since"),
        pytest.param(OTHER_POD, True, id="a copy of a marked pod"),
        pytest.param(
            {"metadata": {"uid": "a", "annotations": {RESERVED: EPOCH}}}, True, id="without a status"
        ),
    ],
)
def test_the_api_server_asks_for_a_deletion_unless_the_mark_says_this_pod_and_its_addresses(
    old: Raw, asks: bool
) -> None:
    expression = expression_of(EPOCH)

    assert evaluate(expression, {"request": {"operation": "DELETE"}, "oldObject": old}) is asks
    assert evaluate(expression, {"request": {"operation": "CREATE"}, "oldObject": None}) is True


def test_an_epoch_is_one_that_all_webhooks_for_pods_have_and_other_conditions_stay() -> None:
    bare = configuration()
    written = with_epoch(bare, EPOCH)

    assert [epoch_in(each) for each in (bare, written, with_epoch(written, None))] == [None, EPOCH, None]
    assert with_epoch(written, None) == bare
    half = {**written, "webhooks": [written["webhooks"][0], bare["webhooks"][1]]}
    assert epoch_in(half) is None


def test_a_stolen_token_may_write_no_other_condition() -> None:
    begin, end = expression_of(EPOCH).split(EPOCH)
    policies = (ROOT / "charts/drawbridge/templates/admissionpolicies.yaml").read_text()

    assert f'r"^\\Q{begin}\\E[0-9a-f]{{16}}\\Q{end}\\E$"' in " ".join(policies.split())


# Which pods.


def candidates(*addresses: str) -> Candidates:
    """Each of a pod whose uid is the same."""
    return {each: frozenset({f"{each}/32 {each}"}) for each in addresses}


def pools(*assigned: str, cidr: str = "10.0.0.0/29") -> Sequence[Pool]:
    return pools_of([a_pool(cidr)], [a_block(cidr, *assigned)], [])


FOUR = ("10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3")
FIVE = (*FOUR, "10.0.0.4")


@pytest.mark.parametrize(
    ("wanted", "claimed", "assigned", "most", "reserved", "withdrawn"),
    [
        pytest.param(FOUR[:2], (), FOUR[:2], 9, FOUR[:2], (), id="all that fit"),
        pytest.param(FOUR, (), FOUR, 2, FOUR[:2], (), id="no more than the most"),
        pytest.param(FOUR, (), FOUR, 9, FOUR[:3], (), id="fewer than the pool has free"),
        pytest.param(FOUR, FOUR, FOUR, 9, (), (), id="what the pool bears stays"),
        pytest.param(
            FIVE, FIVE, FIVE, 9, (), FIVE[3:], id="what it does not bear is withdrawn, the last first"
        ),
        pytest.param(FOUR[:2], FOUR[1:2], FOUR, 1, (), (), id="those that are reserved come first"),
        pytest.param(("10.9.0.1",), (), (), 9, (), (), id="none outside of pools"),
    ],
)
def test_a_pool_bears_no_more_standing_reservations_than_it_has_free_addresses(
    wanted: Sequence[str],
    claimed: Sequence[str],
    assigned: Sequence[str],
    most: int,
    reserved: Sequence[str],
    withdrawn: Sequence[str],
) -> None:
    planned = plan(candidates(*wanted), claimed, pools(*assigned), most)

    assert (tuple(planned.reserved), tuple(planned.withdrawn)) == (tuple(reserved), tuple(withdrawn))


def test_the_pool_of_a_pod_beyond_the_most_is_not_looked_for() -> None:
    before = pool_of.cache_info()
    plan(candidates(*FIVE), (), pools(), 1)
    after = pool_of.cache_info()

    assert after.hits + after.misses - before.hits - before.misses == 1


def test_a_pod_whose_address_calico_has_released_is_withdrawn() -> None:
    found = candidates("10.0.0.1")
    assert plan(found, ["10.0.0.1"], pools(), 9, found["10.0.0.1"]).withdrawn == ["10.0.0.1"]


def test_a_pool_whose_nodes_keep_their_blocks_bears_none() -> None:
    """Its free addresses may all be of nodes that need none."""
    strict = [dataclasses.replace(pool, is_strict=True) for pool in pools()]
    assert plan(candidates("10.0.0.1"), (), strict, 9).reserved == []


# What is released.

LIVING = record(reason=STANDING)
ENDED = record(reason=STANDING, ended=ago(hours=1))
OF_FINISHED = record(reason=FINISHED, ended=ago(minutes=1))


def released(*records: Record, life: Life = Life.RUNNING, **claims: Any) -> list[Cause]:
    waits = {(each.cidr, each.uid, each.last_asked): 1e6 for each in records}
    pods = Pods({each.uid: life for each in records}, waits, **claims)
    planned = plan_releases([segment(*records)], pods, SETTINGS, NOW)
    return [cause for change in planned.changes for _, cause in change.released]


@pytest.mark.parametrize(
    ("held", "life", "claims", "causes"),
    [
        pytest.param(LIVING, Life.RUNNING, {}, [Cause.GIVEN_BACK], id="of a pod that lives, no more relied on"),
        pytest.param(LIVING, Life.RUNNING, {"relied_on": {LIVING.key}}, [], id="relied on"),
        pytest.param(ENDED, Life.RUNNING, {"relied_on": {LIVING.key}, "left": {LIVING.key}}, [],
                     id="relied on, released by Calico long ago"),
        pytest.param(ENDED, Life.RUNNING, {"left": {LIVING.key}}, [Cause.AGE], id="released by Calico long ago"),
        pytest.param(LIVING, Life.GONE, {}, [], id="of a pod that went just now"),
        pytest.param(LIVING, Life.GONE, {"excused": {LIVING.uid}}, [Cause.GIVEN_BACK], id="of an excused one"),
        pytest.param(LIVING, Life.TERMINATING, {"excused": {LIVING.uid}}, [], id="excused, but not gone yet"),
        pytest.param(LIVING, Life.GONE, {"finished": {LIVING.uid}}, [], id="that finished just now"),
        pytest.param(OF_FINISHED, Life.GONE, {"excused": {LIVING.uid}}, [], id="that finished when that counted"),
    ],
)  # fmt: skip
def test_what_is_relied_on_is_never_released(
    held: Record, life: Life, claims: Mapping[str, Any], causes: Sequence[Cause]
) -> None:
    assert released(held, life=life, **claims) == causes


# What outlasts the webhook configuration.

LARGE = tuple(numbered(n, reason=STANDING) for n in range(300))
OWNER_UID = "the configuration"


def large(*records: Record, owner: str = OWNER_UID, **parts: Any) -> IPReservation:
    made = segment(*records, **{"name": "large"} | parts)
    return replace(made, metadata=replace(made.metadata, owner_references=(OwnerReference(uid=owner),)))


JUST_ENDED = record(reason=STANDING, ended=ago(minutes=1))
BY_HAND = record("10.0.0.9/32", pod="", uid="", namespace="")


@pytest.mark.parametrize(
    ("segments", "claims", "expected"),
    [
        pytest.param([large(LIVING)], {}, [[replace(LIVING, ended=NOW)]], id="its end is to be stored"),
        pytest.param([large(JUST_ENDED)], {}, [[JUST_ENDED]], id="its end was stored while nothing could be created"),
        pytest.param([segment(JUST_ENDED)], {}, [], id="it has no owner"),
        pytest.param([large(JUST_ENDED), segment(JUST_ENDED, level=1)], {}, [], id="moved already"),
        pytest.param([large(JUST_ENDED)], {"relied_on": {JUST_ENDED.key}}, [], id="relied on"),
        pytest.param([large(BY_HAND)], {}, [], id="of no pod: it would be moved in each pass"),
    ],
)  # fmt: skip
def test_what_is_held_for_a_pod_that_is_gone_outlasts_the_configuration(
    segments: Sequence[IPReservation], claims: Mapping[str, Any], expected: Sequence[Sequence[Record]]
) -> None:
    pods = Pods({}, owner=OWNER_UID, **claims)
    found = plan_releases(segments, pods, SETTINGS, NOW).compactions
    assert [[*each.records] for each in found] == expected


ALIVE = [record(f"10.1.0.{n}/32", uid="lives", reason=STANDING) for n in range(FEW)]
SMALL = [large(each, name=f"small-{n:02}") for n, each in enumerate(ALIVE)]


def test_compaction_keeps_apart_what_goes_with_the_configuration() -> None:
    pods = Pods({"lives": Life.RUNNING})
    found = plan_releases([*SMALL, segment(JUST_ENDED)], pods, SETTINGS, NOW, enough=FEW).compactions

    assert [[*each.records] for each in found] == [ALIVE, [JUST_ENDED]]


@pytest.mark.parametrize(("owner", "count"), [("", 0), (OWNER_UID, 1)])
def test_what_is_relied_on_is_compacted_only_once_its_owner_is_known(owner: str, count: int) -> None:
    """A leader knows it after its first marks, and never while standing reservations are switched off."""
    pods = Pods({"lives": Life.RUNNING}, relied_on=frozenset(each.key for each in ALIVE), owner=owner)

    assert len(plan_releases(SMALL, pods, SETTINGS, NOW, enough=FEW).compactions) == count


# What a pass does not look at.


@pytest.mark.parametrize(
    ("segments", "unassigned", "settled"),
    [
        pytest.param([large(*LARGE)], (), True, id="relied on"),
        pytest.param([large(*LARGE), segment(LARGE[0])], (), False, id="a copy elsewhere"),
        pytest.param([large(*LARGE)], (LARGE[0].cidr,), False, id="Calico has released one"),
        pytest.param([large(*LARGE, record("10.1.0.1/32", uid="x"))], (), False, id="one is not relied on"),
        pytest.param([large(replace(LARGE[0], ended=NOW), *LARGE[1:])], (), False, id="one has an end"),
        pytest.param([large(*LARGE, owner="another")], (), False, id="it outlasts the configuration"),
        pytest.param([large(*LARGE, release=LARGE[0].cidr)], (), False, id="a user releases one"),
        pytest.param([large(*LARGE[:9])], (), False, id="small: it may be compacted"),
    ],
)  # fmt: skip
def test_a_segment_is_settled_when_nothing_is_to_be_decided_about_it(
    segments: Sequence[IPReservation], unassigned: Sequence[str], settled: bool
) -> None:
    relied_on = frozenset(each.key for each in LARGE)
    found = settled_of(segments, OWNER_UID, relied_on, frozenset(unassigned))
    assert [each.metadata.name for each in found] == (["large"] if settled else [])


# The order of writes.


class World(Served):
    """A leader that knows the pool 10.0.0.0/24, in which each pod of the API server has its address."""

    def __init__(self, *segments: IPReservation, **settings: object) -> None:
        super().__init__(*segments, **{"standing": {"enabled": True}, "giveBackAfter": "1s"} | settings)
        self.api.put(VALIDATING_WEBHOOKS, configuration())
        self.unassigned: set[str] = set()
        self.knows_pools = True
        self.lead()

    def lead(self) -> None:
        """By a new process, which knows nothing."""
        self.caches, client = self._caches(), self.api.client()
        self.epochs = EpochReconciler(
            client, NAME, self.caches, lambda: self.settings.standing.enabled, self.clock
        )
        self.standing = StandingReconciler(
            self.caches, self.reservations, self.epochs, self.pools, lambda: self.settings, self.reporter
        )
        self.marks = MarkReconciler(self.caches, client, self.epochs, self.standing.marking)
        self.late = self.reserving_late()
        self.release = self.releasing(lambda _: self.pools())
        self._seen: dict[str, Pod] = {}
        self._segments: dict[str, IPReservation] = {}

    def pools(self) -> Sequence[Pool] | None:
        if not self.knows_pools:
            return None
        addresses = [each["status"]["podIP"] for each in self.api.list(PODS) if each["status"].get("podIP")]
        assigned = [each for each in addresses if each not in self.unassigned]
        found = [*self.reservations.objects.values()]
        return pools_of([a_pool("10.0.0.0/24")], [a_block("10.0.0.0/24", *assigned)], found)

    def watch(self) -> None:
        """Deliver what has changed."""
        before, self._seen = self._seen, {pod.metadata.uid: pod for pod in self.known_pods()}
        for uid in before.keys() | self._seen.keys():
            old, new = before.get(uid), self._seen.get(uid)
            if old != new:
                for observer in (self.addresses.observe, self.epochs.observe, self.standing.observe):
                    observer(old, new)
                self.enqueue(*self.late.observe(old, new))
        earlier, self._segments = self._segments, dict(self.reservations.objects)
        for name in earlier.keys() | self._segments.keys():
            self.standing.observe_segment(earlier.get(name), self._segments.get(name))

    def run(self, seconds: float = 5.0) -> None:
        """All of them, as often as they ask for it."""
        for _ in range(max(1, round(seconds / PERIOD))):
            self.watch()
            self.epochs.reconcile("")
            self.watch()
            self.standing.reconcile(KEY)
            for pod in self.known_pods():
                self.marks.reconcile(key_of(pod.metadata))
            self.watch()
            self.enqueue(TOGETHER)
            self.settle(self.late)
            self.release.reconcile("")
            self.advance(seconds=PERIOD)

    def asks(self, name: str = "redis-0") -> bool:
        """Whether the API server asks for its deletion."""
        variables = {"request": {"operation": "DELETE"}, "oldObject": self.api.get(PODS, name, "redis")}
        registered = self.api.find(VALIDATING_WEBHOOKS, NAME) or {"webhooks": []}
        return all(
            evaluate(condition["expression"], variables)
            for webhook in registered["webhooks"]
            for condition in webhook["matchConditions"]
        )

    @property
    def owners(self) -> set[str]:
        found = self.reservations.objects.values()
        return {owner.uid for each in found for owner in each.metadata.owner_references}


def reserved_ahead() -> World:
    """With a pod, when all that it needs has been done for it."""
    world = World()
    world.put_pod(raw_pod())
    world.run()
    return world


def move(world: World) -> None:
    """The pod gets another address."""
    status = {"podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.2"}]}
    world.api.edit(PODS, "redis-0", {"status": status}, "redis")


def annotate(world: World, annotations: Mapping[str, str | None]) -> None:
    world.api.edit(PODS, "redis-0", {"metadata": {"annotations": dict(annotations)}}, "redis")


def test_a_pod_is_marked_when_its_addresses_are_durable_in_a_segment_of_the_configuration() -> None:
    world = World()
    world.put_pod(raw_pod())

    world.run()

    assert world.reservations.held == ["10.0.0.1/32"]
    assert not world.asks()
    assert world.owners == {world.api.get(VALIDATING_WEBHOOKS, NAME)["metadata"]["uid"]}
    order = [call.path.rpartition("/")[2] for call in world.api.calls if call.method in ("POST", "PATCH")]
    assert order == ["ipreservations", "redis-0"]


def test_a_namespace_that_changes_has_its_pods_judged_again_and_no_others_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = reserved_ahead()
    world.of_namespace |= {RESERVE: "false"}
    monkeypatch.setattr(world.caches.pods, "list", pytest.fail)
    (namespace,) = world.caches.namespaces.list()
    world.standing.observe_namespace(None, namespace)
    world.run(20)

    assert not world.reservations.held


@pytest.mark.parametrize("choice", [{RESERVE: "false"}, {RESERVE: "FALSE"}])
def test_a_pod_that_opts_out_loses_its_mark_before_its_reservation(choice: Mapping[str, str]) -> None:
    world = reserved_ahead()
    annotate(world, choice)
    world.api.calls.clear()

    world.run(15)

    assert world.asks()
    assert world.reservations.held == []
    writes = [call.method for call in world.api.calls if call.method != "GET"]
    assert writes == ["PATCH", "DELETE"]
    assert world.recorder.reasons == []


def test_a_pod_that_loses_its_mark_stays_reserved_while_a_review_may_still_go_by_it() -> None:
    """An eviction reads the pod, and deletes it some seconds later."""
    world = World(giveBackAfter="2m")
    world.put_pod(raw_pod())
    world.run(60)
    annotate(world, {RESERVE: "false"})

    world.run(10)
    assert world.asks()
    assert world.reservations.held == ["10.0.0.1/32"]
    world.run(10)
    assert world.reservations.held == []


def test_a_review_before_the_mark_leaves_no_trace_when_the_deletion_was_refused() -> None:
    """So the pod still leaves no reservation when it goes with its owner."""
    world = World()
    world.put_pod(raw_pod())
    world.watch()
    world.epochs.reconcile("")
    world.standing.reconcile(KEY)
    world.advance(seconds=1)
    world.reserve([record(reason="evicted", at=world.now)])

    world.run(10)

    assert [each.reason for each in world.reservations.records] == [STANDING]


def test_an_address_that_a_hand_added_to_what_goes_with_the_configuration_is_released_in_time() -> None:
    world = reserved_ahead()
    ((name, held),) = world.reservations.objects.items()
    added = {"reservedCIDRs": [*held.spec.reserved_cidrs, BY_HAND.cidr]}
    world.api.edit(world.reservations.resource(), name, {"spec": added})

    world.run(90)
    assert {*world.reservations.held} == {"10.0.0.1/32", BY_HAND.cidr}
    assert len(world.reservations.objects) == 1
    world.advance(minutes=40)
    world.run()
    assert world.reservations.held == ["10.0.0.1/32"]


def test_a_reservation_stays_while_the_mark_of_its_pod_cannot_be_removed() -> None:
    world = reserved_ahead()
    annotate(world, {RESERVE: "false"})
    world.marks.reconcile = lambda key: None  # type: ignore[method-assign]

    world.run(60)

    assert not world.asks()
    assert world.reservations.held == ["10.0.0.1/32"]


def test_marks_that_are_refused_are_tried_a_few_times_an_hour_and_one_line_says_so() -> None:
    world, tries = World(), list[str]()
    for n in range(20):
        world.put_pod(raw_pod(f"redis-{n}", ip=f"10.0.0.{n}"))

    def refuse(call: Request) -> Reply | None:
        if call.method != "PATCH" or "/pods/" not in call.path:
            return None
        tries.append(call.path)
        return refusal(403, "Forbidden", "a policy says no")

    world.api.fault = refuse
    with capture_logs() as logs:
        world.run()
    assert {each["event"] for each in logs} >= {"pod not marked"}
    assert len(tries) == 20
    assert sum(each["event"] == "pod not marked" for each in logs) == 1
    again = accumulate(world.standing.marking.retry("redis/redis-0") for _ in range(1000))
    assert len([*takewhile(lambda at: at <= 3600, again)]) < 20


def test_a_pod_that_gets_another_address_is_marked_again_and_the_former_one_is_that_of_a_pod_that_went() -> (
    None
):
    """The time of that goes on under a new leader that knows no pools yet."""
    world = reserved_ahead()
    move(world)
    assert world.asks()

    world.run(90)

    assert not world.asks()
    found = {each.cidr: each for each in world.reservations.records}
    assert found["10.0.0.2/32"].ended is None
    assert found["10.0.0.1/32"].ended is not None
    before = ends(world)

    world.knows_pools = False
    world.lead()
    world.run()

    assert ends(world) == before == [found["10.0.0.1/32"]]


def test_a_pod_whose_node_boots_keeps_its_former_address_reserved_while_it_has_none() -> None:
    """Without knowing pools: Calico releases the address when the sandbox is made again."""
    world = reserved_ahead()
    world.knows_pools = False
    world.api.edit(PODS, "redis-0", {"status": {"podIP": "", "podIPs": []}}, "redis")
    world.run(90)
    world.knows_pools = True
    move(world)
    world.run()

    assert {*world.reservations.held} == {"10.0.0.1/32", "10.0.0.2/32"}
    world.run(2500)
    assert world.reservations.held == ["10.0.0.2/32"]


def ends(world: World) -> Sequence[Record]:
    return [record for record in world.reservations.records if record.ended]


OWNER = {"metadata": {"name": "redis", "namespace": "redis", "uid": "uid-redis"}}


@pytest.mark.parametrize("moved", [False, True])
def test_what_was_released_a_moment_after_its_pod_went_is_not_reserved_late(moved: bool) -> None:
    """As in a storm, by ipReservation.maxCount. An address that was never reserved is."""
    world = reserved_ahead()
    world.api.put(STATEFUL_SETS, OWNER)
    if moved:
        move(world)
    world.api.edit(PODS, "redis-0", TERMINATING, "redis")
    world.watch()
    world.api.remove(PODS, "redis-0", "redis")
    world.watch()
    for name in [*world.reservations.objects]:
        world.reservations.objects.pop(name)
    world.advance(seconds=2)
    world.enqueue(TOGETHER)

    world.settle(world.late)

    assert world.reservations.held == (["10.0.0.2/32"] if moved else [])


IN, OUT = ({"annotations": {RESERVE: choice}} for choice in ("true", "false"))
LABEL = "statefulset.kubernetes.io/pod-name"
UNLABELLED, LABELLED = {"labels": {LABEL: None}}, {"labels": {LABEL: "redis-0"}}


@pytest.mark.parametrize(
    ("changes", "is_kept"),
    [
        pytest.param([OUT, IN], True, id="opted out, and in again"),
        pytest.param([OUT, IN, OUT], False, id="opted out in the end"),
        pytest.param([UNLABELLED, LABELLED], True, id="without the label for a while"),
        pytest.param([UNLABELLED], False, id="without the label in the end"),
    ],
)
@pytest.mark.parametrize("seconds", [0.0, 30.0])
def test_how_a_pod_is_selected_at_its_end_counts(
    changes: Sequence[Raw], is_kept: bool, seconds: float
) -> None:
    """A pod of a lost node terminates for as long as its node is there."""
    world = reserved_ahead()
    world.api.put(STATEFUL_SETS, OWNER)
    world.api.edit(PODS, "redis-0", TERMINATING, "redis")
    world.run(30)
    for change in changes:
        world.api.edit(PODS, "redis-0", {"metadata": change}, "redis")
        world.watch()
        if seconds:
            world.run(seconds)
    world.api.remove(PODS, "redis-0", "redis")
    world.run(30)

    assert world.reservations.held == (["10.0.0.1/32"] if is_kept else [])


def test_a_pod_that_is_opted_out_while_its_owner_is_read_is_looked_at_again() -> None:
    world = reserved_ahead()
    world.api.put(STATEFUL_SETS, OWNER)
    world.api.edit(PODS, "redis-0", TERMINATING, "redis")
    reads = list[str]()

    def opt_out(call: Request) -> Reply | None:
        if "/statefulsets/" in call.path and not reads:
            reads.append(call.path)
            world.api.edit(PODS, "redis-0", {"metadata": OUT}, "redis")
            world.watch()
        return None

    world.api.fault = opt_out
    world.run(30)
    world.api.remove(PODS, "redis-0", "redis")
    world.run(30)

    assert reads
    assert world.reservations.held == []


KEEPS = {RESERVE_FINISHED: "true"}


def finish(world: World, phase: str = "Succeeded") -> None:
    world.api.edit(PODS, "redis-0", {"status": {"phase": phase}}, "redis")


def test_a_former_pod_that_is_deleted_does_not_reserve_the_address_of_the_next_one() -> None:
    """As a finalizer lets it terminate long after its time."""
    world = World()
    world.of_namespace |= KEEPS
    world.put_pod(raw_pod())
    world.run()
    finish(world)
    world.run(2500)
    assert world.reservations.held == []
    world.put_pod(raw_pod("other", metadata={"labels": {}}))

    world.api.edit(PODS, "redis-0", TERMINATING, "redis")
    world.run(30)
    world.api.remove(PODS, "redis-0", "redis")
    world.run(30)

    assert world.reservations.held == []


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("keeps", [True, False])
def test_a_new_leader_goes_on_with_a_reservation_of_a_finished_pod(stored: bool, keeps: bool) -> None:
    """A stored one stays also when its namespace does not ask for it any more."""
    world = World()
    world.of_namespace |= KEEPS
    world.put_pod(raw_pod())
    world.run()
    finish(world)
    world.run() if stored else world.watch()
    if not keeps:
        world.of_namespace.clear()

    world.lead()
    world.run(90)

    is_held = stored or keeps
    assert [each.reason for each in ends(world)] == [FINISHED] * is_held


def goes_with_its_owner(world: World) -> None:
    """It is looked up a moment later: no object of its owner's name is there."""
    world.api.edit(PODS, "redis-0", TERMINATING, "redis")
    world.run()
    world.api.remove(PODS, "redis-0", "redis")


@pytest.mark.parametrize("end", [finish, goes_with_its_owner])
def test_a_pod_leaves_no_reservation_when_it_ends_by_itself_or_goes_with_its_owner(
    end: Callable[[World], None],
) -> None:
    world = reserved_ahead()
    end(world)

    world.run(10)

    assert world.reservations.held == []
    assert "IPGivenBack" not in world.recorder.reasons  # which says that it still runs


@pytest.mark.parametrize("is_led_anew", [False, True])
def test_an_owner_that_goes_a_moment_after_its_pod_excuses_it_of_nothing(is_led_anew: bool) -> None:
    """As a ReplicaSet that a Deployment has scaled to zero, of which it keeps none: also for a new leader."""
    world = reserved_ahead()
    world.api.put(STATEFUL_SETS, OWNER)
    world.api.edit(PODS, "redis-0", TERMINATING, "redis")
    world.watch()
    world.seconds.advance(GATHER)
    world.late.reconcile(TOGETHER)
    world.api.remove(STATEFUL_SETS, "redis", "redis")
    world.run()
    if is_led_anew:
        world.lead()
        world.run()
    world.api.remove(PODS, "redis-0", "redis")
    world.run(10)

    assert world.reservations.held == ["10.0.0.1/32"]


def test_slow_looks_at_owners_are_made_in_several_runs() -> None:
    """One key that runs for ten minutes ends the leader."""
    world, asked = World(), list[str]()
    for n in range(20):
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": f"owner-{n}", "uid": f"uid-{n}"}
        of = {"ownerReferences": [owner | {"controller": True}]}
        world.put_pod(raw_pod(f"redis-{n}", ip=f"10.0.0.{n}", metadata=of))
    world.run()

    def slow(call: Request) -> None:
        if "statefulsets" in call.path:
            asked.append(call.path)
            world.seconds.advance(1.0)

    world.api.fault = slow
    for n in range(20):
        world.api.edit(PODS, f"redis-{n}", TERMINATING, "redis")
    world.watch()
    began = world.seconds()
    world.late.reconcile(TOGETHER)
    assert world.seconds() - began <= LOOK_UPS
    world.run(10)
    for n in range(20):
        world.api.remove(PODS, f"redis-{n}", "redis")
    world.run(10)

    assert (len(asked), len({*asked})) == (20, 20)
    assert world.reservations.held == []


# Leaders.


def test_what_is_reserved_ahead_is_promised_once_same_addresses_are_switched_on() -> None:
    """Which restarts the leader, and no pod."""
    world = reserved_ahead()
    world.settings = world.settings.model_copy(update={"same_address": SameAddress(enabled=True)})
    world.lead()
    world.run()

    (held,) = world.reservations.records
    assert (held.owner_uid, held.addresses, held.reason) == ("uid-redis", 1, STANDING)
    assert not world.asks()


def write_meanwhile(world: World) -> None:
    """Once, as a pass of releases does."""

    def before(verb: str, name: str) -> None:
        if verb == "confirm":
            world.reservations.before = lambda verb, name: None
            raise Conflict(409, "Conflict", "no")

    world.reservations.before = before


@pytest.mark.parametrize("conflicts", [False, True])
def test_what_is_reserved_ahead_is_promised_to_pods_of_the_stateful_set_that_has_adopted_it(
    conflicts: bool,
) -> None:
    """As one that was deleted without its pods, and created again with other volumes."""
    world = World(sameAddress={"enabled": True})
    world.put_pod(raw_pod())
    world.run()
    (reference,) = raw_pod()["metadata"]["ownerReferences"]
    for references in ([], [reference | {"uid": "uid-again"}]):
        world.api.edit(PODS, "redis-0", {"metadata": {"ownerReferences": references}}, "redis")
        world.watch()
        with suppress(Conflict):
            if conflicts:
                write_meanwhile(world)
            world.standing.reconcile(KEY)
        world.run()

    (held,) = world.reservations.records
    assert held.owner_uid == "uid-again"
    assert not world.asks()


def test_a_new_leader_relies_on_the_marks_that_it_finds_and_a_write_of_the_former_one_is_refused() -> None:
    world = reserved_ahead()
    (before,) = world.reservations.objects.values()

    world.lead()
    world.release.reconcile("")
    world.run(15)

    assert not world.asks()
    assert world.reservations.held == ["10.0.0.1/32"]
    assert len(world.reservations.objects) == 1
    with pytest.raises(Conflict):
        world.reservations.write(before, ())


def test_what_a_former_leader_reserved_for_a_pod_without_a_mark_is_relied_on_after_a_write_alone() -> None:
    world = reserved_ahead()
    annotate(world, {RESERVED: None})
    calls = list[str]()

    def before(verb: str, name: str) -> None:
        calls.append(verb)
        if verb == "confirm":
            raise Conflict(409, "Conflict", "another one has written")

    world.reservations.before = before
    world.lead()
    world.run()

    assert not world.asks()
    assert calls[:2] == ["confirm", "create"]


@pytest.mark.parametrize("verb", ["create", "confirm"])
def test_what_the_first_write_of_many_has_is_not_given_back_before_the_last_one_is_answered(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow API server takes longer for all of them than a reservation stays that is not relied on."""
    monkeypatch.setattr(standing, "pages", lambda records: ([each] for each in records))
    world, names, writes = World(giveBackAfter="2m"), ("redis-0", "redis-1"), list[str]()
    for number, name in enumerate(names, 1):
        world.put_pod(raw_pod(name, ip=f"10.0.0.{number}"))
    if verb == "confirm":
        world.run()
        for name in names:
            world.api.edit(PODS, name, {"metadata": {"annotations": {RESERVED: None}}}, "redis")
        world.lead()

    def before(found: str, name: str) -> None:
        writes.extend([name] * (found == verb))
        if (found, len(writes)) == (verb, 2):
            for _ in range(3):
                world.watch()
                world.release.reconcile("")
                world.advance(seconds=PERIOD)

    world.reservations.before = before
    world.run()

    assert len(writes) >= 2
    assert [world.asks(name) for name in names] == [False, False]
    assert world.reservations.held == ["10.0.0.1/32", "10.0.0.2/32"]


# Pods that go at that moment.


def goes_during(world: World, verb: str) -> None:
    """A write of a segment, or of its mark: its end is delivered and judged before the answer is."""

    def end() -> None:
        world.api.remove(PODS, "redis-0", "redis")
        world.watch()

    def before(found: str, name: str) -> None:
        if found == verb and world.api.find(PODS, "redis-0", "redis"):
            end()

    world.reservations.before = before
    patch = world.marks._client.patch

    def mark(*at: Any, **options: Any) -> Any:
        answer = patch(*at, **options)
        if verb == "mark":
            end()
            world.standing.reconcile(KEY)
        return answer

    world.marks._client.patch = mark  # type: ignore[method-assign]


@pytest.mark.parametrize("verb", ["create", "confirm", "mark"])
def test_a_pod_that_goes_while_it_is_reserved_or_marked_is_not_relied_on(verb: str) -> None:
    """Else its reservation would last until another leader."""
    world = World()
    world.api.put(STATEFUL_SETS, OWNER)
    world.put_pod(raw_pod())
    if verb == "confirm":
        world.run()
        annotate(world, {RESERVED: None})
        world.lead()
    goes_during(world, verb)

    world.run()
    assert world.reservations.held == ["10.0.0.1/32"]
    world.run(2500)

    assert world.reservations.held == []


# The configuration.


def test_without_a_configuration_no_pod_counts_as_reserved_ahead() -> None:
    world = reserved_ahead()
    assert sample("drawbridge_standing_pods") == 1
    world.api.remove(VALIDATING_WEBHOOKS, NAME)

    world.run(PROPAGATION + PERIOD)
    world.run()

    assert sample("drawbridge_standing_pods") == 0


def test_a_condition_that_another_client_removed_is_written_with_a_new_epoch() -> None:
    world = reserved_ahead()
    before = world.annotations("redis-0")[RESERVED]
    bare = configuration()["webhooks"]
    world.api.edit(VALIDATING_WEBHOOKS, NAME, {"webhooks": bare})
    assert world.asks()

    world.run(10)

    assert not world.asks()
    assert world.annotations("redis-0")[RESERVED] != before


def test_no_mark_counts_in_a_configuration_that_a_client_creates_again_as_it_was() -> None:
    """Before its pod is reserved once more: what the former one owned has gone."""
    world = reserved_ahead()
    saved = {**world.api.get(VALIDATING_WEBHOOKS, NAME), "metadata": {"name": NAME}}
    world.api.remove(VALIDATING_WEBHOOKS, NAME)
    world.api.put(VALIDATING_WEBHOOKS, saved)

    world.epochs.reconcile("")

    assert world.asks()
    world.run(10)
    assert not world.asks()


def switched_off() -> World:
    """No controller of standing reservations or marks runs any more."""
    world = reserved_ahead()
    off = world.settings.standing.model_copy(update={"enabled": False})
    world.settings = world.settings.model_copy(update={"standing": off})
    world.lead()
    world.standing.observe = lambda old, new: ()  # type: ignore[method-assign]
    world.standing.reconcile = lambda key: 0.0  # type: ignore[method-assign]
    world.marks.reconcile = lambda key: None  # type: ignore[method-assign]
    return world


def test_switched_off_the_condition_goes_first_and_reservations_once_no_api_server_can_have_it() -> None:
    world = switched_off()

    world.run(PROPAGATION)
    assert world.asks()
    assert world.reservations.held == ["10.0.0.1/32"]

    world.run(30)
    assert world.reservations.held == []


def test_marks_that_cannot_be_made_void_are_relied_on_only_while_their_pods_live() -> None:
    """As where a policy lets no client edit webhook configurations."""
    world = switched_off()
    reconcile = world.epochs.reconcile

    def refused(key: str) -> float:
        with suppress(KubeError):
            reconcile(key)
        return PERIOD

    world.epochs.reconcile = refused  # type: ignore[method-assign]
    world.api.fault = lambda call: refusal(403, "Forbidden", "no") if call.method == "PUT" else None
    world.run(30)
    assert not world.asks()
    assert world.reservations.held == ["10.0.0.1/32"]

    world.api.remove(PODS, "redis-0", "redis")
    world.run(2500)
    assert world.reservations.held == []


def test_two_installations_replace_each_others_marks_once_as_far_as_they_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standing, "MOST_REPLACED", 1)
    world, writes = reserved_ahead(), []
    for number in (0, 1, 0, 0):
        world.put_pod(marked(raw_pod(f"redis-{number}", ip=f"10.0.0.{number + 1}"), "f" * 16))
        world.api.calls.clear()
        world.run()
        writes.append([call.path for call in world.api.calls if call.method == "PATCH"])

    assert [len(each) for each in writes] == [1, 1, 1, 0]


def test_an_address_that_calico_released_from_a_living_pod_is_one_of_a_pod_that_went() -> None:
    world = World(duration="5m")
    world.put_pod(raw_pod())
    world.run(STALE + 30)
    world.unassigned.add("10.0.0.1")

    world.run(15)
    assert world.asks()
    assert world.reservations.held == ["10.0.0.1/32"]

    world.run(400)
    assert world.reservations.held == []


def test_a_pod_is_newer_than_the_copy_of_blocks_for_as_long_as_a_silent_watch_counts() -> None:
    world = World()
    world.put_pod(raw_pod())
    world.unassigned.add("10.0.0.1")
    world.run(STALE)
    world.unassigned.clear()
    world.run()

    assert not world.asks()
    assert ends(world) == []
