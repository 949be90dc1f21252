"""The leader's round against a fake world, asserting the state of the world after two rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from calico.segment import IPReservation, Record
from controllers.ip_reservation.release_reconciler import WRITES
from controllers.liveness import LONGEST_RUN
from dev.fake_api import refusal
from kube.errors import Unreachable
from kube.leader_election import LeadershipLost
from kube.resources import PODS
from kube.types import Pod
from tests import ip_reservation_world
from tests.factories import NOW, ago, pod, record, segment
from tests.ip_reservation_world import TERMINATING
from tests.metrics import sample


class World(ip_reservation_world.World):
    def __init__(self, *segments: IPReservation, **options: Any) -> None:
        super().__init__(*segments, **options)
        self.reconciler = self.releasing()

    def once(self) -> None:
        assert self.reconciler.reconcile("") == self.settings.release_period

    def twice(self) -> None:
        self.once()
        self.once()

    def wait(self, **delta: float) -> None:
        """Once now and, when the time has passed on both clocks, twice more."""
        self.once()
        self.advance(**delta)
        self.twice()


def test_an_idle_round_writes_nothing() -> None:
    world = World(
        segment(record(ended=ago(minutes=1))),
        segment(record("10.0.0.2/32", ended=ago(hours=9)), name="unmanaged", ours=False),
    )

    world.twice()

    assert world.reservations.writes == 0


def test_nothing_is_released_by_a_copy_of_the_pods_that_may_be_stale() -> None:
    world = World(segment(record(ended=ago(hours=9))))
    world.caches.pods.silence = 200.0  # type: ignore[misc]

    world.twice()

    assert world.reservations.held == ["10.0.0.1/32"]


def test_a_pod_that_lives_on_gets_its_address_back_and_an_event() -> None:
    world = World(segment(record()), pods=[pod()])

    world.wait(minutes=2)

    assert world.reservations.held == []
    assert world.recorder.reasons == ["IPGivenBack"]


def kept_by_a_finalizer(segment: IPReservation) -> IPReservation:
    return replace(segment, metadata=replace(segment.metadata, finalizers=("backup.example.com/keep",)))


def test_a_segment_that_a_finalizer_keeps_is_emptied_and_its_release_counted_once() -> None:
    before = sample("drawbridge_reservations_released_total", cause="age")
    world = World(kept_by_a_finalizer(segment(record(ended=ago(hours=1)))))
    for _ in range(3):
        world.once()
    writes = world.reservations.writes
    world.once()

    assert world.reservations.held == []
    assert sample("drawbridge_reservations_released_total", cause="age") == before + 1
    assert world.reservations.writes == writes
    [left] = world.reservations.objects.values()
    assert left.metadata.deletion_timestamp


def test_a_finalizer_keeps_no_malformed_entry() -> None:
    world = World()
    world.reservations.objects["drawbridge-a"] = kept_by_a_finalizer(segment(entries=["none"]))

    world.twice()

    [left] = world.reservations.objects.values()
    assert left.malformed == ()


def test_a_clock_that_jumps_ahead_gives_nothing_back() -> None:
    world = World(segment(record()), pods=[pod()])
    world.twice()
    world.now += timedelta(hours=1)
    world.twice()

    assert world.reservations.held == ["10.0.0.1/32"]


@pytest.mark.parametrize("successor", [None, pod(metadata={"uid": "another"})], ids=["gone", "replaced"])
def test_a_stale_cache_gives_nothing_back(successor: Pod | None) -> None:
    world = World(segment(record()), pods=[pod()])
    world.api.remove(PODS, "redis-0", "redis")
    if successor:
        world.serve(successor)

    world.wait(minutes=3)

    assert world.reservations.held == ["10.0.0.1/32"]


def test_a_pod_that_cannot_be_read_keeps_its_reservation_and_no_other_from_release() -> None:
    due = record("10.0.0.2/32", pod="redis-1", uid="gone", ended=ago(minutes=39))
    world = World(segment(record(), due), pods=[pod()])
    world.api.fault = lambda call: refusal(503, "ServiceUnavailable") if "/pods/" in call.path else None

    world.wait(minutes=3)
    assert world.reservations.held == ["10.0.0.1/32"]

    world.api.fault = lambda call: None
    world.twice()
    assert world.reservations.held == []


def test_writes_that_hang_end_the_pass_and_the_others_come_first_in_the_next() -> None:
    held = [record(f"10.0.0.{n}/32", uid=f"{n}", ended=ago(hours=1)) for n in range(1, 100)]
    world = World(*(segment(each, name=f"s-{n:02}") for n, each in enumerate(held)))
    stuck = [f"s-{n:02}" for n in range(50)]

    def hang(verb: str, name: str) -> None:
        if name in stuck:
            world.seconds.advance(5)
            raise Unreachable("read timed out")

    world.reservations.before = hang
    began = world.seconds()
    world.once()
    assert world.seconds() - began < LONGEST_RUN / 10

    for _ in range(len(stuck) * 5 // int(WRITES)):
        world.once()
    assert len(world.reservations.held) == len(stuck)


def lost() -> bool:
    raise LeadershipLost("another one may lead")


@pytest.mark.parametrize("ending", [lambda: True, lost], ids=["it stops", "another one may lead"])
def test_a_pass_ends_with_its_leader(ending: Callable[[], bool]) -> None:
    pods = [pod(f"redis-{n}", ip=f"10.0.1.{n}") for n in range(100)]
    held = [record(f"10.0.1.{n}/32", pod=f"redis-{n}", uid=f"uid-redis-{n}") for n in range(100)]
    world = World(segment(*held), pods=pods)
    world.once()
    world.advance(minutes=2)
    world.api.calls.clear()

    def is_over() -> bool:
        return len(world.api.calls) >= 3 and ending()

    world.is_over = is_over
    with suppress(LeadershipLost):
        world.once()

    assert len(world.api.calls) == 3


def test_addresses_over_the_count_are_released_with_an_event() -> None:
    held = [
        record(f"10.0.0.{n}/32", uid=f"{n}", at=ago(minutes=n), ended=ago(minutes=1)) for n in range(1, 6)
    ]
    before = sample("ip_reserve_evictions_count")
    in_use = record("10.0.0.9/32", uid="uid-redis-0")
    world = World(segment(*held, in_use), pods=[pod(ip="10.0.0.9")], maxCount=3)

    world.twice()

    assert world.reservations.held == ["10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32", "10.0.0.9/32"]
    assert world.recorder.reasons == ["IPReleasedEarly"]
    assert sample("ip_reserve_evictions_count") == before + 2
    assert sample("ip_reserve_count") == 3
    assert sample("drawbridge_reserved_addresses_in_use") == 1
    assert sample("ip_reserve_count_max") == 3


def test_forged_records_push_none_out_and_are_dropped_with_an_event() -> None:
    true = record(ended=ago(minutes=1))
    forged = [record(f"10.0.1.{n}/32", uid=f"f{n}", pod=f"f{n}", at=NOW) for n in range(1, 9)]
    foreign = record("10.0.2.1/32", uid="uid-redis-7", pod="redis-7", at=NOW)
    world = World(segment(true), pods=[pod("redis-7", ip="10.0.0.7")], maxCount=1)
    world.addresses.observe(None, world.cached[0])
    world.twice()
    before = sample("drawbridge_reservations_released_total", cause="forged")

    world.reservations.put(segment(true, foreign, *forged))
    world.twice()
    assert (world.reservations.writes, sample("drawbridge_unconfirmed_reservations")) == (0, 9)
    assert sample("drawbridge_reserved_addresses_in_use") == 0

    world.caches.pods.version = 10_000_000  # type: ignore[misc]
    with capture_logs() as logs:
        world.twice()
    assert world.reservations.held == ["10.0.0.1/32"]
    assert world.recorder.reasons == ["ForgedReservation"]
    [dropped] = [each for each in logs if each["event"] == "forged reservations dropped"]
    assert (dropped["count"], dropped["address"], dropped["name"]) == (9, "10.0.2.1/32", "redis-7")
    assert sample("drawbridge_reservations_released_total", cause="forged") == before + 9
    assert sample("drawbridge_unconfirmed_reservations") == 0


def test_an_unmanaged_entry_that_stops_calico_is_reported() -> None:
    world = World()
    world.reservations.objects["unmanaged"] = segment(name="unmanaged", ours=False, entries=["10.0.0.1-9"])

    world.once()

    assert world.recorder.reasons == ["MalformedReservation"]
    assert "'10.0.0.1-9'" in world.recorder.events[0][1]
    assert sample("drawbridge_malformed_reservations") == 1


def test_what_it_takes_out_is_noted_as_its_own_before_it_is_written() -> None:
    due, kept = record(ended=ago(hours=1)), record("10.0.0.2/32", uid="b", ended=ago(minutes=1))
    world = World(segment(due, kept))
    seen: list[Iterable[Record]] = []

    def watch(verb: str, name: str) -> None:
        if verb == "write":
            world.restore.observe(segment(due, kept), None)
            seen.append(world.restore.taken(name).values())

    world.reservations.before = watch
    world.twice()

    assert [list(each) for each in seen] == [[kept]]


def test_an_address_that_is_named_by_annotation_is_released_when_its_pod_is_gone() -> None:
    gone, there = record("10.0.0.2/32", uid="b", ended=ago(minutes=1)), record()
    other = record("10.0.0.3/32", uid="c", ended=ago(minutes=1))
    named = segment(gone, there, other, release="10.0.0.2, 10.0.0.1/32")
    world = World(named, pods=[pod(**TERMINATING)])
    world.twice()
    assert world.reservations.held == ["10.0.0.1/32", "10.0.0.3/32"]

    world.cached.clear()
    world.twice()
    assert world.reservations.held == ["10.0.0.3/32"]
    assert "ReleaseNotPossible" not in world.recorder.reasons  # of the one that was released first


def test_an_annotation_that_names_nothing_that_is_held_here_is_answered_by_an_event() -> None:
    world = World(segment(record(ended=ago(minutes=1)), release="10.0.0.300,10.0.0.9"))

    world.once()

    assert world.reservations.held == ["10.0.0.1/32"]
    assert world.recorder.reasons == ["ReleaseNotPossible"] * 2
    assert "'10.0.0.300'" in world.recorder.events[0][1]
