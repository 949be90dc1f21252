"""Whether a pod may be on a node by labels, taints and resources.

https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from kube.types import amount

Raw = dict[str, Any]
Amounts = Mapping[str, Decimal]
NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"
ZERO = Decimal(0)


def matches_node(spec: Raw, node: Raw) -> bool:
    """By nodeSelector and the required node affinity."""
    labels = node["metadata"].get("labels") or {}
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(matches_term(each, node) for each in required.get("nodeSelectorTerms") or ())


def matches_term(term: Raw, node: Raw) -> bool:
    """One without any requirement matches no node."""
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    expressions, by_field = term.get("matchExpressions") or (), term.get("matchFields") or ()
    return bool(expressions or by_field) and (
        all(_matches(each, labels) for each in expressions)
        and all(_matches(each, fields) for each in by_field)
    )


def _matches(requirement: Raw, labels: Mapping[str, str]) -> bool:
    operator, values = requirement["operator"], requirement.get("values") or []
    value = labels.get(requirement["key"])
    if operator in ("DoesNotExist", "NotIn"):
        return value is None or (operator == "NotIn" and value not in values)
    if value is None:
        return False
    if operator in ("Gt", "Lt"):
        return value.isdigit() and (
            int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])
        )
    return operator == "Exists" or value in values


def taints_of(node: Raw) -> Sequence[Raw]:
    return (node.get("spec") or {}).get("taints") or ()


def untolerated(spec: Raw, node: Raw, effects: Collection[str]) -> Raw | None:
    """The first taint with one of these effects that the pod does not tolerate."""
    tolerations = spec.get("tolerations") or ()
    for taint in taints_of(node):
        if taint["effect"] in effects and not any(tolerates(each, taint) for each in tolerations):
            return dict(taint)
    return None


def tolerates(toleration: Raw, taint: Raw) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def requests_of(spec: Raw) -> Counter[str]:
    """What the scheduler counts: containers and sidecars, or the largest start, or what the pod itself asks."""
    running: Counter[str] = Counter()
    for each in spec.get("containers") or ():
        running.update(_requests(each))
    sidecars: Counter[str] = Counter()
    starting: Counter[str] = Counter()
    for each in spec.get("initContainers") or ():
        own = Counter(_requests(each))
        if each.get("restartPolicy") == "Always":
            sidecars.update(own)
            own = sidecars
        else:
            own.update(sidecars)
        starting |= own
    running.update(sidecars)
    total = running | starting
    for name, value in _requests(spec).items():
        total[name] = value
    total.update({name: amount(value) for name, value in (spec.get("overhead") or {}).items()})
    return total


def _requests(raw: Raw) -> dict[str, Any]:
    return {
        name: amount(str(value))
        for name, value in ((raw.get("resources") or {}).get("requests") or {}).items()
    }


def allocatable(node: Raw) -> dict[str, Decimal]:
    return {
        name: amount(str(value))
        for name, value in ((node.get("status") or {}).get("allocatable") or {}).items()
    }


def short_of(wanted: Mapping[str, Any], used: Mapping[str, Any], pods: int, room: Amounts) -> list[str]:
    """The resources that do not suffice for one pod more."""
    short = ["pods"] if pods + 1 > room.get("pods", ZERO) else []
    return short + [
        name
        for name, value in wanted.items()
        if value and used.get(name, ZERO) + value > room.get(name, ZERO)
    ]


def host_ports(spec: Raw) -> set[tuple[str, int]]:
    """Ports of the node that it takes; addresses of the host are not told apart."""
    return {
        (port.get("protocol", "TCP"), port["hostPort"])
        for each in spec.get("containers") or ()
        for port in each.get("ports") or ()
        if port.get("hostPort")
    }


def used_by(specs: Iterable[Raw]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in specs:
        total.update(requests_of(each))
    return total
