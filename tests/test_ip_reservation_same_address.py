"""What is promised to a StatefulSet's new pod: by its reservations alone, and asked for in one annotation."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jsonpatch
import msgspec
import pytest
from msgspec.structs import replace

from api.ip_reservation import records_of
from api.same_address import (
    IP_ADDRS,
    SAME_ADDRESS,
    SAME_ADDRESS_FROM,
    CalicoIPAM,
    Outcome,
    Place,
    Promise,
    decide,
    promise_of,
)
from calico.pools import IPAMConfiguration, IPPool, IPPoolSpec
from calico.reservations import NotServed
from calico.segment import IPReservation, Record
from kube.errors import Unreachable
from kube.types import ObjectMeta
from settings import IPReservationSettings
from tests.calico_pools import a_pool
from tests.factories import NOW, ago, pod, raw_pod, record, segment
from tests.fakes import FakeCluster
from webhook.admission import Decision, Request
from webhook.ip_reservation.reads import Shared
from webhook.ip_reservation.same_address_webhook import WHY, SameAddressWebhook

ON = IPReservationSettings.model_validate({"duration": "40m", "sameAddress": {"enabled": True}})
PLACE = Place("redis", "redis-0", "uid-redis")
PROMISED = {IP_ADDRS: '["10.0.0.1"]', SAME_ADDRESS_FROM: 'uid-redis-0=["10.0.0.1"]'}


def own(cidr: str = "10.0.0.1/32", **fields: Any) -> Record:
    return record(cidr, **({"owner_uid": "uid-redis"} | fields))


def decided(*segments: IPReservation, place: Place = PLACE) -> Promise | Outcome:
    return decide(place, segments, ON, NOW)


FOUR, BEFORE = Promise("uid-redis-0", ("10.0.0.1",)), own(uid="first", at=ago(minutes=20))
SIX, FOUR_OF_TWO = own("fd00::1/128", addresses=2), own(addresses=2)
LAST = own("10.0.0.2/32", uid="second", at=ago(minutes=5))


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        pytest.param([segment(own())], FOUR, id="the former pod's"),
        pytest.param([segment(own(ended=ago(minutes=39)))], FOUR, id="while it is reserved"),
        # Later than this, the leader may have released it before it knows of the pod.
        pytest.param([segment(own(ended=ago(minutes=39.4)))], FOUR, id="nearly as long"),
        pytest.param([segment(own(ended=ago(minutes=39.6)))], Outcome.NEARLY_OVER, id="not at its end"),
        pytest.param([segment(own(ended=ago(minutes=50)))], Outcome.NEARLY_OVER, id="nor afterwards"),
        pytest.param(
            [segment(SIX), segment(FOUR_OF_TWO)],
            Promise("uid-redis-0", ("10.0.0.1", "fd00::1")),
            id="both of a dual-stack pod, wherever they are reserved",
        ),
        pytest.param([segment(SIX)], Outcome.INCOMPLETE, id="not one of two"),
        *(
            pytest.param(
                [
                    segment(former),
                    segment(own("10.0.0.2/32", at=ago(minutes=1), ended=ended), former, name="b"),
                ],
                Promise("uid-redis-0", ("10.0.0.2",)),
                id=f"what it got last, in a new sandbox, {when}",
            )
            for when, former, ended in (
                ("before that is noted", own(at=ago(minutes=9)), None),
                ("while it lives", own(at=ago(minutes=9), ended=ago(minutes=2)), None),
                ("after its end", own(at=ago(minutes=9), ended=ago(minutes=39.9)), ago(seconds=5)),
            )
        ),
        pytest.param([segment(BEFORE, LAST)], Promise("second", ("10.0.0.2",)), id="the last pod's"),
        pytest.param(
            [segment(replace(BEFORE, asked=ago(minutes=1)), LAST)],
            Promise("first", ("10.0.0.1",)),
            id="of the pod that was deleted last",
        ),
        pytest.param(
            [segment(own(), own(uid="before", owner_uid="", at=ago(hours=1)))],
            FOUR,
            id="one that an earlier pod of the place had, too",
        ),
        pytest.param(
            [segment(own(), release="10.0.0.1")], Outcome.TO_BE_RELEASED, id="not if to be released"
        ),
        pytest.param([segment(own(), ours=False)], Outcome.NOT_RESERVED, id="not by another client's object"),
        *(
            pytest.param([segment(own()), other], Outcome.OF_OTHERS, id=f"not if it is kept {why}")
            for why, other in {
                "for another pod": segment(record(pod="kafka-0", uid="b"), name="b"),
                "by another client": segment(record(), name="b", ours=False),
                "in a range": segment(record("10.0.0.0/30"), name="b", ours=False),
            }.items()
        ),
    ],
)
def test_what_is_promised(held: Sequence[IPReservation], expected: Promise | Outcome) -> None:
    assert decided(*held) == expected


@pytest.mark.parametrize(
    ("place", "held"),
    [
        pytest.param(Place("redis", "redis-1", "uid-redis"), own(), id="another pod"),
        pytest.param(Place("kafka", "redis-0", "uid-redis"), own(), id="another namespace"),
        pytest.param(Place("redis", "redis-0", "another"), own(), id="another StatefulSet of that name"),
        pytest.param(PLACE, own(owner_uid=""), id="reserved while this was off"),
        pytest.param(Place("redis", "redis-0", ""), own(owner_uid=""), id="no StatefulSet"),
    ],
)
def test_nothing_is_promised_to_a_pod_that_does_not_take_the_place(place: Place, held: Record) -> None:
    assert decided(segment(held), place=place) == Outcome.NOT_RESERVED


# Records


def test_a_record_says_of_which_stateful_set_the_pod_was_only_where_that_counts() -> None:
    [plain] = records_of(pod(), IPReservationSettings(), reason="deleted", at=NOW)
    [known] = records_of(pod(), ON, reason="deleted", at=NOW)

    assert (plain.owner_uid, plain.addresses) == ("", 1)
    assert "ownerUid" not in msgspec.json.encode(plain).decode()
    assert (known.owner_uid, known.addresses) == ("uid-redis", 1)
    assert decided(segment(known)) == Promise("uid-redis-0", ("10.0.0.1",))


def test_a_record_of_a_dual_stack_pod_says_how_many_addresses_it_had() -> None:
    dual = pod(status={"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]})

    assert [each.addresses for each in records_of(dual, ON, reason="deleted", at=NOW)] == [2, 2]


# The annotations


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({}, id="none"),
        pytest.param({SAME_ADDRESS_FROM: PROMISED[SAME_ADDRESS_FROM]}, id="it has ended"),
        pytest.param({IP_ADDRS: '["10.0.0.1"]'}, id="a user asks"),
        pytest.param(PROMISED | {IP_ADDRS: '["10.0.0.9"]'}, id="a user asks for something else since"),
        pytest.param({IP_ADDRS: "10.0.0.1", SAME_ADDRESS_FROM: "uid=10.0.0.1"}, id="no list"),
    ],
)
def test_what_is_no_promise_of_ours(annotations: Mapping[str, str]) -> None:
    assert promise_of(annotations) is None


# The webhook


class Reads:
    def __init__(self, *segments: IPReservation, error: Exception | None = None, **of_calico: Any) -> None:
        self.found, self.error = segments, error
        pools = of_calico.pop("pools", ())
        self.calico = CalicoIPAM(IPAMConfiguration(**of_calico), pools)
        self.asked = 0

    def segments(self, deadline: float) -> Sequence[IPReservation]:
        self.asked += 1
        if self.error:
            raise self.error
        return self.found

    def of_calico(self, deadline: float) -> CalicoIPAM:
        return self.calico


def reviewed(
    raw: Mapping[str, Any],
    reads: Reads,
    namespace: Mapping[str, str] | None = None,
    settings: IPReservationSettings = ON,
    **parts: Any,
) -> Decision:
    webhook = SameAddressWebhook(
        FakeCluster(annotations={"redis": dict(namespace or {})}),
        reads.segments,
        reads.of_calico,
        lambda: settings,
        lambda: NOW,
    )
    assert webhook.fails_open()
    body = msgspec.Raw(msgspec.json.encode(raw))
    request = {"uid": "u", "operation": "CREATE", "namespace": "redis", "object": body} | parts
    return webhook.review(Request(**request), deadline=1e9)


def created(**parts: Any) -> dict[str, Any]:
    raw = raw_pod(ip="", **{"spec": {"nodeName": ""}} | parts)
    del raw["metadata"]["uid"]
    return raw


@pytest.mark.parametrize("annotations", [None, {}, {"team": "storage"}], ids=["none", "empty", "some"])
def test_a_pod_asks_for_the_address_of_its_predecessor(annotations: dict[str, str] | None) -> None:
    raw = created(metadata={} if annotations is None else {"annotations": annotations})
    decision = reviewed(raw, Reads(segment(own())))

    after = jsonpatch.apply_patch(raw, [*decision.patch])
    assert after["metadata"]["annotations"] == (annotations or {}) | PROMISED
    assert after["spec"] == raw["spec"]
    assert decision.audit == {"promised": "10.0.0.1"}
    again = reviewed(after, Reads(segment(own())))
    assert (again.patch, again.allowed) == ((), True)


CNI = "cni.projectcalico.org/"


@pytest.mark.parametrize(
    ("parts", "namespace", "settings"),
    [
        pytest.param({"metadata": {"ownerReferences": []}}, {}, {}, id="no owner"),
        pytest.param({"spec": {"hostNetwork": True}}, {}, {}, id="host network"),
        *(
            pytest.param({"metadata": {"annotations": {name: value}}}, {}, {}, id=f"its {name}")
            for name, value in {
                IP_ADDRS: "[]",
                f"{CNI}ipAddrsNoIpam": "[]",
                f"{CNI}ipv4pools": "[]",
                SAME_ADDRESS: "false",
            }.items()
        ),
        pytest.param({}, {f"{CNI}ipv6pools": "[]"}, {}, id="its namespace asks for a pool"),
        pytest.param({}, {SAME_ADDRESS: "False"}, {}, id="its namespace opts out"),
        pytest.param({}, {}, {"sameAddress": {"enabled": False}}, id="switched off"),
        pytest.param({}, {}, {"enabled": False}, id="no reservations at all"),
    ],
)
def test_a_pod_that_is_left_alone(
    parts: Mapping[str, Any], namespace: Mapping[str, str], settings: Mapping[str, Any]
) -> None:
    reads = Reads(segment(own()))
    parsed = IPReservationSettings.model_validate({"sameAddress": {"enabled": True}} | settings)
    decision = reviewed(created(**parts), reads, namespace, parsed)

    assert (decision.allowed, decision.patch, reads.asked) == (True, (), 0)
    assert decision.audit["skipped"]


def test_the_word_of_a_pod_outweighs_its_namespaces() -> None:
    raw = created(metadata={"annotations": {SAME_ADDRESS: "true"}})

    assert reviewed(raw, Reads(segment(own())), {SAME_ADDRESS: "false"}).patch


@pytest.mark.parametrize("parts", [{"operation": "UPDATE"}, {"object": None}, {"sub_resource": "eviction"}])
def test_only_new_pods_are_looked_at(parts: Mapping[str, Any]) -> None:
    assert reviewed(created(), Reads(segment(own())), **parts).audit == {"skipped": "no new pod"}


STRICT, COOLDOWN = {"skipped": WHY[Outcome.STRICT_AFFINITY]}, {"skipped": WHY[Outcome.COOLDOWN]}
ELSEWHERE, DISABLED = {"skipped": WHY[Outcome.NODE_SELECTOR]}, {"skipped": WHY[Outcome.DISABLED_POOL]}
OUTSIDE = {"skipped": WHY[Outcome.NO_POOL]}
ASKED = {"promised": "10.0.0.1"}


def pools(**selectors: str) -> Mapping[str, Any]:
    """The one of 10.0.0.0/24, and the one of 10.0.1.0/24."""
    cidrs = {"of_it": "10.0.0.0/24", "other": "10.0.1.0/24"}
    return {
        "pools": [
            IPPool(spec=IPPoolSpec(cidrs[which], node_selector=each)) for which, each in selectors.items()
        ]
    }


GOING = replace(a_pool("10.0.0.0/24"), metadata=ObjectMeta(deletion_timestamp=NOW))


@pytest.mark.parametrize(
    ("of_calico", "ended", "audit"),
    [
        pytest.param({"strict_affinity": True}, None, STRICT, id="nodes may not borrow addresses"),
        pytest.param(pools(of_it="zone == 'a'"), None, ELSEWHERE, id="its pool is for some nodes"),
        pytest.param(pools(of_it="all()", other="zone == 'a'"), None, ASKED, id="another pool is"),
        pytest.param(pools(other="all()"), None, OUTSIDE, id="no pool has it, as on a super node"),
        pytest.param(
            {"pools": [a_pool("10.0.0.0/24", disabled=True)]}, None, DISABLED, id="its pool is disabled"
        ),
        pytest.param(
            {"pools": [GOING]}, None, DISABLED, id="its pool is deleted once all addresses are free"
        ),
        pytest.param({"cooldown": 60}, ago(seconds=59), COOLDOWN, id="its cooldown lasts"),
        pytest.param({"cooldown": 1}, None, COOLDOWN, id="the former pod is not noted as gone"),
        pytest.param({"cooldown": 60}, ago(seconds=60), ASKED, id="its cooldown is over"),
        pytest.param({"cooldown": 0}, ago(seconds=1), ASKED, id="there is no cooldown"),
    ],
)
def test_what_calico_would_refuse_is_not_promised(
    of_calico: Mapping[str, Any], ended: datetime | None, audit: Mapping[str, str]
) -> None:
    """The pod would wait for it on any node, or until it asks no longer; an earlier pod's address does not count."""
    earlier = own("10.0.0.9/32", uid="uid-earlier", at=ago(minutes=10))
    decision = reviewed(created(), Reads(segment(own(ended=ended), earlier), **of_calico))

    assert (bool(decision.patch), decision.audit) == (audit == ASKED, audit)


@pytest.mark.parametrize("error", [Unreachable("no"), NotServed("no Calico")])
def test_a_pod_for_which_nothing_can_be_read_is_created_as_without_this(error: Exception) -> None:
    decision = reviewed(created(), Reads(error=error))

    assert (decision.allowed, decision.patch) == (True, ())
    assert decision.audit == {"skipped": WHY[Outcome.NOT_READ]}


# Reads that serve many


def test_what_is_asked_after_a_read_began_is_not_answered_by_it() -> None:
    began, go, reads = threading.Event(), threading.Event(), list[int]()

    def read(_timeout: float) -> int:
        reads.append(len(reads))
        began.set()
        go.wait(10)
        return reads[-1]

    shared, found = Shared(read), list[int]()
    threads = [threading.Thread(target=lambda: found.append(shared.value(1e9))) for _ in range(5)]
    threads[0].start()
    began.wait(10)
    for each in threads[1:]:
        each.start()
    go.set()
    for each in threads:
        each.join(10)

    assert min(found) == 0, "the first one's own"
    assert 2 <= len(reads) <= 5
    assert len(found) == 5
