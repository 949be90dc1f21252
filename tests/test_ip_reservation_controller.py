"""The leader's work begins when all that it decides on is known, and ends at once when the context stops."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from controllers.ip_reservation import controller, late_reservations
from controllers.ip_reservation.release_planner import MANY
from dev.fake_api import FakeAPI
from dev.lab.waiting import until
from kube.leader_election import LeadershipLost
from tests.factories import raw_pod, record
from tests.ip_reservation_leader import (
    DUE,
    ENABLED,
    NAMESPACES,
    PODS,
    SETTINGS,
    V1,
    V3,
    World,
    world,
)
from tests.metrics import sample
from tests.misbehaving_server import Answer, Asked, Handler, refuses


def held_back(gate: threading.Event, path: str, api: FakeAPI) -> Callable[[Asked], Answer | None]:
    """A fault: LISTs of *path* are answered, whole and well, once *gate* is set."""

    def waiting(asked: Asked) -> Answer:
        def send(handler: Handler) -> None:
            gate.wait(10)
            api.answer(asked)(handler)

        return send

    return lambda asked: waiting(asked) if asked.path == path and not asked.watches else None


def test_a_leader_ends_when_reservations_have_moved_to_another_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "LONGEST_SILENCE", 0.0)
    monkeypatch.setattr(controller, "LOOK", 0.05)
    with world(V3, V1) as here:
        here.hold(DUE)
        here.thread.start()
        until(lambda: not here.held)
        assert here.thread.is_alive()
        here.api.unserved = {V3}
        until(lambda: not here.thread.is_alive())
        assert repr(here.raised) == "StaleInformer('IPReservation is served in crd.projectcalico.org/v1 now')"
        here.raised = None


def test_a_storm_is_compacted_before_the_next_pass_is_due() -> None:
    with world(V3) as here:
        here.settings = SETTINGS.model_copy(update={"release_period": 3600.0})
        for number in range(MANY):
            here.api.put(PODS, raw_pod(f"redis-{number}", ip=f"10.0.0.{number}"))
        here.thread.start()
        until(lambda: here.checks)  # its first pass
        here.recorder.events.clear()
        for number in range(MANY):
            here.hold(record(f"10.0.0.{number}/32", uid=f"uid-redis-{number}"), name=f"drawbridge-{number}")
        until(lambda: len(here.api.list(here.reservations)) == 1)
        assert len(here.held) == MANY
        assert here.recorder.reasons == []


def test_it_waits_until_calico_is_served() -> None:
    with world() as here:
        here.hold(DUE)
        here.thread.start()
        until(lambda: len(here.asked_for(f"/apis/{V1}")) >= 2)
        assert here.asked_for(PODS) == []
        here.api.unserved = {V1}
        until(lambda: not here.held)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(f"/apis/{V3}/ipreservations", id="segments"),
        pytest.param(NAMESPACES, id="namespaces"),
        pytest.param(PODS, id="pods"),
    ],
)
def test_nothing_is_done_before_the_informers_are_synced(path: str) -> None:
    gate = threading.Event()
    with world(V3) as here:
        here.hold(DUE)
        here.api.fault = held_back(gate, path, here.api)
        here.thread.start()
        until(lambda: here.asked_for(path))
        assert not here.stop.wait(6 * SETTINGS.release_period)
        assert (here.checks, here.writes) == (0, [])
        gate.set()
        until(lambda: not here.held)


TERMINATING = {"deletionTimestamp": "2026-01-02T03:04:05Z"}


def observed() -> float:
    return sample("drawbridge_workqueue_adds_total", name="ip_reservation_late")


def see_pods(here: World, count: int) -> None:
    """Lead until so many pods have been seen that must be reserved late."""
    for number in range(count):
        here.api.put(PODS, raw_pod(f"redis-{number}", ip=f"10.0.0.{number}", metadata=TERMINATING))
    before = observed()
    here.thread.start()
    until(lambda: observed() >= before + count, 20)


def test_what_waits_to_be_reserved_late_is_reserved_before_the_leader_stops() -> None:
    with world(V3) as here:
        see_pods(here, 3)
        here.end(within=20)
        assert sorted(each.cidr for each in here.held) == [f"10.0.0.{n}/32" for n in range(3)]


def test_what_cannot_be_reserved_is_logged_without_a_traceback_and_keeps_no_leader_from_stopping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller, "LAST_WORK", 0.2)
    with capture_logs() as logs, world(V3) as here:
        here.api.fault = lambda asked: refuses(403, "Forbidden") if asked.method == "POST" else None
        evicted = {"phase": "Failed", "reason": "Evicted"}
        here.api.put(PODS, raw_pod("redis-0", ip="10.0.0.1", status=evicted))
        here.thread.start()
        until(lambda: any(each["event"] == "reconcile failed" for each in logs), 20)
        here.end(within=20)
        assert here.held == []

    failed = next(each for each in logs if each["event"] == "reconcile failed")
    assert (failed["queue"], failed["exc_info"]) == ("ip_reservation_late", False)
    assert "could not be written" in failed["error"]


def test_nothing_is_worked_off_once_leadership_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(number: int) -> None:
        raise LeadershipLost("another process leads")

    monkeypatch.setattr(controller, "LAST_WORK", 60.0)
    with world(V3) as here:
        here.check = lost
        see_pods(here, late_reservations.LATE_WORKERS + 1)  # each ends a worker, one is left
        here.end(within=20)
        assert here.writes == []


@pytest.mark.parametrize(
    ("own", "selector"),
    [
        pytest.param(
            "drawbridge", ENABLED + ",kubernetes.io/metadata.name notin (drawbridge)", id="in a cluster"
        ),
        pytest.param("", ENABLED, id="elsewhere"),
    ],
)
def test_pods_of_the_namespaces_that_the_webhook_is_registered_for_are_followed(
    own: str, selector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAMESPACE", own)
    with world(V3) as here:
        here.thread.start()
        until(lambda: len(here.asked_for(NAMESPACES)) >= 2, 20)
        assert {asked.query["labelSelector"] for asked in here.asked_for(NAMESPACES)} == {selector}
