"""DaemonSets whose pods came to super nodes while no webhook server was there are corrected at their templates.

That replaces their pods, by their own update strategy, so one is corrected after the other. One whose owner takes the
correction back is left alone, with an Event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import msgspec

from api.elasticity import affinity_to_set, is_injected
from controllers.elasticity.pods import Pod, spec_of
from controllers.elasticity.sources import Sources
from controllers.manager import Context
from kube.errors import Backoff, Conflict, KubeError, NotFound
from kube.event_recorder import Regarding, Type
from kube.resources import DAEMON_SETS
from kube.selectors import REQUIRED
from kube.types import ObjectMeta, Toleration, Value
from runtime import time

KEPT_OFF = "drawbridge.io/kept-off-super-nodes"
"""The annotation of a DaemonSet whose template the leader has corrected once."""
LONGEST_ROLLOUT = 600.0
"""Seconds after which the next DaemonSet is corrected, although the last one has not replaced all its pods."""
PAUSES = Backoff(base=60.0, cap=3600.0, jitter=0.0)
"""Between two looks at a DaemonSet that has pods there and was not corrected."""


class _Template(Value, frozen=True):
    """*spec* is raw."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}


class _Spec(Value, frozen=True):
    template: _Template = _Template()


class _Status(Value, frozen=True):
    observed_generation: int = 0
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_unavailable: int = 0


class DaemonSet(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def is_rolled_out(self) -> bool:
        status = self.status
        seen = status.observed_generation >= self.metadata.generation
        updated = status.updated_number_scheduled >= status.desired_number_scheduled
        return seen and updated and not status.number_unavailable

    @property
    def affinity_to_set(self) -> dict[str, Any] | None:
        """None for one that the provider injects beside the pods of super nodes, too."""
        template = self.spec.template
        tolerations = msgspec.convert(template.spec.get("tolerations") or (), tuple[Toleration, ...])
        return None if is_injected(template.metadata) else affinity_to_set(template.spec, tolerations)


def _meant_for(pod: Pod) -> Iterator[str]:
    """The nodes that a pending pod of a DaemonSet names in its affinity."""
    of_node = (spec_of(pod).get("affinity") or {}).get("nodeAffinity") or {}
    for term in (of_node.get(REQUIRED) or {}).get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name":
                yield from field.get("values") or ()


class DaemonSetCorrector:
    """*clock* is monotonic, in seconds."""

    def __init__(
        self, context: Context, sources: Sources, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._recorder = context.client, context.recorder
        self._sources, self._clock = sources, clock
        self._looked: dict[Regarding, tuple[int, float]] = {}
        """How often each was looked at, and when it is next."""
        self._reported: set[tuple[Regarding, str]] = set()
        self._rollout: tuple[Regarding, float] | None = None

    def reconcile(self) -> None:
        """Correct one at most, when the last one has been rolled out. KubeError when that cannot be read."""
        if self._is_rolling_out():
            return
        due, now = self._due(), self._clock()
        self._looked = {about: looked for about, looked in self._looked.items() if about in due}
        self._reported = {reported for reported in self._reported if reported[0] in due}
        for about in sorted(due, key=lambda each: each.uid):
            if self._looked.get(about, (0, now))[1] <= now and self._corrected(about):
                return

    def _due(self) -> set[Regarding]:
        """Those that have pods on super nodes, or pending for one of them; a pod can name one that is not there."""
        pods, names = self._sources.pods, self._sources.nodes().names
        there = chain(pods.unbound(), *map(pods.on_node, names)) if names else ()
        return {
            Regarding(DAEMON_SETS.api_version, "DaemonSet", owner.name, pod.metadata.namespace, owner.uid)
            for pod in there
            if pod.daemon and (owner := pod.metadata.controller)
            if not names.isdisjoint((pod.node_name, *_meant_for(pod)))
        }

    def _is_rolling_out(self) -> bool:
        if self._rollout is None:
            return False
        about, since = self._rollout
        if self._clock() - since < LONGEST_ROLLOUT:
            found = self._read(about)
            if found is not None and not found.is_rolled_out:
                return True
        self._rollout = None
        return False

    def _corrected(self, about: Regarding) -> bool:
        """Whether its pods are being replaced now. One that needs nothing, or was refused, is looked at again later."""
        found = self._read(about)
        affinity = found.affinity_to_set if found else None
        count = self._looked.get(about, (0, 0.0))[0] + 1
        self._looked[about] = count, self._clock() + PAUSES.delay(count)
        if found is None or affinity is None:
            return False
        if KEPT_OFF in found.metadata.annotations:
            self._event(about, "DaemonSetOnSuperNodes", TAKEN_BACK, "Warning")
            return False
        at = found.metadata
        metadata = {**at.guard, "annotations": {KEPT_OFF: "true"}}
        patch = {"metadata": metadata, "spec": {"template": {"spec": {"affinity": affinity}}}}
        try:
            self._client.patch(DAEMON_SETS, at.name, patch, at.namespace, type=msgspec.Raw)
        except (Conflict, NotFound):
            del self._looked[about]
            return False
        except KubeError as error:
            self._event(about, "DaemonSetOnSuperNodes", f"{REFUSED}: {error}", "Warning")
            return False
        self._rollout = about, self._clock()
        self._event(about, "KeptOffSuperNodes", CORRECTED, "Normal")
        return True

    def _read(self, about: Regarding) -> DaemonSet | None:
        """None when it is gone, or is none of apps/v1. KubeError."""
        found = self._client.find(DAEMON_SETS, about.name, about.namespace, type=DaemonSet)
        return found if found and found.metadata.uid == about.uid else None

    def _event(self, about: Regarding, reason: str, message: str, type: Type) -> None:  # noqa: A002
        """Once, as long as it has pods there."""
        if (reported := (about, message)) not in self._reported:
            self._reported.add(reported)
            self._recorder.event(about, reason, message, type=type)


CORRECTED = (
    "It had pods on super nodes, which are not for DaemonSets: its template now has node affinity that keeps it off"
    " them, and its pods are replaced"
)
TAKEN_BACK = (
    "It has pods for super nodes, which are not for DaemonSets. Its template was corrected once, and the correction"
    " was taken back: add the node affinity where it is written"
)
REFUSED = "It has pods for super nodes, which are not for DaemonSets, and its template could not be corrected"
