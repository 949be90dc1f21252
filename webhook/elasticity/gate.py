"""A pod with a number of replicas to keep at home is not scheduled before it is decided where it belongs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from kube.objects import ObjectMeta, Toleration, Value, complete
from settings import ElasticitySettings
from webhook.admission import Decision, Request, allow, change, decoded
from webhook.elasticity import (
    GATE,
    LOCAL_REPLICAS,
    NAME,
    PATH,
    PLACEMENT,
    TKE_SCHEDULER,
    is_daemon_pod,
    local_replicas,
    tolerates_super_nodes,
)
from webhook.elasticity.affinity import kept_off_super_nodes

Spec = Mapping[str, Any]
Edit = Callable[[Spec], Spec]
"""Of a pod's spec, raw; doing it again changes nothing more."""
EDITED = ("affinity", "schedulerName", "schedulingGates")


class Gate:
    """The feature as the admission server calls it."""

    name, path = NAME, PATH

    def __init__(self, settings: Callable[[], ElasticitySettings]) -> None:
        self._settings = settings

    def fails_open(self) -> bool:
        """Always: a pod that slips through runs at home, and is counted there."""
        return True

    def review(self, request: Request, deadline: float) -> Decision:  # noqa: ARG002 - nothing here waits
        settings = self._settings()
        if not settings.enabled:
            return allow(audit={"skipped": "elasticity is disabled"})
        if request.object is None or request.operation != "CREATE":
            return allow(audit={"skipped": "no new pod"})
        pod = decoded(request.object, NewPod, "object")
        number, warnings = held(pod, request.namespace, settings)
        edits = edits_for(pod, number, settings)
        return _changed(decoded(request.object, dict[str, Any], "object"), edits, warnings)


def held(pod: NewPod, namespace: str, settings: ElasticitySettings) -> tuple[int | None, tuple[str, ...]]:
    """How many replicas stay at home, when *pod* has to wait for its placement; and what to warn of."""
    # What may not leave home has no placement to wait for.
    if is_daemon_pod(pod.metadata) or namespace in settings.excluded_namespaces:
        return None, ()
    if pod.spec.node_name or PLACEMENT in pod.metadata.annotations:
        return None, ()
    try:
        return local_replicas(pod.metadata, settings), ()
    except ValueError as error:
        return None, (str(error),)


def edits_for(
    pod: NewPod, number: int | None, settings: ElasticitySettings
) -> Iterator[tuple[str, str, Edit]]:
    """What is to be done to *pod*, each under a name and with a word of why."""
    if number is not None:
        yield "gated", f"{LOCAL_REPLICAS}={number}", gated
    if pod.spec.scheduler_name == TKE_SCHEDULER:
        name = settings.scheduler_name
        yield "scheduler", f"{TKE_SCHEDULER} is now {name}", partial(scheduled_by, name)
    if is_daemon_pod(pod.metadata) and tolerates_super_nodes(pod.spec.tolerations):
        yield "kept-off-super-nodes", "a DaemonSet's pod that tolerates them", kept_off_super_nodes


def gated(spec: Spec) -> Spec:
    gates = spec.get("schedulingGates", ())
    if any(gate.get("name") == GATE for gate in gates):
        return spec
    return {**spec, "schedulingGates": [*gates, {"name": GATE}]}


def scheduled_by(name: str, spec: Spec) -> Spec:
    return {**spec, "schedulerName": name}


def _changed(
    pod: Mapping[str, Any], edits: Iterator[tuple[str, str, Edit]], warnings: tuple[str, ...]
) -> Decision:
    # The rest stays out of the comparison, which takes ten times as long for a whole pod.
    before: Spec = {name: value for name, value in pod.get("spec", {}).items() if name in EDITED}
    after, audit = before, {}
    for name, why, edit in edits:
        if (edited := edit(after)) != after:
            after, audit[name] = edited, why
    if not audit:
        return allow(warnings=warnings, audit={"skipped": "nothing to do"})
    decision = change({"spec": before}, {"spec": after}, warnings=warnings)
    return replace(decision, audit=audit)


class _SchedulingGate(Value, frozen=True):
    name: str = ""


class _Expression(Value, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class _Term(Value, frozen=True):
    match_expressions: tuple[_Expression, ...] = ()
    match_fields: tuple[_Expression, ...] = ()


class _Selector(Value, frozen=True):
    # The one list here that Kubernetes writes as null when it is empty.
    node_selector_terms: tuple[_Term, ...] | None = ()


class _NodeAffinity(Value, frozen=True):
    required: _Selector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(Value, frozen=True):
    node_affinity: _NodeAffinity | None = None


class _Spec(Value, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    scheduling_gates: tuple[_SchedulingGate, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: _Affinity | None = None


class NewPod(Value, frozen=True):
    """All that is read or changed of a pod, so that what is no pod is found out before it is edited."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()


complete(NewPod)
