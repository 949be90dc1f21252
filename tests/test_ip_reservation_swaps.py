"""A pod that comes up with an address that is kept for the clients of another pod is reported, and no other one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from api.same_address import SAME_ADDRESS_FROM
from calico.segment import IPReservation, Record
from controllers.ip_reservation.swaps import REMEMBERED, SwapReconciler, gained
from dev.lab.waiting import until
from kube.types import Pod
from tests import ip_reservation_world
from tests.factories import ago, pod, raw_pod, record, segment
from tests.ip_reservation_leader import PODS, V3, world
from tests.metrics import sample

ADDRESS = "10.0.0.1"
OTHER = pod("kafka-0", ip=ADDRESS)


def swapped(hold: str) -> float:
    return sample("drawbridge_swapped_addresses_total", hold=hold)


class World(ip_reservation_world.World):
    def __init__(self, *segments: IPReservation, **options: Any) -> None:
        super().__init__(*segments, **options)
        at = self.addresses, lambda: self.settings, self.reporter
        self.reconciler = SwapReconciler(self.caches, self.live, *at)

    def comes(self, new: Pod, old: Pod | None = None) -> list[str]:
        """The reasons of Events after the informer delivered it."""
        self.addresses.observe(old, new)
        self.enqueue(*self.reconciler.observe_pod(old, new))
        self.settle(self.reconciler)
        return list(self.recorder.reasons)

    def change(self, old: IPReservation | None, new: IPReservation | None) -> None:
        """As another client, or the leader itself."""
        if new:
            self.reservations.put(new)
        elif old:
            del self.reservations.objects[old.metadata.name]
        self.enqueue(*self.reconciler.observe_segment(old, new))


def gone(**fields: Any) -> Record:
    return record(f"{ADDRESS}/32", **{"ended": ago(minutes=5)} | fields)


def test_a_pod_with_an_address_that_is_reserved_for_another_is_counted_logged_and_has_an_event() -> None:
    before = swapped("reserved")
    world = World(segment(gone()))
    with capture_logs() as logs:
        assert world.comes(OTHER) == ["AddressSwapped"]

    assert world.recorder.about == ["kafka-0"]
    assert "The pod has 10.0.0.1, which is reserved for pod redis/redis-0" in world.recorder.events[0][1]
    assert swapped("reserved") == before + 1
    [said] = [each for each in logs if each["event"] == "address swapped"]
    assert (said["address"], said["former"], said["uid"]) == (
        "10.0.0.1/32",
        "redis/redis-0",
        "uid-kafka-0",
    )


STARTING = pod("kafka-0", ip="")
COMES_UP = {
    "without an address before": (STARTING, OTHER, {ADDRESS}),
    "as the informer first has it": (None, OTHER, {ADDRESS}),
    "unchanged": (OTHER, OTHER, set()),
    "with another address than before": (pod("kafka-0", ip="10.0.0.9"), OTHER, {ADDRESS}),
    "on the network of its node": (STARTING, pod("kafka-0", ip=ADDRESS, spec={"hostNetwork": True}), set()),
    "when it has ended": (STARTING, pod("kafka-0", ip=ADDRESS, status={"phase": "Succeeded"}), set()),
    "and is gone": (OTHER, None, set()),
}


@pytest.mark.parametrize(("old", "new", "expected"), COMES_UP.values(), ids=COMES_UP)
def test_a_pod_comes_up_with_an_address(old: Pod | None, new: Pod | None, expected: set[str]) -> None:
    assert {each.removesuffix("/32") for each in gained(old, new)} == expected


QUIET = {
    "of the pod itself": segment(gone(uid="uid-kafka-0")),
    "of the same identity": segment(gone(pod="kafka-0", uid="earlier")),
    "of no pod": segment(gone(uid="", pod="", namespace="")),
    "over": segment(gone(ended=ago(minutes=40))),
    "of an operator": segment(gone(), name="other", ours=False),
    "of a pod that was never seen": segment(gone(ended=None, uid="forged")),
    "of another address": segment(replace(gone(), cidr="10.0.0.2/32")),
}


@pytest.mark.parametrize("held", QUIET.values(), ids=QUIET)
def test_nothing_is_reported_for_a_reservation(held: IPReservation) -> None:
    assert World(held).comes(OTHER) == []


def test_a_pod_of_that_name_in_another_namespace_is_another_one() -> None:
    assert World(segment(gone(pod="kafka-0", namespace="kafka"))).comes(OTHER) == ["AddressSwapped"]


def test_a_cache_that_lags_behind_a_release_reports_nothing() -> None:
    world = World(segment(gone()))
    stale = list(world.reservations.objects.values())
    world.caches.segments.by_index = lambda name, value: stale  # type: ignore[method-assign]
    world.reservations.objects.clear()

    assert world.comes(OTHER) == []


def test_a_reservation_whose_end_is_known_in_memory_alone_is_one() -> None:
    world = World(segment(gone(ended=None)))
    world.addresses.observe(pod(), None)

    assert world.comes(OTHER) == ["AddressSwapped"]


def test_an_address_that_was_released_before_its_time_is_reported_until_that() -> None:
    before = swapped("released-early")
    world = World(held := segment(gone()))
    world.change(held, None)

    assert world.comes(OTHER) == ["AddressSwapped"]
    assert "released before ipReservation.duration" in world.recorder.events[0][1]
    assert swapped("released-early") == before + 1

    world.now += timedelta(minutes=36)
    assert world.comes(pod("kafka-1", ip=ADDRESS)) == ["AddressSwapped"]


SUCCESSOR = pod(ip=ADDRESS, metadata={"annotations": {SAME_ADDRESS_FROM: f'former=["{ADDRESS}"]'}})


@pytest.mark.parametrize(
    ("held", "there", "excused"),
    [
        pytest.param(segment(gone(ended=None)), pod(), (), id="was given back"),
        pytest.param(segment(gone(ended=ago(minutes=40))), pod(), (), id="was over"),
        pytest.param(segment(gone(), release=ADDRESS), pod(), (), id="was released by hand"),
        # As that of a pod that ended by itself, or went with its owner, though it was reserved ahead.
        pytest.param(segment(gone()), pod(), ["uid-redis-0"], id="need not stay"),
        pytest.param(segment(gone(uid="former")), SUCCESSOR, (), id="its own successor had in between"),
    ],
)
def test_nothing_is_reported_for_a_record_that(held: IPReservation, there: Pod, excused: list[str]) -> None:
    world = World(held, pods=[there])
    for uid in excused:
        world.caches.claims.decide(uid, stays=False)
    world.addresses.observe(None, there)
    world.change(held, None)
    world.addresses.observe(there, None)
    world.cached.clear()
    world.settings = world.settings.model_copy(update={"duration": 36000.0})

    assert world.comes(OTHER) == []


def test_a_record_that_moves_to_another_segment_stays_a_reservation() -> None:
    before = swapped("reserved")
    world = World(small := segment(gone()), segment(gone(), name="large", level=1))
    world.change(small, None)

    assert world.comes(OTHER) == ["AddressSwapped"]
    assert swapped("reserved") == before + 1


def test_nothing_is_reported_for_a_record_that_an_operator_released_after_it_had_moved() -> None:
    """As each one does that was made ahead, to outlast the webhook configuration."""
    world = World(ahead := segment(gone(ended=None)), moved := segment(gone(), name="moved", release=ADDRESS))
    world.addresses.observe(pod(), None)
    world.change(ahead, None)
    world.change(moved, None)

    assert world.comes(OTHER) == []


def test_nothing_is_reported_for_a_record_that_an_operator_released_in_the_lesser_copy() -> None:
    world = World(lesser := segment(gone(), release=ADDRESS), greatest := segment(gone(), name="z", level=1))
    world.change(lesser, None)
    world.change(greatest, None)

    assert world.comes(OTHER) == []

    world.change(None, again := segment(gone(), name="again"))
    world.change(again, None)
    assert world.comes(pod("kafka-1", ip=ADDRESS)) == ["AddressSwapped"]


def test_a_late_reservation_finds_the_pod_that_was_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its address: there may be many of either."""
    world = World()
    monkeypatch.setattr(world.caches.pods, "list", pytest.fail)
    world.addresses.observe(None, pod())
    world.addresses.observe(pod(), None)
    world.cached.append(OTHER)
    assert world.comes(OTHER) == []

    world.change(None, late := segment(gone(late=True, ended=None)))
    world.settle(world.reconciler)
    assert world.recorder.reasons == ["AddressSwapped"]

    world.change(late, late)
    world.settle(world.reconciler)
    assert world.recorder.reasons == ["AddressSwapped"]


def test_what_was_taken_out_is_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a look at all that was decided about pods, which may be as much, for each change of a segment."""
    world = World()
    monkeypatch.setattr(world.caches.claims, "decided", pytest.fail)
    for number in range(REMEMBERED + 1):
        cidr = f"10.1.{number // 256}.{number % 256}/32"
        world.reconciler.observe_segment(segment(replace(gone(), cidr=cidr)), None)

    assert world.reconciler.taken_out("10.1.0.0/32") == []
    assert world.reconciler.taken_out("10.1.0.1/32") != []


def test_the_leader_reports_a_swap() -> None:
    with world(V3) as here:
        now = datetime.now(UTC)
        here.settings = here.settings.model_copy(update={"duration": 3600.0})
        here.hold(record("10.0.0.9/32", uid="u", pod="redis-1", at=now, ended=now))
        here.api.put(PODS, raw_pod("redis-2", ip="10.0.0.2"))
        here.thread.start()
        until(lambda: here.checks)
        here.api.put(PODS, raw_pod("redis-3", ip="10.0.0.9"))
        until(lambda: here.recorder.reasons == ["AddressSwapped"])
        assert here.recorder.about == ["redis-3"]
