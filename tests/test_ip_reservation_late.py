"""Pods that never passed admission: which are reserved late, and none twice."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from api.ip_reservation import FINISHED, RESERVE, RESERVE_FINISHED
from calico.segment import IPReservation, Record
from controllers.ip_reservation.confirmations import REMEMBERED
from controllers.ip_reservation.late_reservations import CATCH_UP
from kube.event_recorder import Regarding
from kube.resources import STATEFUL_SETS
from kube.types import Pod
from tests import ip_reservation_world
from tests.factories import NOW, ago, pod, record
from tests.ip_reservation_world import TERMINATING
from tests.pages import ROOT
from tests.tables import table

EVICTED = {"status": {"phase": "Failed", "reason": "Evicted"}}


def evicted(minutes_ago: float) -> Pod:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "TerminationByKubelet",
        "lastTransitionTime": ago(minutes=minutes_ago),
    }
    return pod(status={"phase": "Failed", "conditions": [condition]})


def of_a_lost_node() -> Pod:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
    return pod(status={"phase": "Failed", "conditions": [condition]})


class World(ip_reservation_world.World):
    """The StatefulSet of the pods exists."""

    def __init__(self) -> None:
        super().__init__()
        self.api.put(STATEFUL_SETS, {"metadata": {"name": "redis", "namespace": "redis", "uid": "uid-redis"}})
        self.during_reserve: Callable[[], None] = lambda: None
        self.reconciler = self.reserving_late()

    def reserve(self, records: Sequence[Record]) -> IPReservation:
        self.during_reserve()
        return super().reserve(records)

    def observe(self, old: Pod | None, new: Pod | None) -> None:
        self.enqueue(*self.reconciler.observe(old, new))

    def see(self, *states: Pod | None) -> None:
        """One after the other, each settled before the next."""
        for old, new in pairwise(states):
            self.observe(old, new)
            self.settle(self.reconciler)


def test_a_pod_that_was_missed_is_reserved_once_and_an_event_says_so() -> None:
    world = World()
    world.see(pod(), pod(**TERMINATING), None)
    world.see(pod(**TERMINATING), None)

    assert world.reservations.held == ["10.0.0.1/32"]
    assert world.recorder.reasons == ["IPReservedLate"]
    assert "Pod redis/redis-0 never passed admission (seen terminating)" in world.recorder.events[0][1]
    uid = world.reservations.objects["leader-1"].metadata.uid
    assert world.recorder.instead == [Regarding("projectcalico.org/v3", "IPReservation", "leader-1", uid=uid)]


def test_a_pod_that_is_selected_after_it_began_to_go_is_reserved() -> None:
    """Its kubelet may end it long after its user has opted it in again."""
    world, opted_out = World(), pod(metadata=TERMINATING["metadata"] | {"annotations": {RESERVE: "false"}})
    world.see(opted_out, opted_out, pod(**TERMINATING), None)

    assert world.reservations.held == ["10.0.0.1/32"]


ENDED = {"status": {"phase": "Succeeded"}}
FAILED_IN_THE_END = pod(**TERMINATING, spec={"restartPolicy": "Always"}, status={"phase": "Failed"})


FIRST, SECOND = "10.0.0.1/32", "fd00::1/128"
BOTH = {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}
ENDS: tuple[dict[str, Any], ...] = ({"phase": "Succeeded"}, {"phase": "Failed"}, {"podIP": "", "podIPs": []})


REJECTED = [pod(), pod(ip="", **EVICTED)]
GROWN = [pod(), pod(status=BOTH, **TERMINATING)]


@table(
    "states, reserved, reason",
    {
        "terminating": ([pod(), pod(**TERMINATING)], [FIRST], "seen terminating"),
        "gone": ([pod(), None], [FIRST], "seen gone"),
        "ended and gone": ([pod(**TERMINATING, **ENDED), None], [FIRST], "seen gone"),
        "marked failed at the end of its deletion": ([FAILED_IN_THE_END, None], [FIRST], "seen gone"),
        "evicted": ([pod(), pod(**EVICTED)], [FIRST], "evicted by the kubelet"),
        "deleted since": ([pod(**EVICTED | TERMINATING), None], [FIRST], "evicted by the kubelet"),
        "evicted and gone since": ([pod(**EVICTED), None], [FIRST], "evicted by the kubelet"),
        "evicted a while ago": ([pod(), evicted(39)], [FIRST], "evicted by the kubelet"),
        "rejected, by the address it had": (REJECTED, [FIRST], "evicted by the kubelet"),
        "marked failed as its node was lost": ([of_a_lost_node(), None], [FIRST], "seen gone"),
        **{
            f"as it was when it began to terminate, then {end}": (
                [pod(), pod(**TERMINATING), pod(**TERMINATING, status=end), None],
                [FIRST],
                "seen gone",
            )
            for end in ENDS
        },
        "with an address that came last": (GROWN, [FIRST, SECOND], "seen terminating"),
        "unselected": ([pod(metadata={"labels": {}}), None], [], ""),
        "of another namespace": ([pod(namespace="default"), None], [], ""),
        "failed by itself": ([pod(status={"phase": "Failed"}), None], [], ""),
        "succeeded": ([pod(**ENDED), None], [], ""),
        "evicted before the reserve time, by any clock": ([evicted(45), None], [], ""),
        "running": ([pod(), pod()], [], ""),
        "that comes up": ([pod(ip=""), pod()], [], ""),
    },
)
def test_what_is_reserved_late_of_a_pod_and_why(
    states: Sequence[Pod | None], reserved: list[str], reason: str
) -> None:
    world = World()
    for old, new in pairwise(states):
        world.observe(old, new)
    world.settle(world.reconciler)

    assert world.reservations.held == reserved
    assert all(
        (each.reason, each.late, each.at) == (reason, True, NOW) for each in world.reservations.records
    )
    assert world.recorder.reasons == ["IPReservedLate"] * bool(reserved)


@table("status, held", {"all": ({}, [FIRST]), "one of two addresses": (BOTH, [FIRST, SECOND])})
def test_what_a_webhook_server_has_recorded_is_not_reserved_late(
    status: dict[str, Any], held: list[str]
) -> None:
    world = World()
    world.reservations.create("webhook", [record()])
    world.see(pod(status=status), pod(status=status, **TERMINATING))

    assert world.reservations.held == held
    assert world.recorder.reasons == ["IPReservedLate"] * (len(held) - 1)


SUCCEEDED = pod(status={"phase": "Succeeded"})
ENDING = pod(status={"phase": "Succeeded"}, **TERMINATING)


@pytest.mark.parametrize(
    ("states", "others", "keeps", "reserved"),
    [
        pytest.param([pod(), SUCCEEDED], [], "true", [FIRST], id="finished"),
        pytest.param([pod(), SUCCEEDED, ENDING, None], [], "true", [FIRST], id="and deleted since"),
        pytest.param([pod(), SUCCEEDED], [], "false", [], id="of a namespace that does not ask for it"),
        pytest.param([pod(), SUCCEEDED, ENDING, None], [], "", [], id="the same, and deleted since"),
        pytest.param([None, SUCCEEDED, ENDING, None], [], "true", [], id="finished before it was seen"),
        pytest.param([pod(), SUCCEEDED], [pod("other")], "true", [], id="another pod has its address"),
    ],
)
def test_what_is_reserved_late_of_a_finished_pod(
    states: Sequence[Pod | None],
    others: Sequence[Pod],
    keeps: str,
    reserved: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether or not its owner is gone, without an Event, and without a look at all pods: each ends so."""
    world = World()
    monkeypatch.setattr(world.caches.pods, "list", pytest.fail)
    world.of_namespace |= {RESERVE_FINISHED: keeps}
    world.api.remove(STATEFUL_SETS, "redis", "redis")
    world.cached += others
    world.see(*states)

    assert world.reservations.held == reserved
    assert all(
        (each.reason, each.late, each.ended) == (FINISHED, True, NOW) for each in world.reservations.records
    )
    assert world.recorder.reasons == []


