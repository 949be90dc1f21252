"""Before the feature or the release goes, no node stays detached: the leader attaches them, or the Job does."""

from __future__ import annotations

from datetime import timedelta, timezone
from typing import Any

import pytest

from api.health_checks import SCHEDULED
from api.ingress_daemonset import DETACHED_BY, PAUSED_UNTIL, TO_BE_UPDATED
from controllers.ingress_daemonset import attach_nodes
from controllers.ingress_daemonset.attach_nodes import Patience, attach_all
from controllers.ingress_daemonset.controller import LOOK, Resync
from dev.fake_api import refusal
from kube.types import rfc3339
from settings import IngressDaemonSetSettings
from tests.fakes import FakeClock
from tests.ingress_daemonset_leader import KEY, Leader, outdated, settled, with_nodes
from tests.ingress_daemonset_rolling import NODES, Rolling
from tests.ingress_daemonset_world import DETACHED

Raw = dict[str, Any]
ROLLING: Raw = {
    "maxUnavailableNodes": 2,
    "annotateNodeToDetach": {"key": DETACHED, "value": "true", "gracePeriodSeconds": 60},
    "confirm": "off",
}


def suspend(here: Rolling) -> None:
    until = rfc3339(here.world.now + timedelta(seconds=900))
    here.annotate(**{PAUSED_UNTIL: until})


def test_in_mid_rollout_all_nodes_are_attached_and_none_begins_until_it_has_expired() -> None:
    here = Rolling()
    here.roll_out()
    here.play(lambda: here.world.off())
    here.world.later(15)
    here.turn()
    suspend(here)
    here.turns(20)

    assert here.world.off() == set()
    assert here.images != {"proxy:2"}
    assert here.world.raw["metadata"]["finalizers"] == []
    assert (here.reason, "suspended until" in here.message) == ("Paused", True)
    here.play(lambda: here.images == {"proxy:2"})


def test_a_suspension_until_a_time_of_another_zone_is_shown_in_utc() -> None:
    here = Rolling()
    here.roll_out()
    until = here.world.now + timedelta(minutes=15)
    here.annotate(**{PAUSED_UNTIL: until.astimezone(timezone(timedelta(hours=2))).isoformat()})
    here.turns(3)

    assert f"suspended until {rfc3339(until)}" in here.message


def test_the_finalizer_that_the_job_took_away_stays_away_and_nodes_are_attached_without_it() -> None:
    here = Rolling()
    here.roll_out()
    here.play(lambda: here.world.off())
    suspend(here)
    here.world.raw["metadata"]["finalizers"] = []

    for _ in range(20):
        here.turn()
        assert here.world.raw["metadata"]["finalizers"] == []
    assert here.world.off() == set()


def test_a_node_that_is_detached_to_be_drained_is_attached_too() -> None:
    here = Rolling()
    here.world.taint("n1", "karpenter.sh/disrupted")
    here.play(lambda: here.world.off() == {"n1"})
    suspend(here)
    here.turns(10)

    assert here.world.off() == set()
    assert here.world.raw["metadata"]["finalizers"] == []


def begun(*names: str) -> Leader:
    """A rollout in which nodes are detached."""
    here = outdated(*(names or NODES), rolling=ROLLING)
    here.settle(until=lambda: len(here.off()) == 2)
    return here


def marked(here: Leader) -> list[str]:
    marks = {DETACHED, DETACHED_BY, TO_BE_UPDATED}
    return [key for (_, key), raw in here.api.objects.items() if marks & {*raw["metadata"]["annotations"]}]


@pytest.mark.parametrize("to", [True, False])
def test_the_leader_notices_at_once_that_the_feature_was_switched(to: bool) -> None:
    enabled, queued, clock = [not to], list[float](), FakeClock()

    def settings() -> IngressDaemonSetSettings:
        return IngressDaemonSetSettings.model_validate({"enabled": enabled[-1], "resyncPeriod": "1h"})

    resync = Resync(settings, [queued.append], clock)
    due = resync.reconcile("all")
    assert (queued, due) == ([], LOOK)

    enabled.append(to)
    resync.reconcile("all")
    assert queued == [0]

    for _ in range(3600):
        clock.advance(1)
        resync.reconcile("all")
    assert queued == [0, 1800], "once per period, too"


