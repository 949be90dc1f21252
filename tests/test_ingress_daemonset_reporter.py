"""What of a rollout is worth an Event, and what is shown as metrics."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from api.ingress_daemonset.status import status_of
from controllers.ingress_daemonset.planner import Plan
from controllers.ingress_daemonset.reporter import Reporter, news
from controllers.ingress_daemonset.status import Unconfirmed
from tests.factories import NOW
from tests.fakes import FakeRecorder
from tests.ingress_daemonset_world import resource

WEB = {"namespace": "edge", "name": "web"}


def status(progressing: str, degraded: str = "AsDesired", **counts: int) -> dict[str, Any]:
    said = {"Progressing": progressing, "Degraded": degraded}
    conditions = [
        {"type": kind, "reason": reason, "message": f"it is {reason}"} for kind, reason in said.items()
    ]
    return {"conditions": conditions, **counts}


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        ({}, status("RollingOut"), [("RolloutStarted", "Normal")]),
        ({}, status("Complete"), []),
        (status("Complete"), status("RollingOut"), [("RolloutStarted", "Normal")]),
        (status("RollingOut"), status("WaitingForDetachment"), []),
        (status("WaitingForDetachment"), status("RollingOut"), []),
        (status("RollingOut"), status("Complete"), [("RolloutComplete", "Normal")]),
        (status("RollingOut"), status("Paused"), [("RolloutPaused", "Normal")]),
        (status("Paused"), status("RollingOut"), [("RolloutStarted", "Normal")]),
        (status("RollingOut"), status("Halted"), [("RolloutHalted", "Warning")]),
        (status("Halted"), status("Halted"), []),
        (status("Complete"), status("Complete", "PodsUnavailable"), [("PodsUnavailable", "Warning")]),
        (status("Halted"), status("Halted", "RolloutStuck"), []),
        (status("Complete", "PodsUnavailable"), status("Complete"), []),
    ],
)
def test_the_turns_of_a_rollout_are_reported(
    old: dict[str, Any], new: dict[str, Any], reported: list[tuple[str, str]]
) -> None:
    assert [(reason, type_) for reason, _, type_ in news(status_of(old), status_of(new))] == reported


def test_its_counts_are_shown_until_it_is_gone() -> None:
    reporter = Reporter(FakeRecorder())  # type: ignore[arg-type]
    said = status("Halted", desiredNodes=3, updatedNodes=2, readyNodes=1, detachedNodes=1, degradedNodes=0)
    waiting = (Unconfirmed("n1", NOW, "it waits"),)
    reporter.measure(resource(), Plan(status=said, unconfirmed=waiting))

    def shown(name: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(f"drawbridge_ingress_daemonset_{name}", WEB | labels)

    states = ("desired", "updated", "ready", "detached", "degraded")
    assert [shown("nodes", state=state) for state in states] == [3, 2, 1, 1, 0]
    assert (shown("halted"), shown("unconfirmed")) == (1, 1)

    reporter.measure(resource(), Plan(status=status("RollingOut")))
    assert (shown("halted"), shown("unconfirmed")) == (0, 0)

    reporter.forget("edge/web")
    reporter.forget("edge/web")
    assert (shown("halted"), shown("nodes", state="ready")) == (None, None)


def test_an_unconfirmed_detachment_has_one_event_and_another_one_has_its_own() -> None:
    recorder = FakeRecorder()
    reporter = Reporter(recorder)  # type: ignore[arg-type]
    first = Unconfirmed("n1", NOW, "it is not confirmed")
    later = Unconfirmed("n1", NOW + timedelta(hours=1), "it is not confirmed")

    assert reporter.remind(resource().metadata, (first,), 600, NOW) == 600
    assert reporter.remind(resource().metadata, (first,), 600, NOW + timedelta(seconds=600)) is None
    assert reporter.remind(resource().metadata, (first,), 600, NOW + timedelta(seconds=900)) is None
    assert recorder.reasons == ["DetachmentUnconfirmed"]

    assert reporter.remind(resource().metadata, (later,), 600, later.since + timedelta(seconds=590)) == 10
    reporter.remind(resource().metadata, (later,), 600, later.since + timedelta(seconds=600))
    assert recorder.reasons == ["DetachmentUnconfirmed"] * 2