DEADLINE_EXCEEDED = pod(spec={"restartPolicy": "Always"}, status={"phase": "Failed"})


@table(
    "states, reserved",
    {
        "seen by a new leader alone": ([None, DEADLINE_EXCEEDED], []),
        "seen to fail": ([pod(), DEADLINE_EXCEEDED], [FIRST]),
        "of which the kubelet says when": ([None, evicted(5)], [FIRST]),
    },
)
def test_an_address_that_another_pod_has_is_not_reserved_for_a_pod_that_failed_at_an_unknown_time(
    states: Sequence[Pod | None], reserved: list[str]
) -> None:
    world = World()
    world.cached += [pod("other")]
    world.see(*states)

    assert world.reservations.held == reserved


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(
            lambda world: world.api.remove(STATEFUL_SETS, "redis", "redis"), id="its owner goes with it"
        ),
        pytest.param(
            lambda world: world.of_namespace.update({RESERVE: "false"}), id="its namespace opts out"
        ),
    ],
)
def test_a_pod_that_is_gone_is_not_reserved_when(before: Callable[[World], None]) -> None:
    world = World()
    before(world)

    world.see(pod(), None)

    assert world.reservations.held == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(pod(), pod(**TERMINATING), id="terminating"),
        pytest.param(pod(**EVICTED), None, id="evicted, and gone"),
        pytest.param(pod(**EVICTED), pod(**EVICTED | TERMINATING), id="evicted, and terminating"),
    ],
)
def test_a_record_that_the_watch_has_not_shown_yet_is_found_at_the_api_server(
    old: Pod, new: Pod | None
) -> None:
    world = World()
    world.reservations.create("webhook", [record()])
    world.lags = True
    began = world.seconds()
    world.see(old, new)

    assert world.seconds() == began + CATCH_UP
    assert world.reservations.writes == 1


