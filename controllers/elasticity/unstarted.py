"""Pods that super nodes do not take, or accept and never start: sold out, or a subnet without addresses.

Nothing in Kubernetes says so, so time does. Events tell these pods from those that would not start elsewhere, either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import structlog

from controllers.elasticity.patches import Action, Kind
from controllers.elasticity.pods import Observed, Pod
from kube.client import Client
from kube.errors import KubeError
from kube.resources import EVENTS
from kube.types import Value

AT_WORK = frozenset(
    (
        *("Pulling", "Pulled", "InspectFailed", "ErrImageNeverPull"),
        *("Created", "Started", "Failed", "BackOff"),
        *("FailedMount", "FailedAttachVolume"),
    )
)
"""Reasons of a kubelet's Events about images, containers and volumes: a machine has the pod."""
AGAIN = 30.0
"""Seconds after which the Events of a pod are read again."""
LONGEST = 86400.0
LENGTH = 200

log = structlog.stdlib.get_logger(__name__)


class Event(Value, frozen=True):
    type: str = ""
    reason: str = ""
    message: str = ""
    last_timestamp: datetime | None = None
    event_time: datetime | None = None


@dataclass(frozen=True)
class Verdict:
    """Whether something is *at_work* on a pod, by its Events; else what the last warning *said*."""

    at_work: bool
    said: str
    until: float


@dataclass(frozen=True)
class Avoided:
    since: float
    pause: float

    @property
    def until(self) -> float:
        return self.since + self.pause


class Unstarted:
    """What this leader has seen: pods that wait, their Events, and what each key avoids, for longer each time.

    By its own monotonic *clock*: others' stamps may be minutes ahead or behind. Safe to share between threads as long
    as one at a time asks of a pod, and one at a time of what is avoided.
    """

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock
        self._pending, self._bound = Observed(clock), Observed(clock)
        self._verdicts: dict[str, Verdict] = {}
        self._avoided: dict[str, dict[str, Avoided]] = {}
        self.by_uid = self._verdicts, self._pending.since, self._bound.since

    def waited(self, pod: Pod) -> float:
        """Seconds since it was first seen waiting for a super node, or on its own; a new leader begins at 0."""
        return (self._bound if pod.node_name else self._pending).age(pod.metadata.uid)

    def verdict(self, pod: Pod) -> Verdict | None:
        """None while its Events are to be read."""
        found = self._verdicts.get(pod.metadata.uid)
        return found if found and found.until > self._clock() else None

    def look_up(self, pod: Pod) -> float:
        """Read its Events; the seconds until it is worth deciding again."""
        at, selector = pod.metadata, f"involvedObject.uid={pod.metadata.uid}"
        try:
            events = self._client.list(EVENTS, at.namespace, type=Event, field_selector=selector).items
        except KubeError as error:
            log.warning("events not read", **at.about, error=str(error))
            return AGAIN
        self._verdicts[at.uid] = _verdict(events, self._clock() + AGAIN)
        return 0.0

    def remember(self, actions: Iterable[Action], pause: float) -> None:
        """Avoid what did not take the pods that are deleted: for *pause* seconds, or twice as long as the last time."""
        now = self._clock()
        for action in actions:
            if action.kind is not Kind.DELETE:
                continue
            of_key = self._avoided.setdefault(action.pod.key, {})
            before = of_key.get(action.pod.node_name)
            if before is None:
                of_key[action.pod.node_name] = Avoided(now, pause)
            elif before.until <= now:
                of_key[action.pod.node_name] = Avoided(now, min(2 * before.pause, LONGEST))

    def avoided(self, key: str) -> Mapping[str, float]:
        """Each with the seconds since when."""
        now, found = self._clock(), self._avoided.get(key, {})
        return {node: now - each.since for node, each in found.items() if each.until > now}

    def nodes(self) -> set[str]:
        """All that some key avoids."""
        return {node for key in list(self._avoided) for node in self.avoided(key)}

    def forget(self) -> None:
        """What is avoided, but for all that might still fail again in time to be avoided for longer."""
        now = self._clock()
        for key, of_key in list(self._avoided.items()):
            left = {node: each for node, each in of_key.items() if each.until + 2 * each.pause > now}
            self._avoided[key] = left
            if not left:
                del self._avoided[key]


def _verdict(events: Iterable[Event], until: float) -> Verdict:
    def at(event: Event) -> float:
        seen = event.last_timestamp or event.event_time
        return seen.timestamp() if seen else 0.0

    found = sorted(events, key=at)
    warnings = [f"{each.reason}: {each.message}"[:LENGTH] for each in found if each.type == "Warning"]
    return Verdict(any(each.reason in AT_WORK for each in found), warnings[-1] if warnings else "", until)
