"""A forecast of a rollout: the order is what the reconciler then does against the API server."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from api.ingress_daemonset.status import Phase
from api.ingress_daemonset.template import EXCLUDED
from controllers.ingress_daemonset.children import STUCK, Kind
from controllers.ingress_daemonset.detachment import deployment_mark_of
from controllers.ingress_daemonset.forecast import Forecast, Step, forecast
from controllers.ingress_daemonset.object_cache import RESOURCES
from controllers.ingress_daemonset.planner import plan
from controllers.ingress_daemonset.rollout import Snapshot
from controllers.ingress_daemonset.status import ASSUMED, Pace, pace_of
from tests.ingress_daemonset_leader import Leader, settled
from tests.ingress_daemonset_rolling import Rolling
from tests.ingress_daemonset_world import COMPLETE, DETACHED, TIMESTAMP, complete, is_ready, merge, raw_node

Raw = dict[str, Any]
PODS = 40.0
"""Seconds that pods take in these tests."""
BY_NODE = {"annotateNodeToDetach": {"key": DETACHED, "value": "true", "gracePeriodSeconds": 10}}
BY_DEPLOYMENT = {"annotateDeploymentToDetach": {"gracePeriodSeconds": 20}}
BY_TIMESTAMP = BY_NODE | {
    "waitForDetachmentByAnnotatedTimestamp": {"key": TIMESTAMP, "gracePeriodSeconds": 30}
}
NOT_READY = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
CORDONED = {"spec": {"unschedulable": True}}
LEFT_OUT = {"metadata": {"labels": {EXCLUDED: ""}}}
BY_OTHERS = {"metadata": {"annotations": {DETACHED: "true"}}}


def outdated(*names: str, troubles: Mapping[str, Raw] | None = None, **spec: Any) -> Leader:
    """At rest, before another template is rolled out, with *troubles* of nodes."""
    here = settled(*names, **spec)
    for name, patch in (troubles or {}).items():
        raw = here.api.objects["Node", name]
        merge(raw, patch)
        here.api.put("Node", raw)
    here.retemplate("proxy:2")
    return here


def snapshot_of(here: Leader) -> Snapshot:
    resource = next(iter(here.cache.list("IngressDaemonSet")))
    deployments = here.cache.in_namespace("Deployment", "edge")
    return Snapshot(resource, here.cache.list("Node"), deployments, here.now())


def foreseen(here: Leader) -> Forecast:
    return forecast(snapshot_of(here), Pace(PODS))


class Rollout:
    """What the reconciler does, while pods and the program that detaches nodes take their time."""

    def __init__(self, here: Leader) -> None:
        self.here, self.steps = here, dict[str, Step]()
        deployments = self._of("Deployment").items()
        self._running = {name: raw["spec"]["template"] for name, raw in deployments}
        self._available_at: dict[str, float] = {}
        self._detached = set[str]()

    def run(self) -> tuple[Step, ...]:
        """Until nothing happens any more."""
        for _ in range(1000):
            due = self.here.look()
            self._note()
            self._confirm()
            self._run_pods()
            is_over = not self.here.api.news
            self.here.api.deliver()
            waits = [at - self.here.clock() for at in self._available_at.values()]
            waits += [due] if due is not None and due < 3600 else []
            if is_over and not waits:
                return tuple(sorted(self.steps.values(), key=lambda each: (each.begins_at, each.node)))
            self.here.clock.advance(max(0.0, min(waits, default=0.0)) if is_over else 0.0)
        raise AssertionError("it does not come to rest")

    def _of(self, kind: Kind) -> dict[str, Raw]:
        found = self.here.api.fake.list(RESOURCES[kind])
        for raw in found:
            raw["metadata"].setdefault("annotations", {})
        return {raw["metadata"]["name"]: raw for raw in found}

    def _note(self) -> None:
        now = self.here.now()
        for raw in self._of("Deployment").values():
            template = raw["spec"]["template"]["spec"]
            mark = deployment_mark_of(raw["metadata"]["annotations"])
            step = self.steps.get(template["nodeName"]) or (
                Step(template["nodeName"], mark.at) if mark else None
            )
            if step is not None:
                is_replaced = template["containers"][0]["image"] == "proxy:2"
                replaced_at = step.replaced_at or (now if is_replaced else None)
                ends_at = step.ends_at or (None if mark else now)
                self.steps[step.node] = Step(step.node, step.begins_at, replaced_at, ends_at)

    def _confirm(self) -> None:
        """As the program does that detaches nodes, at once."""
        for name, raw in self._of("Node").items():
            if DETACHED not in raw["metadata"]["annotations"]:
                self._detached.discard(name)
            elif name not in self._detached:
                self._detached.add(name)
                note = {"metadata": {"annotations": {TIMESTAMP: self.here.now().isoformat()}}}
                self.here.api.edit("Node", name, note)

    def _run_pods(self) -> None:
        nodes = self._of("Node")
        for name, raw in self._of("Deployment").items():
            template = raw["spec"]["template"]
            node = nodes[template["spec"]["nodeName"]]
            if template != self._running[name] and is_ready(node):
                at = self._available_at.setdefault(name, self.here.clock() + PODS)
                if at > self.here.clock():
                    continue
                del self._available_at[name]
                self._running[name] = template
            is_seen = raw["status"]["observedGeneration"] == raw["metadata"]["generation"]
            if template == self._running[name] and not is_seen:
                complete(raw)
                self.here.api.put("Deployment", raw)


BUDGETS = st.sampled_from([1, 2, 3, "25%", "50%", "100%"])
WAYS = st.sampled_from([{}, BY_NODE, BY_DEPLOYMENT, BY_TIMESTAMP, BY_NODE | BY_DEPLOYMENT])
TROUBLES = st.sampled_from([NOT_READY, CORDONED, LEFT_OUT, BY_OTHERS])
NAMES = [f"n{each}" for each in range(9)]


@settings(max_examples=12, deadline=None)
@given(
    count=st.integers(1, 9),
    rolling=st.one_of(
        st.builds(lambda budget, way: {"maxUnavailableNodes": budget, **way}, BUDGETS, WAYS),
        st.builds(lambda budget: {"maxDegradedNodes": budget}, BUDGETS),
    ),
    attach_grace=st.sampled_from([0, 15]),
    ports=st.sampled_from([[], [10080]]),
    troubles=st.dictionaries(st.sampled_from(NAMES), TROUBLES, max_size=3),
)
@example(2, {"maxUnavailableNodes": 1, **BY_TIMESTAMP}, 0, [], {"n0": CORDONED, "n1": BY_OTHERS})
def test_the_forecast_has_the_nodes_in_the_order_in_which_the_reconciler_takes_them(
    count: int, rolling: Raw, attach_grace: int, ports: list[int], troubles: dict[str, Raw]
) -> None:
    names, rolling = NAMES[:count], {"attachGracePeriodSeconds": attach_grace, **rolling}
    present = {name: patch for name, patch in troubles.items() if name in names}
    here = outdated(*names, troubles=present, rolling=rolling, healthCheckNodePorts=ports)

    ahead = foreseen(here)
    happened = Rollout(here).run()

    assert [each.node for each in ahead.steps] == [each.node for each in happened]
    for foretold, real in zip(ahead.steps, happened, strict=True):
        for moment in ("begins_at", "replaced_at", "ends_at"):
            at, then = getattr(foretold, moment), getattr(real, moment)
            assert (at is None) == (then is None), f"{moment} of {real.node}"
            # A reconcile is paced, and health checkers are read once a second.
            assert at is None or abs(then - at) < timedelta(seconds=3 * len(ahead.waves)), (
                f"{moment} of {real.node}"
            )
    ended = {each.node for each in happened if each.ends_at}
    assert [each.node for each in ahead.left] == [each for each in names if each not in ended]


def test_waves_are_the_nodes_that_begin_together_and_a_turn_takes_the_grace_and_the_pods() -> None:
    here = outdated(*NAMES[:5], rolling={"maxUnavailableNodes": 2, **BY_NODE})
    ahead = foreseen(here)

    assert [[each.node for each in wave] for wave in ahead.waves] == [["n0", "n1"], ["n2", "n3"], ["n4"]]
    assert (ahead.nodes, ahead.limit, ahead.left, ahead.remaining) == (5, 2, (), 0)
    first, turn = ahead.steps[0], timedelta(seconds=10 + PODS)
    assert first == Step("n0", here.now(), here.now() + timedelta(seconds=10), here.now() + turn)
    assert ahead.ends_at == here.now() + 3 * turn


def test_a_forecast_in_the_middle_keeps_the_times_that_were() -> None:
    here = outdated(*NAMES[:3], rolling={"maxUnavailableNodes": 1, **BY_NODE})
    began = here.now()
    for _ in range(2):
        here.look()
        here.api.deliver()
    here.clock.advance(12)
    here.look()
    here.api.deliver()
    here.clock.advance(5)

    first = foreseen(here).steps[0]
    replaced = began + timedelta(seconds=12)
    assert (first.node, first.begins_at, first.replaced_at) == ("n0", began, replaced)
    assert first.ends_at == replaced + timedelta(seconds=PODS)


def test_pods_that_are_late_are_expected_now_and_stuck_ones_never() -> None:
    here = outdated(*NAMES[:2], rolling={"maxUnavailableNodes": 1, **BY_NODE}, progressDeadlineSeconds=300)
    for seconds in (0, 0, 12, 100):
        here.clock.advance(seconds)
        here.look()
        here.api.deliver()

    assert foreseen(here).steps[0].ends_at == here.now()
    here.clock.advance(300)
    stuck = {"conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]}
    here.api.change("Deployment", "edge/web-n0", {"status": stuck})
    ahead = foreseen(here)
    assert ahead.ends_at is None
    assert [(each.node, each.phase) for each in ahead.left] == [
        ("n0", Phase.UPDATING),
        ("n1", Phase.OUTDATED),
    ]


def test_nothing_is_foreseen_at_rest_while_paused_or_at_the_end_of_the_object() -> None:
    here = settled(*NAMES[:2], rolling={"maxUnavailableNodes": 1})
    assert foreseen(here) == Forecast(2, 1)

    here.retemplate("proxy:2")
    here.api.change("IngressDaemonSet", "edge/web", {"spec": {"paused": True}})
    paused = foreseen(here)
    assert paused.steps == ()
    assert {each.phase for each in paused.left} == {Phase.OUTDATED}

    here.api.end("IngressDaemonSet", "edge/web")
    here.api.deliver()
    assert foreseen(here) == Forecast(0, 0)


def test_a_bounded_forecast_estimates_the_rest_as_a_status_does() -> None:
    here = outdated(*NAMES, rolling={"maxUnavailableNodes": 1, **BY_NODE})
    whole = foreseen(here)
    part = forecast(snapshot_of(here), Pace(PODS), plans=20)

    assert (
        part.steps == whole.steps[: len(part.steps)] or part.steps[:-1] == whole.steps[: len(part.steps) - 1]
    )
    assert 0 < part.remaining < len(NAMES)
    assert part.ends_at is not None
    assert whole.ends_at is not None
    assert abs(part.ends_at - whole.ends_at) <= timedelta(seconds=10 + PODS)
    begun = forecast(snapshot_of(here), Pace(PODS), plans=1)
    status = plan(snapshot_of(here)).status
    assert status
    assert status.rollout
    assert begun.ends_at == status.rollout.estimated_end


@pytest.mark.parametrize("detached", [1, 0])
def test_the_pace_of_pods_is_that_of_their_last_updates_and_assumed_before(detached: int) -> None:
    """By one clock, that of the leader."""
    rolling = {"maxUnavailableNodes": detached, "annotateNodeToDetach": None}
    here = Rolling(*NAMES[:3], pods=35, rolling=rolling, minReadySeconds=7)

    def pace() -> Pace:
        return pace_of(here.world.plan().rollouts)

    assert pace() == Pace(ASSUMED + 7)
    here.roll_out()
    here.finish()
    measured = pace()
    assert 35 <= measured.pods <= 42
    assert (measured.measured, measured.waits <= 3) == (3, True)
    here.world.taint("n1", "karpenter.sh/disrupted")
    here.turns(50)
    here.world.taint("n1")
    here.turns(50)
    assert pace() == measured, "a drain is no update"
    here.world.raw["spec"]["minReadySeconds"] = 100
    assert pace().pods == 100


def with_canary(pause: Raw) -> Leader:
    rolling = {"maxUnavailableNodes": 2, "canary": {"nodes": 1, "pause": pause}, **BY_NODE}
    return outdated(*NAMES[:5], rolling=rolling)


def test_a_canary_that_a_person_promotes_takes_no_time_in_a_forecast() -> None:
    ahead = foreseen(with_canary({}))

    assert [len(wave) for wave in ahead.waves] == [1, 2, 2]
    assert [each.seconds for each in ahead.pauses] == [None]
    assert ahead.left == ()


def test_a_canary_that_was_promoted_before_has_no_pause_ahead() -> None:
    here = Rolling(*NAMES[:5], rolling={"maxUnavailableNodes": 1, "canary": {"nodes": 1}, **BY_NODE})
    here.roll_out()
    here.play(lambda: here.reason == "CanaryPaused")
    here.promote()
    here.play(lambda: len(here.updated()) == 3)

    ahead = forecast(here.world.snapshot(), Pace(PODS))
    assert (len(ahead.steps), ahead.pauses) == (3, ())


def test_a_node_that_has_its_pods_again_is_trusted_in_time_though_the_status_does_not_say_so_yet() -> None:
    here = Rolling(*NAMES[:3], rolling={"maxUnavailableNodes": 1, **BY_NODE})
    here.roll_out()
    here.play(lambda: here.updated() and not here.world.off())
    held = here.world.deployments["web-n0"]["status"]
    held["availableReplicas"] = 0
    here.turn()
    assert here.status["failures"]["nodes"].keys() == {"n0"}
    held["availableReplicas"] = 2

    ahead = forecast(here.world.snapshot(), Pace(PODS), plans=100)
    assert (ahead.remaining, ahead.left) == (0, ())


def test_pods_that_were_evicted_from_a_node_are_expected_there_again() -> None:
    here = Rolling(*NAMES[:3], rolling={"maxUnavailableNodes": 1, **BY_NODE})
    here.roll_out()
    here.play(lambda: here.updated() and not here.world.off())
    here.status["drainRequests"] = {"n0": here.world.now.isoformat()}
    here.world.set_available("n0", 0)

    ahead = forecast(here.world.snapshot(), Pace(PODS))
    assert ahead.left == ()


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.OUTDATED])
def test_the_first_pods_of_a_new_node_are_expected_unless_they_have_not_started_in_time(phase: Phase) -> None:
    here = Rolling("n1", "n3", rolling={"maxUnavailableNodes": 1, **BY_NODE, "waves": {"byLabel": "zone"}})
    for name in ("n1", "n3"):
        here.label(name, zone="a")
    if phase is Phase.OUTDATED:  # it gets the former template first, and is of the last wave
        here.roll_out()
        here.play(lambda: here.updated() and not here.world.off())
    here.world.nodes["n2"] = raw_node("n2")
    here.turn()
    assert here.world.image_on("n2") == "proxy:1"
    assert forecast(here.world.snapshot(), Pace(PODS)).left == ()

    here.world.deployments["web-n2"]["status"] = {"conditions": [COMPLETE | {"reason": STUCK}]}
    left = {each.node: each.phase for each in forecast(here.world.snapshot(), Pace(PODS)).left}
    assert left.get("n2") == phase


def test_a_window_that_opens_again_and_again_for_nothing_is_not_followed() -> None:
    window = {"start": "03:00", "durationSeconds": 3600}
    here = outdated(*NAMES[:2], rolling={"maxUnavailableNodes": 1, **BY_TIMESTAMP, "window": window})
    here.api.change("Node", "n0", {"metadata": {"annotations": {TIMESTAMP: "yesterday", DETACHED: "true"}}})
    here.api.change("Node", "n1", NOT_READY)

    ahead = forecast(snapshot_of(here), Pace(PODS), plans=200)
    assert (ahead.remaining, [each.node for each in ahead.left]) == (0, ["n0", "n1"])


def test_a_deadline_that_is_further_away_than_a_clock_reaches_is_not_waited_for() -> None:
    window, pod = {"start": "03:00", "durationSeconds": 3600}, {"terminationGracePeriodSeconds": 2**63 - 1}
    here = Rolling("n1", "n2", rolling={"window": window}, pod=pod)
    here.roll_out()
    here.play(here.updated)
    merge(here.world.nodes["n1"], NOT_READY)

    assert [each.node for each in forecast(here.world.snapshot(), Pace(PODS)).left] == ["n1"]
