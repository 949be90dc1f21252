"""DaemonSets whose pods came to super nodes while no webhook server was there are corrected at their templates.

That replaces their pods, by their own update strategy, so one is corrected after the other. One whose owner takes the
correction back is left alone, with an Event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from api.elasticity import affinity_to_set
from controllers.elasticity.pods import Pod, spec_of
from controllers.elasticity.sources import Sources
from controllers.manager import Context
from kube.errors import Backoff, Conflict, KubeError, NotFound
from kube.event_recorder import Regarding
from kube.resources import DAEMON_SETS
from kube.selectors import REQUIRED
from kube.types import ObjectMeta, OwnerReference, Toleration, Value, complete
from runtime import time

KEPT_OFF = "drawbridge.io/kept-off-super-nodes"
"""The annotation of a DaemonSet whose template the leader has corrected once."""
LONGEST_ROLLOUT = 600.0
"""Seconds after which the next DaemonSet is corrected, although the last one has not replaced all its pods."""
PAUSES = Backoff(base=60.0, cap=3600.0, jitter=0.0)
"""Between two looks at a DaemonSet that has pods there and was not corrected."""

log = structlog.stdlib.get_logger(__name__)


class _TemplateSpec(Value, frozen=True):
    tolerations: tuple[Toleration, ...] = ()
    affinity: dict[str, Any] | None = None


class _Template(Value, frozen=True):
    spec: _TemplateSpec = _TemplateSpec()


class _Spec(Value, frozen=True):
    template: _Template = _Template()


class _Status(Value, frozen=True):
    observed_generation: int = 0
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_unavailable: int = 0


class _Metadata(ObjectMeta, frozen=True):
    generation: int = 0


class DaemonSet(Value, frozen=True):
    metadata: _Metadata = _Metadata()
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
        spec = self.spec.template.spec
        return affinity_to_set({} if spec.affinity is None else {"affinity": spec.affinity}, spec.tolerations)


complete(DaemonSet)


@dataclass(frozen=True)
class Owner:
    """Of a pod."""

    namespace: str
    reference: OwnerReference


def owners_on(pods: Iterable[Pod], super_nodes: frozenset[str]) -> dict[str, Owner]:
    """By uid, the DaemonSets that have pods on *super_nodes*, or pending for one of them."""
    return {
        owner.uid: Owner(pod.metadata.namespace, owner)
        for pod in pods
        if pod.active and pod.daemon and (owner := pod.metadata.controller)
        if not super_nodes.isdisjoint((pod.node_name, *_meant_for(pod)))
    }


def _meant_for(pod: Pod) -> Iterator[str]:
    """The nodes that a pending pod of a DaemonSet names in its affinity."""
    if pod.unbound is None:
        return
    of_node = (spec_of(pod).get("affinity") or {}).get("nodeAffinity") or {}
    for term in (of_node.get(REQUIRED) or {}).get("nodeSelectorTerms") or ():
        for each in term.get("matchFields") or ():
            if each.get("key") == "metadata.name":
                yield from each.get("values") or ()


@dataclass
class DaemonSetCorrector:
    """*clock* is monotonic."""

    context: Context
    sources: Sources
    clock: Callable[[], float] = time.monotonic
    _rollout: tuple[Owner, float] | None = None
    """What was corrected last, and when."""
    _looked: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By uid, how often a DaemonSet was looked at, and when it is next."""
    _reported: set[tuple[str, str]] = field(default_factory=set)

    def reconcile(self) -> None:
        """Correct one DaemonSet at most, when the last one has been rolled out. LeadershipLost."""
        if not self.sources.settings().patch_daemon_sets or self._is_rolling_out():
            return
        due = owners_on(self._daemon_pods(), self.sources.nodes().names)
        now = self.clock()
        self._looked = {uid: looked for uid, looked in self._looked.items() if uid in due}
        self._reported = {reported for reported in self._reported if reported[0] in due}
        for uid, owner in sorted(due.items()):
            if self._looked.get(uid, (0, now))[1] <= now and self._corrected(owner):
                return

    def _daemon_pods(self) -> Iterator[Pod]:
        pods, names = self.sources.pods, self.sources.nodes().names
        if not names:
            return
        yield from pods.unbound()
        for name in names:
            yield from pods.on_node(name)

    def _is_rolling_out(self) -> bool:
        if self._rollout is None:
            return False
        owner, since = self._rollout
        if self.clock() - since < LONGEST_ROLLOUT:
            found = self._read(owner)
            if found is not None and not found.is_rolled_out:
                return True
        self._rollout = None
        return False

    def _corrected(self, owner: Owner) -> bool:
        """Whether its pods are being replaced now. One that needs nothing, or was refused, is looked at again later."""
        found = self._read(owner)
        affinity = found.affinity_to_set if found else None
        uid = owner.reference.uid
        count = self._looked.get(uid, (0, 0.0))[0] + 1
        self._looked[uid] = count, self.clock() + PAUSES.delay(count)
        if found is None or affinity is None:
            return False
        if KEPT_OFF in found.metadata.annotations:
            self._event(owner, "DaemonSetOnSuperNodes", TAKEN_BACK, "Warning")
            return False
        try:
            self._write(found, affinity)
        except (Conflict, NotFound):
            del self._looked[uid]
            return False
        except KubeError as error:
            log.warning("DaemonSet not corrected", **_keys(owner), error=str(error))
            self._event(owner, "DaemonSetOnSuperNodes", f"{REFUSED}: {error}", "Warning")
            return False
        self._rollout = owner, self.clock()
        log.info("DaemonSet kept off super nodes", **_keys(owner))
        self._event(owner, "KeptOffSuperNodes", CORRECTED, "Normal")
        return True

    def _read(self, owner: Owner) -> DaemonSet | None:
        """None when it is gone, is none of apps/v1, or cannot be read now."""
        try:
            found = self.context.client.get(
                DAEMON_SETS, owner.reference.name, owner.namespace, type=DaemonSet
            )
        except NotFound:
            return None
        except (KubeError, msgspec.MsgspecError) as error:
            log.warning("DaemonSet not read", **_keys(owner), error=str(error))
            return None
        return found if found.metadata.uid == owner.reference.uid else None

    def _write(self, found: DaemonSet, affinity: Mapping[str, Any]) -> None:
        at = found.metadata
        metadata = {"uid": at.uid, "resourceVersion": at.resource_version, "annotations": {KEPT_OFF: "true"}}
        patch = {"metadata": metadata, "spec": {"template": {"spec": {"affinity": affinity}}}}
        self.context.client.patch(DAEMON_SETS, at.name, patch, at.namespace, type=msgspec.Raw)

    def _event(self, owner: Owner, reason: str, message: str, type: Any) -> None:  # noqa: A002
        """Once, as long as it has pods there."""
        if (reported := (owner.reference.uid, message)) in self._reported:
            return
        self._reported.add(reported)
        about = Regarding(
            DAEMON_SETS.api_version, "DaemonSet", owner.reference.name, owner.namespace, owner.reference.uid
        )
        self.context.recorder.event(about, reason, message, type=type)


CORRECTED = (
    "It had pods on super nodes, which are not for DaemonSets: its template now has node affinity that keeps it off"
    " them, and its pods are replaced"
)
TAKEN_BACK = (
    "It has pods for super nodes, which are not for DaemonSets. Its template was corrected once, and the correction"
    " was taken back: add the node affinity where it is written"
)
REFUSED = "It has pods for super nodes, which are not for DaemonSets, and its template could not be corrected"


def _keys(owner: Owner) -> dict[str, str]:
    return {"namespace": owner.namespace, "name": owner.reference.name, "uid": owner.reference.uid}
