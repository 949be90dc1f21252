"""Every fault of an IngressDaemonSet is named at once, each with its field and the way out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from webhook.ingress_daemonset import RESERVED
from webhook.ingress_daemonset.defaults import OTHER_SPELLINGS, PODS
from webhook.ingress_daemonset.field_errors import Problem, key_problems
from webhook.ingress_daemonset.int_or_percent import Share, amount
from webhook.ingress_daemonset.template import labels_of, template_problems
from webhook.ingress_daemonset.types import (
    CONFIRM,
    ON_OUTAGE,
    Annotation,
    HealthChecker,
    IngressDaemonSet,
    RollingUpdate,
    Spec,
    Timestamp,
)

ROLLING = "spec.updateStrategy.rollingUpdate"
DEPLOYMENT_KEY = f"{ROLLING}.annotateDeploymentToDetach"
NODE_KEY = f"{ROLLING}.annotateNodeToDetach"
TIMESTAMP_KEY = f"{ROLLING}.waitForDetachmentByAnnotatedTimestamp"
PORTS = "spec.healthCheckNodePorts"

SHORTEST_OUTAGE, LONGEST_OUTAGE = 6, 3600
"""Seconds; as the health checker takes them."""
UNPRIVILEGED = 1024
"""The first port that any user may listen on, unless a node's administrator says otherwise."""


def problems(new: IngressDaemonSet, old: IngressDaemonSet | None = None) -> list[Problem]:
    """What is wrong with *new*, which was *old* until now; it has its defaults."""
    rolling = new.spec.update_strategy.rolling_update
    found = chain(
        _numbers(new.spec),
        _ports(new.spec),
        _selector(new.spec, old),
        _strategy(new.spec),
        _budgets(rolling),
        _annotations(rolling),
        _confirmation(rolling),
        _outage(new.spec.health_checker),
        template_problems(new.spec),
    )
    return list(found)


def two_spellings(rolling: dict[str, Any]) -> list[Problem]:
    """Spellings of one field that disagree, in *rolling* as it is written; defaulting leaves only those."""
    return [
        (f"{ROLLING}.{name}", f"it is {rolling[name]}, but {PODS} is {rolling[PODS]}; write {PODS} alone")
        for name in OTHER_SPELLINGS
        if name in rolling and PODS in rolling
    ]


def warnings(new: IngressDaemonSet) -> Iterator[str]:
    """What is allowed, but can hardly be meant."""
    rolling = new.spec.update_strategy.rolling_update
    if rolling.annotate_node_to_detach and not rolling.detaches:
        yield "annotateNodeToDetach has no effect: maxUnavailableNodes is 0, so that no node is detached"
    if rolling.detaches and rolling.node_annotation is None and not new.spec.health_check_node_ports:
        yield (
            "no load balancer learns of an update: there is neither annotateNodeToDetach nor a healthCheckNodePort"
        )
    if new.spec.health_checker.is_the_originals:
        yield (
            f"healthChecker.image is {new.spec.health_checker.image}, another program: "
            "Drawbridge's own is used, as if there were neither image nor imagePullPolicy"
        )
    yield from _short_drain(new.spec)
    for port in new.spec.health_check_node_ports:
        if 0 < port < UNPRIVILEGED:
            yield (
                f"healthCheckNodePort {port} can be had by root only, which health checkers are not; "
                f"take one from {UNPRIVILEGED} on"
            )


def _numbers(spec: Spec) -> Iterator[Problem]:
    if spec.pods_per_node < 1:
        yield (
            "spec.podsPerNode",
            f"it is {spec.pods_per_node}; write 1 or more, or delete the IngressDaemonSet",
        )
    if spec.min_ready_seconds < 0:
        yield "spec.minReadySeconds", f"it is {spec.min_ready_seconds}; write 0 or more"
    if spec.drain_timeout_seconds < 0:
        yield (
            "spec.drainTimeoutSeconds",
            f"it is {spec.drain_timeout_seconds}; write how many seconds an eviction may be held, or 0",
        )
    if spec.progress_deadline_seconds <= spec.min_ready_seconds:
        yield (
            "spec.progressDeadlineSeconds",
            f"it is {spec.progress_deadline_seconds}; it must be more than minReadySeconds ({spec.min_ready_seconds})",
        )


def _ports(spec: Spec) -> Iterator[Problem]:
    ports = spec.health_check_node_ports
    for index, port in enumerate(ports):
        if not 1 <= port <= 65535:
            yield f"{PORTS}[{index}]", f"{port} is no port; write one from 1 to 65535"
        if port in ports[:index]:
            yield f"{PORTS}[{index}]", f"{port} is there twice; leave one of them out"


def _selector(spec: Spec, old: IngressDaemonSet | None) -> Iterator[Problem]:
    path = "spec.selector.matchLabels"
    wanted, given = spec.selector.match_labels, labels_of(spec)
    if not wanted:
        yield path, "it is empty; leave spec.selector out to have the template's labels"
    if old is not None and old.spec.selector.match_labels not in ({}, wanted):
        yield (
            path,
            "it cannot be changed; delete the IngressDaemonSet and create it anew, or take another name",
        )
    elif missing := [f"{key}={value}" for key, value in wanted.items() if given.get(key) != value]:
        yield path, f"the template's labels lack {', '.join(missing)}; keep these there"


