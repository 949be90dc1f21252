"""Promised addresses stay reserved until their pods have them, and no pod asks for one forever."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from api.same_address import SAME_ADDRESS_FROM, Ending, Promise, is_kept, is_waited_for
from calico.segment import IPReservation, Record
from controllers.ip_reservation.caches import decode_pod
from controllers.ip_reservation.release_planner import Cause, Pods, plan
from controllers.ip_reservation.same_address import SameAddressReconciler
from dev.fake_api.calls import Refused
from kube.resources import PODS
from kube.types import Pod
from settings import IPReservationSettings
from tests.factories import NOW, ago, raw_pod, record, segment
from tests.ip_reservation_world import TERMINATING, Raw, Served, encoded
from tests.metrics import sample

ON = {"sameAddress": {"enabled": True}}
PROMISE = Promise("uid-former", ("10.0.0.1",))
MARK = {SAME_ADDRESS_FROM: PROMISE.annotations[SAME_ADDRESS_FROM]}


def former(cidr: str = "10.0.0.1/32", **fields: Any) -> Record:
    return record(cidr, **({"uid": "uid-former", "owner_uid": "uid-redis", "ended": ago(minutes=5)} | fields))


def raw(ip: str = "", node: str = "node-1", **parts: Any) -> Raw:
    """The pod that takes the place; it waits for its address unless it has one."""
    metadata = {"annotations": dict(PROMISE.annotations)} | parts.pop("metadata", {})
    return raw_pod(ip=ip, metadata=metadata, spec={"nodeName": node}, **parts)


def successor(**parts: Any) -> Pod:
    return decode_pod(encoded(raw(**parts)))


# What is known of promises


@pytest.mark.parametrize(
    ("new", "promises"),
    [
        pytest.param(successor(), "waiting", id="it waits for its address"),
        pytest.param(successor(node=""), "waiting", id="it waits for a node"),
        pytest.param(successor(ip="10.0.0.1"), "kept", id="it has it"),
        pytest.param(
            successor(ip="10.0.0.1", metadata={"annotations": MARK}), "kept", id="the promise ended"
        ),
        pytest.param(successor(ip="10.0.0.7"), "", id="it has another one"),
        pytest.param(successor(metadata={"annotations": MARK}), "", id="the promise was dropped"),
        pytest.param(successor(metadata={"annotations": {}}), "", id="nothing was promised"),
        pytest.param(successor(metadata={**TERMINATING["metadata"]}), "", id="it goes"),
        pytest.param(successor(status={"phase": "Failed"}), "", id="it has failed"),
        pytest.param(successor(namespace="other"), "", id="of another namespace"),
        pytest.param(successor(name="redis-1"), "", id="of another name"),
    ],
)
def test_what_a_successor_makes_of_a_reservation(new: Pod, promises: str) -> None:
    if new.terminating:
        new = replace(new, metadata=replace(new.metadata, annotations=dict(PROMISE.annotations)))
    assert (is_waited_for(former(), new), is_kept(former(), new)) == (
        promises == "waiting",
        promises == "kept",
    )


def test_an_address_that_was_not_promised_waits_for_no_pod() -> None:
    for each in (former("10.0.0.2/32"), former(uid="another"), record("10.0.0.1/32", uid="")):
        assert not is_waited_for(each, successor())
        assert not is_kept(each, successor())


# Releases

LIMITS = [
    pytest.param({"duration": "1m"}, "", id="time"),
    pytest.param({"maxCount": 1}, "", id="count"),
    pytest.param({"maxPerNamespace": 1}, "", id="namespace"),
    pytest.param({}, "10.0.0.1", id="by hand"),
]


@pytest.mark.parametrize(("settings", "by_hand"), LIMITS)
def test_nothing_releases_what_was_promised(settings: Mapping[str, Any], by_hand: str) -> None:
    younger = record("10.0.0.2/32", uid="younger", ended=ago(seconds=1))
    held = segment(former(), younger, release=by_hand)
    parsed = IPReservationSettings.model_validate(ON | settings)

    def released(*waiting: str) -> list[tuple[str, Cause]]:
        planned = plan([held], Pods({}, waiting=frozenset(waiting)), parsed, NOW)
        return [(each.cidr, cause) for change in planned.changes for each, cause in change.released]

    assert [cidr for cidr, _ in released()] == ["10.0.0.1/32"]
    assert released(former().key) == []


def test_what_waits_for_its_pod_counts_against_no_limit() -> None:
    """Else others would be released for a pod that needs an address anyway."""
    others = [record(f"10.0.1.{each}/32", uid=f"uid-{each}", ended=ago(minutes=1)) for each in range(2)]
    settings = IPReservationSettings.model_validate(ON | {"maxCount": 2})
    pods = Pods({}, waiting=frozenset({former().key}))

    assert not plan([segment(former(), *others)], pods, settings, NOW).changes


# The leader


class World(Served):
    def __init__(self, *segments: IPReservation, **options: Any) -> None:
        super().__init__(*segments, **(ON | options))
        self.release = self.releasing()
        self.reconciler = SameAddressReconciler(
            self.caches, self.api.client(), lambda: self.settings, self.reporter, self.clock
        )

    def pod(self, **parts: Any) -> Raw:
        return self.put_pod(raw(**parts))

    def reconcile(self) -> float | None:
        return self.reconciler.reconcile("redis/redis-0")

    def pass_(self) -> None:
        """Of the leader: releases, and the promise, twice, so that what is done stays done."""
        for _ in range(2):
            self.release.reconcile("")
            self.reconcile()


def endings() -> dict[str, float]:
    return {each: sample("drawbridge_same_address_promises_total", ending=each) for each in Ending}


HELD = ["10.0.0.1/32"]


@pytest.mark.parametrize(
    ("parts", "minutes", "annotations", "held", "ending", "said"),
    [
        pytest.param(
            {"ip": "10.0.0.1"}, 0, MARK, [], Ending.KEPT, "has the address of its predecessor", id="it has it"
        ),
        pytest.param(  # on a super node, for example, whose pods have no addresses of Calico
            {"ip": "192.168.0.4"}, 0, {}, HELD, Ending.OTHER_ADDRESS, "with another one", id="it has another"
        ),
        pytest.param(
            {}, 1, {}, HELD, Ending.DROPPED, "on node node-1 did not get 10.0.0.1", id="it gets none in time"
        ),
        pytest.param(
            {"node": ""},
            *(40, {}, [], Ending.DROPPED, "which no node runs yet"),
            id="it has no node for the whole time of a reservation",
        ),
    ],
)
def test_the_promise_to_a_pod_ends_when(
    parts: Mapping[str, str],
    minutes: int,
    annotations: Mapping[str, str],
    held: list[str],
    ending: Ending,
    said: str,
) -> None:
    world, before = World(segment(former())), endings()
    world.pod(**parts)
    world.reconcile()
    world.advance(minutes=minutes)
    world.pass_()

    assert (world.annotations("redis-0"), world.reservations.held) == (annotations, held)
    assert world.recorder.reasons == ["SameAddress" if ending is Ending.KEPT else "SameAddressDropped"]
    assert said in world.recorder.events[0][1]
    assert endings() == before | {ending: before[ending] + 1}


def test_a_pod_that_waits_for_its_address_keeps_it_reserved_beyond_its_time() -> None:
    world = World(segment(former(ended=ago(minutes=39))))
    world.pod()
    world.advance(seconds=1)
    world.pass_()
    world.now += timedelta(minutes=5)

    world.pass_()
    assert world.reservations.held == ["10.0.0.1/32"]
    assert world.annotations("redis-0") == PROMISE.annotations


def test_the_time_without_a_node_does_not_count_against_the_time_on_it() -> None:
    world = World(segment(former()))
    world.pod(node="")
    assert world.reconcile() == 2400.0
    world.advance(minutes=39)
    assert world.reconcile() == 60.0

    world.pod()
    assert world.reconcile() == 60.0
    world.advance(seconds=59)
    assert world.reconcile() == 1.0
    assert world.annotations("redis-0") == PROMISE.annotations


@pytest.mark.parametrize("parts", [TERMINATING, {"status": {"phase": "Failed"}}], ids=["goes", "failed"])
def test_a_pod_that_goes_is_left_as_it_is(parts: Mapping[str, Any]) -> None:
    world = World(segment(former()))
    metadata = {"annotations": dict(PROMISE.annotations), **parts.get("metadata", {})}
    world.pod(metadata=metadata, status=parts.get("status", {}))
    world.pass_()

    assert world.annotations("redis-0") == PROMISE.annotations


def test_what_is_switched_off_ends_no_promise_and_keeps_nothing_for_one() -> None:
    world = World(segment(former(ended=ago(hours=1))), sameAddress={"enabled": False})
    world.pod(ip="10.0.0.1")
    world.pass_()

    assert world.annotations("redis-0") == PROMISE.annotations
    assert world.reservations.held == []
    assert world.recorder.reasons == []


# Faults


def test_a_pod_that_the_cache_does_not_have_yet_keeps_its_address_reserved() -> None:
    """Admission has promised it a moment ago; the pod may ask for the address before the watch delivers it."""
    world = World(segment(former(ended=ago(hours=1))))
    world.pod()
    world.stale = {"redis-0": None}
    world.pass_()
    assert world.reservations.held == ["10.0.0.1/32"]

    world.api.remove(PODS, "redis-0", "redis")
    world.pass_()
    assert world.reservations.held == []


def test_nothing_that_may_be_promised_is_released_while_the_api_server_does_not_say() -> None:
    world = World(segment(former(ended=ago(hours=1)), record("10.0.0.2/32", uid="b", ended=ago(hours=1))))
    world.api.fault = lambda call: (
        Refused(500, "InternalError", "no").reply if "/pods/" in call.path else None
    )
    world.pass_()

    assert world.reservations.held == ["10.0.0.1/32"]


def test_a_promise_is_not_dropped_by_an_old_view_of_a_pod_that_has_its_address_by_now() -> None:
    world = World(segment(former()))
    world.stale = {"redis-0": world.pod()}
    world.reconcile()
    world.pod(ip="10.0.0.1")
    world.advance(minutes=2)

    assert world.reconcile() is None
    assert world.annotations("redis-0") == PROMISE.annotations
    assert world.recorder.reasons == []
    world.stale = {}
    world.pass_()
    assert world.annotations("redis-0") == MARK
