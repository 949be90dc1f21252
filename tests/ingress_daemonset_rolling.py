"""A rollout over nodes whose status is stored, and whose pods take their time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from api.ingress_daemonset import PROMOTE
from api.ingress_daemonset.status import status_of
from api.ingress_daemonset.types import time_of
from controllers.ingress_daemonset.reporter import news
from tests.ingress_daemonset_world import DETACHED, World, raw_resource, stored

NODES = tuple(f"n{number}" for number in range(1, 7))
DETACHING = {
    "maxUnavailableNodes": 2,
    "annotateNodeToDetach": {"key": DETACHED, "value": "true", "gracePeriodSeconds": 10},
}
Raw = dict[str, Any]


def at(text: str) -> datetime:
    """A time of a status."""
    found = time_of(text)
    assert found
    return found


class Rolling:
    """A world whose status is stored, as the leader does it; *pods* take so many seconds."""

    def __init__(self, *nodes: str, pods: float = 20, rolling: Raw | None = None, **spec: Any) -> None:
        self.world = World(raw_resource(rolling=DETACHING | (rolling or {}), **spec), *(nodes or NODES))
        self.pods = pods
        self._starting: dict[str, datetime] = {}
        self.statuses: list[Raw] = []
        self.play(lambda: self.status.get("readyNodes") == len(self.world.nodes))

    @property
    def status(self) -> Raw:
        status: Raw = self.world.raw.get("status", {})
        return status

    @property
    def rollout(self) -> Raw:
        rollout: Raw = self.status.get("rollout", {})
        return rollout

    @property
    def history(self) -> list[Raw]:
        history: list[Raw] = self.status.get("history", [])
        return history

    @property
    def progressing(self) -> Raw:
        """The condition."""
        return next(each for each in self.status["conditions"] if each["type"] == "Progressing")

    @property
    def reason(self) -> str:
        return str(self.progressing["reason"])

    @property
    def message(self) -> str:
        return str(self.progressing["message"])

    @property
    def canary(self) -> Raw:
        canary: Raw = self.status.get("canary", {})
        return canary

    @property
    def images(self) -> set[str]:
        return {self.world.image_on(name) for name in self.world.nodes}

    def updated(self, image: str = "proxy:2") -> set[str]:
        return self.world.updated(image)

    def events(self) -> list[tuple[str, str]]:
        """The reasons and messages of all statuses so far."""
        pairs = zip(self.statuses, self.statuses[1:], strict=False)
        found = (news(status_of(old), status_of(new)) for old, new in pairs)
        return [(reason, message) for each in found for reason, message, _ in each]

    def annotate(self, **annotations: str) -> None:
        self.world.raw["metadata"].setdefault("annotations", {}).update(annotations)

    def promote(self, id_: str = "") -> None:
        self.annotate(**{PROMOTE: id_ or self.canary["id"]})

    def label(self, name: str, **labels: str) -> None:
        self.world.nodes[name]["metadata"]["labels"] = labels

    def turns(self, number: int = 100) -> None:
        for _ in range(number):
            self.turn()

    def turn(self) -> None:
        """A round, its status, and what a few seconds bring; half a minute at most, where all just wait."""
        planned, before = self.world.turn(), self.status
        self.world.raw["status"] = stored(planned)
        self.statuses.append(self.status)
        seconds = 1.0 if planned.actions else 3.0
        if not (planned.actions or self._starting or self.world.query) and self.status == before:
            due = planned.requeue_at or self.world.now
            seconds = max(seconds, min(30.0, (due - self.world.now).total_seconds()))
        self.world.later(seconds)
        self._run_pods()

    def _run_pods(self) -> None:
        for name in self.world.nodes:
            held = self.world.deployments.get(f"web-{name}")
            is_new = (
                held and held.get("status", {}).get("observedGeneration") != held["metadata"]["generation"]
            )
            if not is_new:
                self._starting.pop(name, None)
            elif self._starting.setdefault(name, self.world.now) <= self.world.now - timedelta(
                seconds=self.pods
            ):
                self.world.run_pods(name)

    def play(self, until: Callable[[], Any]) -> None:
        for _ in range(3000):
            if until():
                return
            self.turn()
        raise AssertionError(f"not so in the end: {self.status}")

    def roll_out(self, image: str = "proxy:2") -> None:
        self.world.retemplate(image)
        self.play(lambda: self.rollout)

    def finish(self) -> None:
        self.play(lambda: not self.rollout)


class Rollouts(RuleBasedStateMachine):
    """Templates come at any time, and leaders end. A test makes *here*, and says what is so whatever happens."""

    here: Rolling
    version = 1

    @rule()
    def retemplate(self) -> None:
        self.before_template()
        self.version += 1
        self.here.world.retemplate(self.image)

    @rule(turns=st.integers(1, 30))
    def work(self, turns: int) -> None:
        for _ in range(turns):
            self.turn()

    @rule()
    def lose_the_last_status(self) -> None:
        """As a leader that is killed before it writes, or one with a stale cache."""
        before = self.here.status
        self.turn()
        self.here.world.raw["status"] = before

    @property
    def image(self) -> str:
        return f"proxy:{self.version}"

    def before_template(self) -> None:
        """Note what is so before another template comes."""

    def turn(self) -> None:
        self.here.turn()


STEPS = settings(
    max_examples=12,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
