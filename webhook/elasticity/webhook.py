"""Gate a pod with LOCAL_REPLICAS until the leader has decided where it belongs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
from prometheus_client import Counter

from api.elasticity import (
    GATE,
    LOCAL_REPLICAS,
    NAME,
    OF_THE_LEADER,
    PATH,
    REASON,
    TKE_SCHEDULER,
    WAITS,
    ignores_rules,
    is_daemon_pod,
    is_injected,
    local_replicas,
    tolerates_super_nodes,
)
from kube.selectors import NodeAffinity, kept_off_super_nodes
from kube.types import MIRROR, ObjectMeta, SchedulingGate, Toleration, Value
from settings import ElasticitySettings
from webhook.admission import MOST_PARTS, Decision, Request, allow, change, decoded, parts

Spec = Mapping[str, Any]
Edit = Callable[[Spec], Spec]
"""Of a pod's spec, raw; idempotent."""
MOST_ENTRIES = 100
"""Node selector terms and scheduling gates of a pod that is changed."""

NO_LEADER = "neither gated nor placed, because the controllers had no leader"
NOT_GATED = Counter(
    "drawbridge_elasticity_not_gated", "Pods that were not gated, because no leader would open their gate."
)

log = structlog.stdlib.get_logger(__name__)


class PlacementWebhook:
    """*absence* is for how long there has been no leader, read by a deadline."""

    name, path = NAME, PATH

    def __init__(self, settings: Callable[[], ElasticitySettings], absence: Callable[[float], float]) -> None:
        self._settings, self._absence = settings, absence

    def fails_open(self) -> bool:
        """Always: a pod that is not gated runs on a local node, and is counted there."""
        return True

    def review(self, request: Request, deadline: float) -> Decision:
        settings = self._settings()
        if not settings.enabled:
            return allow(audit={"skipped": "elasticity is disabled"})
        if request.object is None or request.operation != "CREATE":
            return allow(audit={"skipped": "no new pod"})
        if (count := parts(request.object)) > MOST_PARTS:
            metadata = decoded(request.object, _LargePod, "object").metadata
            return _left(
                {"metadata": metadata}, f"it has about {count} fields and values, more than {MOST_PARTS}"
            )
        pod = decoded(request.object, NewPod, "object")
        if MIRROR in pod.metadata.annotations:
            return allow(audit={"skipped": "mirror of a static pod"})
        raw = decoded(request.object, dict[str, Any], "object")
        if too_long := long_lists(pod.spec):
            return _left(raw, too_long)
        reaches = reaches_super_nodes(pod, raw.get("spec", {}))
        why, warnings = gate_reason(pod, request.namespace, settings, reaches=reaches)
        edits: list[tuple[str, str, Edit]] = []
        reason = ""
        if why:
            reason, *of_leader = waiting(self._absence(deadline), settings.gate_fallback_after)
            warnings = (*warnings, *of_leader)
            if reason != NO_LEADER:
                edits.append(("gated", why, gated))
            else:
                NOT_GATED.inc()
                log.warning("pod not gated, no leader", namespace=request.namespace, why=of_leader[0])
        if pod.spec.scheduler_name == TKE_SCHEDULER:
            name = settings.scheduler_name
            edits.append(
                ("scheduler", f"{TKE_SCHEDULER} is now {name}", lambda spec: {**spec, "schedulerName": name})
            )
        if reaches and (whose := kept_off(pod, request.namespace, settings)):
            edits.append(("kept-off-super-nodes", f"{whose} that tolerates them", kept_off_super_nodes))
        return _changed(raw, edits, reason, warnings)


def waiting(absence: float, fallback_after: float) -> tuple[str, ...]:
    """What a pod's annotation says of its gate, NO_LEADER for none, and the warnings; in seconds.

    A short absence is usual when the leader changes.
    """
    if absence <= 0:
        return (WAITS,)
    there_is_none = f"{NAME}: the controllers have had no leader for {absence:.0f} s"
    if absence < fallback_after:
        reason = f"{WAITS}; when it was created, there had been none for {absence:.0f} s"
        limit = f"after {fallback_after:g} s without one, pods are no longer gated"
        return reason, f"{there_is_none}: this pod waits; {limit}"
    return NO_LEADER, f"{there_is_none}: this pod is neither gated nor placed"