# The Job


class Job:
    def __init__(self, here: Leader) -> None:
        self.here, self.began = here, here.clock()

    def run(self) -> str:
        client, here = self.here.api.fake.client("drawbridge-attach"), self.here
        return attach_all(client, Patience(), clock=here.clock, sleep=self.sleep, now=here.now)

    def sleep(self, seconds: float) -> None:
        self.here.clock.advance(seconds)
        self.here.api.deliver()

    @property
    def took(self) -> float:
        return self.here.clock() - self.began


@pytest.mark.parametrize("seconds", [0, 100])
def test_without_a_leader_the_job_attaches_them(seconds: int) -> None:
    here = begun()
    here.clock.advance(seconds)
    here.look()
    job = Job(here)

    assert job.run() == ""
    assert marked(here) == []
    assert Patience().leader <= job.took < Patience().all
    assert here.api.objects["IngressDaemonSet", KEY]["metadata"]["finalizers"] == []


def test_the_leader_does_not_mark_again_what_the_job_attached_of_a_node_that_has_left() -> None:
    """Its grace is longer than the leader has for the Job."""
    on_deployment = {"key": "example.com/detach", "gracePeriodSeconds": 150}
    rolling = {"maxUnavailableNodes": 1, "annotateDeploymentToDetach": on_deployment, "confirm": "off"}
    here, key = settled("n1", rolling=rolling, healthCheckNodePorts=[10080]), "edge/web-n1"

    def mark() -> Raw:
        annotations: Raw = here.api.objects["Deployment", key]["metadata"]["annotations"]
        return {each: annotations[each] for each in (on_deployment["key"], SCHEDULED) if each in annotations}

    here.api.remove("Node", "n1")
    here.steps(5)
    assert '"leaving":true' in mark()[SCHEDULED]

    class Leading(Job):
        def sleep(self, seconds: float) -> None:
            self.here.look()
            super().sleep(seconds)

    job = Leading(here)
    assert job.run() == ""
    assert job.took < Patience().all
    assert mark() == {}

    here.steps(1200)
    assert ("Deployment", key) not in here.api.objects, "after the suspension"


def test_annotations_of_others_stay() -> None:
    here = begun("n1", "n2", "n3")
    here.api.change("Node", "n3", {"metadata": {"annotations": {DETACHED: "by hand"}}})

    assert Job(here).run() == ""
    assert here.off() == {"n3"}


@pytest.mark.parametrize("is_installed", [True, False])
def test_where_there_is_nothing_to_do_it_ends_at_once(is_installed: bool) -> None:
    here = Leader(with_nodes())
    here.api.remove("IngressDaemonSet", KEY)
    if not is_installed:
        here.api.fake.fault = lambda call: refusal(404, "NotFound", "no such kind")
    job = Job(here)

    assert job.run() == ""
    assert job.took == 0


def test_an_api_server_that_fails_for_a_while_is_asked_again_and_what_is_left_is_named() -> None:
    here = begun()
    failing = [refusal(503, "ServiceUnavailable", "down")] * 3
    inner = here.api.fake.fault

    def fault(call: Any) -> Any:
        if failing:
            return failing.pop()
        if call.method == "PATCH" and "/nodes/" in call.path:
            return refusal(403, "Forbidden", "a policy")
        return inner(call)

    here.api.fake.fault = fault
    left = Job(here).run()

    assert left.startswith("still detached: nodes n")
    assert set(marked(here)) == here.off()


def test_the_program_says_what_is_left_and_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(attach_nodes.Client, "from_environment", classmethod(lambda cls: None))
    seen = []

    def fake(_client: object, patience: Patience) -> str:
        seen.append(patience)
        return "still detached: nodes n1"

    monkeypatch.setattr(attach_nodes, "attach_all", fake)
    assert attach_nodes.main(["--settle=8s", "--leader=30s", "--within=1m"]) == 1
    assert seen == [Patience(8.0, 30.0, 60.0)]
    message = capsys.readouterr().err
    assert "nodes n1" in message
    assert "--no-hooks" in message
    monkeypatch.setattr(attach_nodes, "attach_all", lambda *_: "")
    assert attach_nodes.main([]) == 0
