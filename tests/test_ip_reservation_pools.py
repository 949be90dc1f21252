"""The leader follows Calico's pools, and releases early by them what would leave new pods without addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client import REGISTRY

from calico.pools import Pool, pools_of
from calico.segment import IPReservation, Record
from controllers.ip_reservation import pools as pools_module
from controllers.ip_reservation.pools import STALE, PoolWatch
from controllers.ip_reservation.release_planner import Cause
from dev.fake_api import FakeAPI, refusal
from dev.lab.waiting import until
from kube.errors import Forbidden
from settings import IPReservationSettings
from settings.ip_reservation import Pools, Standing
from tests import ip_reservation_world
from tests.calico_pools import BLOCKS, KINDS, POOLS, a_block, a_pool, block, pool
from tests.factories import ago, raw_pod, record, segment
from tests.fakes import FakeRecorder
from tests.ip_reservation_leader import DUE, PODS, V1, V3, world
from tests.managed import context_of
from tests.metrics import sample

SETTINGS = IPReservationSettings.model_validate(
    {"duration": "40m", "releasePeriod": "1h", "pools": {"enabled": True}}
)


def figures(name: str) -> list[float | None]:
    metrics = ("addresses", "assigned_addresses", "reserved_addresses", "free_addresses")
    return [REGISTRY.get_sample_value(f"drawbridge_pool_{each}", {"pool": name}) for each in metrics]


# The watch.


def watch(api: FakeAPI, **settings: Any) -> PoolWatch:
    context = context_of(api.client(), FakeRecorder())
    return PoolWatch(context, lambda: SETTINGS.model_copy(update=settings))


@pytest.fixture
def api() -> FakeAPI:
    api = FakeAPI(*KINDS)
    api.put(POOLS, pool("10.0.0.0/26"))
    api.put(BLOCKS, block("10.0.0.0/26", "10.0.0.1"))
    return api


def followed(watch: PoolWatch) -> Sequence[Pool]:
    until(lambda: watch.reconcile("") is None)
    found = watch.read([])
    assert found is not None
    return found


def test_pools_are_known_when_pools_and_blocks_were_listed(api: FakeAPI) -> None:
    here = watch(api)
    assert here.read([]) is None

    [found] = followed(here)

    assert (found.name, found.usage.assigned, found.room) == ("main", 1, 63)
    here._context.informers.stop()


def test_what_is_not_served_is_looked_for_again(api: FakeAPI) -> None:
    here = watch(api)
    api.unserved = {V1}
    assert here.reconcile("") == pools_module.UNSERVED
    api.unserved = set()
    assert len(followed(here)) == 1
    here._context.informers.stop()


def test_what_may_not_be_read_is_no_reason_to_end_the_process(api: FakeAPI) -> None:
    """As an informer that hears nothing is: so there is none before one could."""
    here = watch(api)
    for plural in ("ippools", "ipamblocks"):
        api.fault = lambda call, plural=plural: refusal(403, "Forbidden") if plural in call.path else None
        with pytest.raises(Forbidden):
            here.reconcile("")
    assert here.read([]) is None
    assert not here._context.informers._sources

    api.fault = lambda call: None
    assert len(followed(here)) == 1
    here._context.informers.stop()


class Informer:
    def __init__(self, silence: float, *, synced: bool = True) -> None:
        self.silence, self.synced = silence, synced

    def wait_synced(self, timeout: float) -> bool:
        return self.synced

    def list(self) -> Sequence[Any]:
        return ()


@pytest.mark.parametrize(
    ("pools", "blocks", "enabled", "known"),
    [
        pytest.param(Informer(STALE), Informer(0.0), True, True, id="quiet"),
        pytest.param(Informer(STALE + 1), Informer(0.0), True, False, id="silent pools"),
        pytest.param(Informer(0.0), Informer(STALE + 1), True, False, id="silent blocks"),
        pytest.param(Informer(0.0), Informer(0.0, synced=False), True, False, id="blocks not listed yet"),
        pytest.param(Informer(0.0), Informer(0.0), False, False, id="switched off meanwhile"),
    ],
)
def test_pools_are_known_while_both_watches_speak(
    api: FakeAPI, pools: Any, blocks: Any, enabled: bool, known: bool
) -> None:
    here = watch(api, pools=Pools(enabled=enabled), standing=Standing(enabled=False))
    here._pools, here._blocks = pools, blocks

    assert (here.read([]) is not None) is known


def test_figures_of_a_pool_go_with_it_and_with_the_knowledge_of_it() -> None:
    reporter = ip_reservation_world.World().reporter
    held = segment(record("10.0.0.9/32", ended=ago(minutes=1)))
    both = [a_pool("10.0.0.0/26", "a"), a_pool("10.1.0.0/26", "b")]

    reporter.inventory_of_pools(pools_of(both, [a_block("10.0.0.0/26", "10.0.0.1", "10.0.0.2")], [held]))
    assert (figures("a"), figures("b")) == ([64, 2, 1, 61], [64, 0, 0, 64])
    reporter.inventory_of_pools(pools_of(both[1:], [], []))
    assert (figures("a"), figures("b")) == ([None] * 4, [64, 0, 0, 64])
    reporter.inventory_of_pools(())
    assert figures("b") == [None] * 4


# As the leader runs it.


def test_no_pool_is_followed_where_that_is_off() -> None:
    with world(V3, kinds=KINDS) as here:
        here.api.put(PODS, raw_pod("redis-0"))
        here.hold(DUE)
        here.thread.start()
        until(lambda: not here.held)
        asked = {each.path for each in here.server.asked}
        assert not [each for each in asked if "ippools" in each or "ipamblocks" in each]


# Faults.


class World(ip_reservation_world.World):
    """A leader that knows blocks of 10.0.0.0/28 as they were when *assigned* was set; None: it knows none."""

    def __init__(self, *segments: IPReservation, assigned: Sequence[int] | None = (), **options: Any) -> None:
        super().__init__(*segments, pools={"enabled": True}, **options)
        self.assigned = assigned
        self.reconciler = self.releasing(self.pools)

    def pools(self, reservations: Sequence[IPReservation]) -> Sequence[Pool] | None:
        if self.assigned is None:
            return None
        block = a_block("10.0.0.0/28", *(f"10.0.0.{number}" for number in self.assigned))
        return pools_of([a_pool("10.0.0.0/28")], [block], reservations)

    def twice(self) -> None:
        for _ in range(2):
            self.reconciler.reconcile("")

    @property
    def left(self) -> list[int]:
        return sorted(int(each.removesuffix("/32").rpartition(".")[2]) for each in self.reservations.held)


def gone(number: int, **fields: Any) -> Record:
    """Number 6 went first."""
    return record(
        f"10.0.0.{number}/32",
        **{"uid": f"{number}", "pod": f"redis-{number}", "ended": ago(minutes=number)} | fields,
    )


def six() -> list[IPReservation]:
    return [segment(gone(number), gone(number + 3), name=f"s{number}") for number in (1, 2, 3)]


TIGHT = range(8, 16)
"""Half of the pool: 8 are left, of which 4 may be reserved."""


@pytest.mark.parametrize(
    ("assigned", "settings", "left", "said"),
    [
        pytest.param(TIGHT, {}, 4, "maxPoolShare", id="their pool"),
        pytest.param(None, {"maxPerNamespace": 5}, 5, "maxPerNamespace", id="their namespace"),
    ],
)
def test_early_releases_have_an_event_that_says_for_what(
    assigned: Sequence[int] | None, settings: dict[str, int], left: int, said: str
) -> None:
    before = sample("drawbridge_reservations_released_total", cause=str(Cause.POOL))
    world = World(*six(), assigned=assigned, **settings)

    world.twice()

    assert world.left == [*range(1, left + 1)]
    assert {(reason, said in message) for reason, message in world.recorder.events} == {
        ("IPReleasedEarly", True)
    }
    if assigned:
        assert sample("drawbridge_reservations_released_total", cause=str(Cause.POOL)) == before + 2
        assert figures("main") == [16, 8, 4, 4]


@pytest.mark.parametrize("passes", [1, 2, 5])
def test_a_leader_whose_reservations_lag_behind_its_own_releases_releases_no_more(passes: int) -> None:
    world = World(*six(), assigned=TIGHT)
    stale = [*world.reservations.objects.values()]
    world.caches.segments.list = lambda: stale  # type: ignore[method-assign]

    for _ in range(passes):
        world.reconciler.reconcile("")

    assert world.left == [1, 2, 3, 4]
