"""The leader's round against a fake world, asserting the state of the world after two rounds."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace
from prometheus_client import REGISTRY

from calico.segment import IPReservation
from controllers.ip_reservation.rounds import Rounds
from kube.errors import Forbidden
from kube.objects import Pod
from settings import IPReservationSettings
from tests.factories import NOW, ago, pod, record, segment
from tests.fakes import FakeCluster, FakeRecorder, FakeReservations, FakeStore


class World:
    def __init__(self, *segments: IPReservation, pods: list[Pod] | None = None, **settings: object) -> None:
        self.now: datetime = NOW
        self.reservations = FakeReservations()
        for each in segments:
            self.reservations.put(each)
        self.cached = list(pods or [])
        self.cluster = FakeCluster(self.cached)
        self.recorder = FakeRecorder()
        self.settings = IPReservationSettings.model_validate(
            {"ipReserveTime": "40m", "giveBackAfter": "2m"} | settings
        )
        self.pods = FakeStore(lambda: self.cached, uid=lambda each: [each.metadata.uid])
        self.rounds = Rounds(
            FakeStore(lambda: self.reservations.objects.values()),  # type: ignore[arg-type]
            self.pods,  # type: ignore[arg-type]
            self.reservations,  # type: ignore[arg-type]
            read_pod=self.cluster.pod,
            settings=lambda: self.settings,
            recorder=self.recorder,  # type: ignore[arg-type]
            now=lambda: self.now,
        )

    def twice(self) -> None:
        assert self.rounds.reconcile("") == self.settings.ip_release_period
        self.rounds.reconcile("")


def test_the_hold_counts_from_the_end_of_the_pod_and_survives_a_new_leader() -> None:
    world = World(segment(record(at=ago(hours=3))))
    world.twice()
    assert world.reservations.held == ["10.0.0.1/32"]

    world.now += timedelta(minutes=39)
    again = World(*world.reservations.list())
    again.now = world.now
    again.twice()
    assert again.reservations.held == ["10.0.0.1/32"]

    again.now += timedelta(minutes=1)
    again.twice()
    assert again.reservations.held == []
    assert again.reservations.objects == {}


def test_an_idle_round_writes_nothing() -> None:
    world = World(
        segment(record(ended=ago(minutes=1))), segment(record("10.0.0.2/32"), name="foreign", ours=False)
    )

    world.twice()

    assert world.reservations.writes == 0


def test_nothing_is_released_by_a_copy_of_the_pods_that_may_be_stale() -> None:
    world = World(segment(record(ended=ago(hours=9))))
    world.pods.silence = 200.0

    world.twice()

    assert world.reservations.held == ["10.0.0.1/32"]


def test_foreign_reservations_are_never_touched() -> None:
    world = World(segment(record(ended=ago(hours=9)), name="foreign", ours=False))

    world.twice()

    assert world.reservations.held == ["10.0.0.1/32"]


def test_a_pod_that_lives_on_gets_its_address_back_and_an_event() -> None:
    world = World(segment(record(at=ago(minutes=3))), pods=[pod()])

    world.twice()

    assert world.reservations.held == []
    assert world.recorder.reasons == ["IPGivenBack"]


def test_a_stale_cache_gives_nothing_back() -> None:
    world = World(segment(record(at=ago(minutes=3))), pods=[pod()])
    world.cluster.pods.clear()

    world.twice()

    assert world.reservations.held == ["10.0.0.1/32"]


def test_a_new_pod_of_the_same_name_is_not_the_one_that_went() -> None:
    world = World(segment(record(at=ago(minutes=3))), pods=[pod()])
    world.cluster.pods = {("redis", "redis-0"): pod(metadata={"uid": "another"})}

    world.twice()

    assert world.reservations.held == ["10.0.0.1/32"]


def test_what_a_replica_appends_meanwhile_is_not_lost() -> None:
    world = World(segment(record(ended=ago(hours=1))))

    def append_first(verb: str, name: str) -> None:
        if verb == "delete" and len(world.reservations.held) == 1:
            current = world.reservations.objects[name]
            world.reservations.put(segment(*current.records, record("10.0.0.2/32", uid="b"), name=name))

    world.reservations.before = append_first
    world.twice()

    assert world.reservations.held == ["10.0.0.2/32"]


def test_addresses_over_the_count_are_released_with_an_event() -> None:
    held = [
        record(f"10.0.0.{n}/32", uid=f"{n}", at=ago(minutes=n), ended=ago(minutes=1)) for n in range(1, 6)
    ]
    before = REGISTRY.get_sample_value("ip_reserve_evictions_count") or 0
    world = World(segment(*held), ipReserveMaxCount=3)

    world.twice()

    assert world.reservations.held == ["10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32"]
    assert world.recorder.reasons == ["IPReleasedEarly"]
    assert REGISTRY.get_sample_value("ip_reserve_evictions_count") == before + 2
    assert REGISTRY.get_sample_value("ip_reserve_count") == 3
    assert REGISTRY.get_sample_value("ip_reserve_count_max") == 3


def test_a_foreign_entry_that_stops_calico_is_told() -> None:
    foreign = segment(name="foreign", ours=False)
    world = World()
    world.reservations.objects["foreign"] = replace(
        foreign, spec=replace(foreign.spec, reserved_cidrs=["10.0.0.1-9"])
    )

    world.rounds.reconcile("")

    assert world.recorder.reasons == ["MalformedReservation"]
    assert "'10.0.0.1-9'" in world.recorder.events[0][1]
    assert REGISTRY.get_sample_value("drawbridge_malformed_reservations") == 1


def test_one_segment_that_cannot_be_written_does_not_keep_the_others_from_release() -> None:
    stuck, free = record(ended=ago(hours=1)), record("10.0.0.2/32", uid="b", ended=ago(hours=1))
    world = World(segment(stuck, name="stuck"), segment(free, name="free"))

    def refuse(verb: str, name: str) -> None:
        if name == "stuck":
            raise Forbidden(403, "Forbidden", "a policy forbids it")

    world.reservations.before = refuse
    world.twice()

    assert world.reservations.held == ["10.0.0.1/32"]