def _strategy(spec: Spec) -> Iterator[Problem]:
    if (kind := spec.update_strategy.type) != "RollingUpdate":
        yield "spec.updateStrategy.type", f"{kind[:40]!r} is not known; write RollingUpdate"


def _budgets(rolling: RollingUpdate) -> Iterator[Problem]:
    for name, share in _shares(rolling):
        try:
            amount(share)
        except ValueError as error:
            yield f"{ROLLING}.{name}", str(error)
    if _none(rolling.max_unavailable_nodes) and _none(rolling.max_degraded_nodes):
        yield (
            f"{ROLLING}.maxDegradedNodes",
            "it is 0, as is maxUnavailableNodes: write 1 or more for one of them",
        )
    if _none(rolling.max_unavailable_pods_per_node) and _none(rolling.max_surged_pods_per_node):
        yield f"{ROLLING}.{PODS}", "it is 0, as is maxSurgedPodsPerNode: write 1 or more for one of them"


def _shares(rolling: RollingUpdate) -> Iterator[tuple[str, Share]]:
    yield "maxUnavailableNodes", rolling.max_unavailable_nodes
    yield "maxDegradedNodes", rolling.max_degraded_nodes
    yield PODS, rolling.max_unavailable_pods_per_node
    yield "maxSurgedPodsPerNode", rolling.max_surged_pods_per_node


def _confirmation(rolling: RollingUpdate) -> Iterator[Problem]:
    if rolling.confirm not in CONFIRM:
        yield f"{ROLLING}.confirm", f"{rolling.confirm[:40]!r} is not known; write {', '.join(CONFIRM)}"
    if rolling.confirm_timeout_seconds < 0:
        yield (
            f"{ROLLING}.confirmTimeoutSeconds",
            f"it is {rolling.confirm_timeout_seconds}; write 0 or more seconds",
        )


def _outage(checker: HealthChecker) -> Iterator[Problem]:
    path, tolerance = "spec.healthChecker", checker.outage_tolerance_seconds
    if checker.on_api_server_outage not in ON_OUTAGE:
        word = checker.on_api_server_outage[:40]
        yield f"{path}.onApiServerOutage", f"{word!r} is not known; write {' or '.join(ON_OUTAGE)}"
    if not SHORTEST_OUTAGE <= tolerance <= LONGEST_OUTAGE:
        yield (
            f"{path}.outageToleranceSeconds",
            f"it is {tolerance}; write a number from {SHORTEST_OUTAGE} to {LONGEST_OUTAGE}",
        )


def _short_drain(spec: Spec) -> Iterator[str]:
    rolling, held = spec.update_strategy.rolling_update, spec.drain_timeout_seconds
    written = (rolling.deployment_annotation, rolling.node_annotation, rolling.timestamp)
    longest = max((each.grace_period_seconds for each in written if each), default=0)
    if 0 < held < longest:
        yield f"drainTimeoutSeconds is {held}: an eviction passes before the grace of {longest} s is over"


def _none(share: Share) -> bool:
    """Whether it says 0; what is no budget at all is named by itself."""
    try:
        return amount(share) == 0
    except ValueError:
        return False


def _annotations(rolling: RollingUpdate) -> Iterator[Problem]:
    for path, each in _written(rolling):
        yield from key_problems(f"{path}.key", each.key)
        if each.key.startswith(RESERVED):
            yield f"{path}.key", f"{each.key} belongs to Drawbridge itself; choose another key"
        if each.grace_period_seconds < 0:
            yield f"{path}.gracePeriodSeconds", f"it is {each.grace_period_seconds}; write 0 or more seconds"
    yield from _timestamp(rolling.wait_for_detachment_by_annotated_timestamp, rolling.annotate_node_to_detach)


def _written(rolling: RollingUpdate) -> Iterator[tuple[str, Annotation | Timestamp]]:
    each = (
        (DEPLOYMENT_KEY, rolling.annotate_deployment_to_detach),
        (NODE_KEY, rolling.annotate_node_to_detach),
        (TIMESTAMP_KEY, rolling.wait_for_detachment_by_annotated_timestamp),
    )
    yield from ((path, annotation) for path, annotation in each if annotation is not None)


def _timestamp(timestamp: Timestamp | None, node: Annotation | None) -> Iterator[Problem]:
    if timestamp is None:
        return
    if timestamp.format != "RFC3339":
        yield f"{TIMESTAMP_KEY}.format", f"{timestamp.format[:40]!r} is not known; write RFC3339"
    if node is None:
        yield TIMESTAMP_KEY, "nobody would write it: give annotateNodeToDetach, too"
    elif node.key == timestamp.key:
        yield (
            f"{TIMESTAMP_KEY}.key",
            f"{timestamp.key[:80]} is annotateNodeToDetach.key, too; the two must differ",
        )