def gate_reason(
    pod: NewPod, namespace: str, settings: ElasticitySettings, *, reaches: bool
) -> tuple[str, tuple[str, ...]]:
    """Why *pod*, which *reaches* super nodes by itself or not, waits for its placement; and what to warn of."""
    # A pod that must stay local has no placement to wait for.
    if is_daemon_pod(pod.metadata) or namespace in settings.excluded_namespaces or pod.spec.node_name:
        return "", ()
    to_be_judged = "it tolerates super nodes" if reaches and not ignores_rules(pod.metadata) else ""
    try:
        number = local_replicas(pod.metadata, settings)
    except ValueError as error:
        return to_be_judged, (str(error),)
    return to_be_judged if number is None else f"{LOCAL_REPLICAS}={number}", ()


def long_lists(spec: PodSpec) -> str:
    """What of *spec* takes too long to change: the leader would have to do it once more."""
    if (count := number_of_terms(spec)) > MOST_ENTRIES:
        return f"it has {count} node selector terms, more than {MOST_ENTRIES}"
    if (count := len(spec.scheduling_gates)) > MOST_ENTRIES:
        return f"it has {count} scheduling gates, more than {MOST_ENTRIES}"
    return ""


def number_of_terms(spec: PodSpec) -> int:
    required = spec.affinity and spec.affinity.node_affinity and spec.affinity.node_affinity.required
    return len(required.node_selector_terms or ()) if required else 0


def reaches_super_nodes(pod: NewPod, spec: Spec) -> bool:
    """Whether *pod*, of that *spec*, tolerates super nodes, and its affinity does not exclude them."""
    return tolerates_super_nodes(pod.spec.tolerations) and kept_off_super_nodes(spec) != spec


def kept_off(pod: NewPod, namespace: str, settings: ElasticitySettings) -> str | None:
    """Whose *pod* it is, if it never goes to super nodes, which needs no leader to decide."""
    if is_daemon_pod(pod.metadata):
        return None if is_injected(pod.metadata) else "a DaemonSet's pod"
    is_excluded = namespace in settings.excluded_namespaces and not pod.spec.node_name
    return f"a pod of {namespace}" if is_excluded and not ignores_rules(pod.metadata) else None


def gated(spec: Spec) -> Spec:
    gates = spec.get("schedulingGates", ())
    if any(gate.get("name") == GATE for gate in gates):
        return spec
    return {**spec, "schedulingGates": [*gates, {"name": GATE}]}


def _left(pod: Mapping[str, Any], why: str) -> Decision:
    """Change nothing of *pod* but what only the leader writes."""
    return _changed(pod, (), "", (f"{NAME}: this pod is left as it is: {why}",))


def _changed(
    pod: Mapping[str, Any], edits: Sequence[tuple[str, str, Edit]], reason: str, warnings: tuple[str, ...]
) -> Decision:
    """By *edits*: their name, reason, and what they do. What only the leader writes goes, but for the *reason*."""
    after, audit = pod, dict[str, str]()
    for name, why, edit in edits:
        spec = after.get("spec", {})
        if (edited := edit(spec)) != spec:
            after, audit[name] = {**after, "spec": edited}, why
    metadata = pod.get("metadata", {})
    held = metadata.get("annotations") or {}
    annotations = {name: value for name, value in held.items() if name not in OF_THE_LEADER}
    annotations |= {REASON: reason} if reason else {}
    if copied := sorted(held.keys() - annotations.keys()):
        audit["not-believed"] = ", ".join(copied)
    if annotations != held:
        after = {**after, "metadata": {**metadata, "annotations": annotations}}
    if after is pod:
        return allow(warnings=warnings, audit={"skipped": "it asks for no placement"})
    if reason and "gated" not in audit:
        audit["explained"] = reason
    return change(pod, after, warnings=warnings, audit=audit)


class _Affinity(Value, frozen=True):
    node_affinity: NodeAffinity | None = None


class PodSpec(Value, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: _Affinity | None = None


class NewPod(Value, frozen=True):
    """All that is read or changed of a pod, so that what is not a pod is refused before it is edited."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class _LargePod(Value, frozen=True):
    metadata: dict[str, Any] = {}
