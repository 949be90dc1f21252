"""Report all faults of an IngressDaemonSet at once, each with its field and how to correct it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from webhook.ingress_daemonset import RESERVED
from webhook.ingress_daemonset.template import Problem, key_problems, labels_of, template_problems
from webhook.ingress_daemonset.types import (
    CONFIRM,
    DEGRADED,
    ON_OUTAGE,
    OTHER_SPELLINGS,
    PODS,
    HealthChecker,
    IngressDaemonSet,
    RollingUpdate,
    Share,
    Spec,
    amount,
)

ROLLING = "spec.updateStrategy.rollingUpdate"
TIMESTAMP_KEY = f"{ROLLING}.waitForDetachmentByAnnotatedTimestamp"
PORTS = "spec.healthCheckNodePorts"

SHORTEST_OUTAGE, LONGEST_OUTAGE = 6, 3600
"""Seconds; as the health checker takes them."""
UNPRIVILEGED = 1024
"""The first port that any user may bind, by default."""


@dataclass(frozen=True)
class PortUser:
    """Another IngressDaemonSet with a health port of one; *node* is one that both match now, or empty."""

    key: str
    health_ports: tuple[int, ...]
    node: str


def problems(new: IngressDaemonSet, old: IngressDaemonSet | None = None) -> list[Problem]:
    """Of *new*, with its defaults, which was *old* until now."""
    rolling = new.spec.update_strategy.rolling_update
    return [
        *chain(
            _numbers(new.spec),
            _ports(new.spec),
            _selector(new.spec, old),
            _strategy(new.spec),
            _budgets(rolling),
            _annotations(rolling),
            _timestamp(rolling),
            _outage(new.spec.health_checker),
            template_problems(new.spec),
        )
    ]


def two_spellings(rolling: dict[str, Any]) -> list[Problem]:
    """Spellings of one field that disagree, after defaults."""
    return [
        (f"{ROLLING}.{name}", f"it is {rolling[name]}, but {PODS} is {rolling[PODS]}; write {PODS} alone")
        for name in OTHER_SPELLINGS
        if name in rolling and PODS in rolling
    ]


def port_problems(new: IngressDaemonSet, others: Iterable[PortUser]) -> list[Problem]:
    return [
        (
            f"{PORTS}[{index}]",
            f"{port} is taken on node {other.node} by IngressDaemonSet {other.key}; give one of them another port",
        )
        for other in others
        for index, port in enumerate(new.spec.health_check_node_ports)
        if other.node and port in other.health_ports
    ]


def port_warnings(new: IngressDaemonSet, others: Iterable[PortUser]) -> list[str]:
    return [
        f"healthCheckNodePort {port} is also that of IngressDaemonSet {other.key}: they may never share a node"
        for other in others
        for port in new.spec.health_check_node_ports
        if not other.node and port in other.health_ports
    ]


def warnings(new: IngressDaemonSet) -> Iterator[str]:
    """Of what is valid, but probably not meant."""
    rolling, checker = new.spec.update_strategy.rolling_update, new.spec.health_checker
    if rolling.annotate_node_to_detach and not rolling.detaches:
        yield "annotateNodeToDetach has no effect: maxUnavailableNodes is 0, so that no node is detached"
    if rolling.detaches and rolling.node_annotation is None and not new.spec.health_check_node_ports:
        yield (
            "no load balancer learns of an update: there is neither annotateNodeToDetach nor a healthCheckNodePort"
        )
    if checker.is_the_originals:
        yield (
            f"healthChecker.image is {checker.image}, another program: "
            "Drawbridge's own is used, as if there were neither image nor imagePullPolicy"
        )
    written = (rolling.deployment_annotation, rolling.node_annotation, rolling.timestamp)
    longest = max((each.grace_period_seconds for each in written if each), default=0)
    if 0 < (held := new.spec.drain_timeout_seconds) < longest:
        yield f"drainTimeoutSeconds is {held}: an eviction passes before the grace of {longest} s is over"
    for port in new.spec.health_check_node_ports:
        if 0 < port < UNPRIVILEGED:
            yield (
                f"healthCheckNodePort {port} needs root, and health checkers are not root; "
                f"use a port from {UNPRIVILEGED} on"
            )


def _numbers(spec: Spec) -> Iterator[Problem]:
    rolling, shortest = spec.update_strategy.rolling_update, spec.min_ready_seconds
    least = (
        ("spec.podsPerNode", spec.pods_per_node, 1, "write 1 or more, or delete the IngressDaemonSet"),
        ("spec.minReadySeconds", shortest, 0, "write 0 or more"),
        ("spec.drainTimeoutSeconds", spec.drain_timeout_seconds, 0, "write 0 or more seconds"),
        (f"{ROLLING}.confirmTimeoutSeconds", rolling.confirm_timeout_seconds, 0, "write 0 or more seconds"),
    )
    yield from ((path, f"it is {value}; {way_out}") for path, value, low, way_out in least if value < low)
    if (deadline := spec.progress_deadline_seconds) <= shortest:
        message = f"it is {deadline}; it must be more than minReadySeconds ({shortest})"
        yield "spec.progressDeadlineSeconds", message


def _ports(spec: Spec) -> Iterator[Problem]:
    ports = spec.health_check_node_ports
    for index, port in enumerate(ports):
        if not 1 <= port <= 65535:
            yield f"{PORTS}[{index}]", f"{port} is no port; write one from 1 to 65535"
        if port in ports[:index]:
            yield f"{PORTS}[{index}]", f"{port} is listed twice; remove one of them"


def _selector(spec: Spec, old: IngressDaemonSet | None) -> Iterator[Problem]:
    path = "spec.selector.matchLabels"
    wanted, given = spec.selector.match_labels, labels_of(spec)
    if not wanted:
        yield path, "it is empty; remove spec.selector to use the template's labels"
    if old is not None and old.spec.selector.match_labels not in ({}, wanted):
        yield (
            path,
            "it cannot be changed; delete the IngressDaemonSet and create it again, or use another name",
        )
    elif missing := [f"{key}={value}" for key, value in wanted.items() if given.get(key) != value]:
        yield path, f"the template's labels lack {', '.join(missing)}; keep these there"


def _strategy(spec: Spec) -> Iterator[Problem]:
    kind, confirm = spec.update_strategy.type, spec.update_strategy.rolling_update.confirm
    if kind != "RollingUpdate":
        yield "spec.updateStrategy.type", f"{kind[:40]!r} is not known; write RollingUpdate"
    if confirm not in CONFIRM:
        yield f"{ROLLING}.confirm", f"{confirm[:40]!r} is not known; write {', '.join(CONFIRM)}"


def _budgets(rolling: RollingUpdate) -> Iterator[Problem]:
    shares = {
        "maxUnavailableNodes": rolling.max_unavailable_nodes,
        DEGRADED: rolling.max_degraded_nodes,
        PODS: rolling.max_unavailable_pods_per_node,
        "maxSurgedPodsPerNode": rolling.max_surged_pods_per_node,
    }
    for name, share in shares.items():
        try:
            amount(share)
        except ValueError as error:
            yield f"{ROLLING}.{name}", str(error)
    for one, other in ((DEGRADED, "maxUnavailableNodes"), (PODS, "maxSurgedPodsPerNode")):
        if _is_zero(shares[one]) and _is_zero(shares[other]):
            yield f"{ROLLING}.{one}", f"it is 0, as is {other}: write 1 or more for one of them"


def _is_zero(share: Share) -> bool:
    """False for what is no budget, which is reported by itself."""
    try:
        return amount(share) == 0
    except ValueError:
        return False


def _outage(checker: HealthChecker) -> Iterator[Problem]:
    path, tolerance = "spec.healthChecker", checker.outage_tolerance_seconds
    if (word := checker.on_api_server_outage) not in ON_OUTAGE:
        yield f"{path}.onApiServerOutage", f"{word[:40]!r} is not known; write {' or '.join(ON_OUTAGE)}"
    if not SHORTEST_OUTAGE <= tolerance <= LONGEST_OUTAGE:
        wrong = f"it is {tolerance}; write a number from {SHORTEST_OUTAGE} to {LONGEST_OUTAGE}"
        yield f"{path}.outageToleranceSeconds", wrong


def _annotations(rolling: RollingUpdate) -> Iterator[Problem]:
    written = {
        f"{ROLLING}.annotateDeploymentToDetach": rolling.annotate_deployment_to_detach,
        f"{ROLLING}.annotateNodeToDetach": rolling.annotate_node_to_detach,
        TIMESTAMP_KEY: rolling.wait_for_detachment_by_annotated_timestamp,
    }
    for path, each in written.items():
        if each is None:
            continue
        yield from key_problems(f"{path}.key", each.key)
        if each.key.startswith(RESERVED):
            yield f"{path}.key", f"{each.key} belongs to Drawbridge itself; choose another key"
        if each.grace_period_seconds < 0:
            yield f"{path}.gracePeriodSeconds", f"it is {each.grace_period_seconds}; write 0 or more seconds"


def _timestamp(rolling: RollingUpdate) -> Iterator[Problem]:
    timestamp, node = rolling.wait_for_detachment_by_annotated_timestamp, rolling.annotate_node_to_detach
    if timestamp is None:
        return
    if timestamp.format != "RFC3339":
        yield f"{TIMESTAMP_KEY}.format", f"{timestamp.format[:40]!r} is not known; write RFC3339"
    if node is None:
        yield (
            TIMESTAMP_KEY,
            "it is never written without annotateNodeToDetach: give annotateNodeToDetach, too",
        )
    elif node.key == timestamp.key:
        wrong = f"{timestamp.key[:80]} is also annotateNodeToDetach.key; the two must differ"
        yield f"{TIMESTAMP_KEY}.key", wrong