@pytest.mark.parametrize(
    ("state", "lists"),
    [
        pytest.param(TERMINATING, 1, id="all that waited for it"),
        pytest.param(EVICTED, 0, id="none that passes no admission"),
    ],
)
def test_one_list_serves(state: dict[str, Any], lists: int) -> None:
    listed: list[str] = []
    world = World()
    world.lags = True
    world.reservations.before = lambda verb, name: listed.append(verb) if verb == "list" else None
    for n in range(50):
        world.observe(None, pod(f"redis-{n}", ip=f"10.0.0.{n}", **state))
        if not lists:
            world.settle(world.reconciler)
        world.seconds.advance(CATCH_UP)

    world.settle(world.reconciler)

    assert len(world.reservations.held) == 50
    assert len(listed) == lists


def test_workers_that_wait_at_once_share_a_list() -> None:
    world, lists, second = World(), list[str](), threading.Event()
    other = threading.Thread(target=lambda: world.live.reserved_since(-1.0))

    def before(verb: str, _name: str) -> None:
        lists.append(verb)
        if len(lists) > 1:
            second.set()
        else:
            other.start()
            second.wait(0.2)

    world.reservations.before = before
    world.live.reserved_since(-1.0)
    other.join(30)

    assert lists == ["list"]


def test_a_pod_that_ends_while_it_is_being_reserved_is_reserved_once() -> None:
    world = World()
    world.lags = True
    world.during_reserve = lambda: world.observe(pod(**TERMINATING), None)
    world.see(pod(), pod(**TERMINATING))

    assert (world.reservations.writes, world.recorder.reasons) == (1, ["IPReservedLate"])


def test_a_pod_that_could_not_be_reserved_for_longer_than_it_is_remembered_is_not_taken_for_forged() -> None:
    world = World()
    release = world.releasing()
    world.caches.pods.version = 10**9
    release.reconcile("")
    for old, new in [(None, pod()), (pod(), pod(**TERMINATING)), (pod(**TERMINATING), None)]:
        world.addresses.observe(old, new)
        world.observe(old, new)
    for _ in range(int(REMEMBERED / 60) + 1):
        world.advance(minutes=1)
        release.reconcile("")
    world.addresses.observe(None, pod("other", ip="10.0.0.2"))
    world.addresses.observe(pod("other", ip="10.0.0.2"), None)

    world.settle(world.reconciler)
    release.reconcile("")

    assert world.reservations.held == [FIRST]
    (held,) = world.reservations.records
    assert held.ended == NOW


def test_an_evicted_pod_that_stays_is_reserved_once_without_a_wait_whatever_becomes_of_its_reservation() -> (
    None
):
    world = World()
    began, held = world.seconds(), []
    for old, new in pairwise([pod(), pod(**EVICTED), pod(**EVICTED)]):
        world.see(old, new)
        held.append((world.seconds(), world.reservations.held))
        world.reservations.objects.clear()

    assert held == [(began, [FIRST]), (began, [])]
    assert world.recorder.reasons == ["IPReservedLate"]


def test_late_reservations_are_counted_from_zero_on() -> None:
    fresh = (
        "import prometheus_client, controllers.ip_reservation.reporter as _;"
        "print(prometheus_client.generate_latest().decode())"
    )
    shown = subprocess.run(
        [sys.executable, "-c", fresh], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    for reason in ("seen terminating", "seen gone", "evicted by the kubelet"):
        assert f'drawbridge_late_reservations_total{{reason="{reason}"}} 0.0' in shown
