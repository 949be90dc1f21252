"""Report all faults that the schema cannot see at once, each with its field and how to correct it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from api.ingress_daemonset import NODE_LABEL, RESERVED
from api.ingress_daemonset.template import EXCLUDED, PodSpec, Port, Template
from api.ingress_daemonset.types import (
    DEGRADED,
    PODS,
    IngressDaemonSet,
    Metric,
    RollingUpdate,
    Spec,
    Window,
    is_some,
    load_balancers,
)
from settings import CLBSettings, IngressDaemonSetSettings
from settings.windows import zone_of

Problem = tuple[str, str]
"""The path of a field, and what is wrong with it and how to correct it."""
MOST_PROBLEMS = 20
"""That a refusal names."""

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)


def is_key(text: str) -> bool:
    """As ``IsQualifiedName`` of Kubernetes: a name of at most 63 characters, optionally after a domain."""
    prefix, slash, name = text.rpartition("/")
    if slash and (len(prefix) > 253 or not _PREFIX.fullmatch(prefix)):
        return False
    return _NAME.fullmatch(name) is not None


def key_problems(path: str, key: str) -> Iterator[Problem]:
    if not is_key(key):
        wrong = f"{key[:80]!r} is not the key of a label or an annotation"
        yield path, f"{wrong}; write for example example.com/name"


def label_problems(path: str, labels: Mapping[str, str]) -> Iterator[Problem]:
    for key, value in labels.items():
        yield from key_problems(path, key)
        if value and not _NAME.fullmatch(value):
            wrong = f"{value[:80]!r} is not the value of a label"
            yield f"{path}[{key}]", f"{wrong}; use at most 63 letters, digits, '-', '_' and '.'"


PATH = "spec.template"
ROLLING = "spec.updateStrategy.rollingUpdate"
METRIC, WINDOW = f"{ROLLING}.canary.metric", f"{ROLLING}.window"


def _metric(metric: Metric) -> Iterator[Problem]:
    if not metric.query.strip():
        yield f"{METRIC}.query", "it is empty: write a query in PromQL that has one value"
    if not metric.has_bounds:
        yield METRIC, "it has no bounds: write min, or max, or both"
    elif metric.min is not None and metric.max is not None and metric.min > metric.max:
        message = f"it is {metric.min:g}, more than max ({metric.max:g}): no value is within both"
        yield f"{METRIC}.min", message


def _window(window: Window) -> Iterator[Problem]:
    """All but the zone is checked by the schema."""
    if zone_of(window) is None:
        message = (
            f"{window.time_zone!r:.80} is not known; write one of the IANA database, such as Europe/Berlin"
        )
        yield f"{WINDOW}.timeZone", message


TIMESTAMP_KEY = f"{ROLLING}.waitForDetachmentByAnnotatedTimestamp.key"
PORTS = "spec.healthCheckNodePorts"
WEIGHTS = f"{ROLLING}.setWeightToDetach.loadBalancers"

UNPRIVILEGED = 1024
"""The first port that any user may bind, by default."""


@dataclass(frozen=True)
class PortUser:
    """Another IngressDaemonSet with a health port of one; *node* is one that both match now, or empty."""

    key: str
    health_ports: tuple[int, ...]
    node: str


def problems(new: IngressDaemonSet, template: Template) -> Iterator[Problem]:
    """Of *new*, with its defaults and its *template*."""
    spec, pod, rolling = new.spec, template.spec, new.spec.update_strategy.rolling_update
    yield from _deadline(spec)
    yield from _selector(spec, template.metadata.labels)
    yield from _budgets(rolling)
    yield from _annotations(rolling)
    yield from _label(rolling, spec, pod)
    yield from _canary(rolling)
    if rolling.canary and rolling.canary.metric:
        yield from _metric(rolling.canary.metric)
    if rolling.waves:
        yield from key_problems(f"{ROLLING}.waves.byLabel", rolling.waves.by_label)
    if rolling.window:
        yield from _window(rolling.window)
    yield from _connections(spec, rolling, pod)
    if rolling.auto_rollback and not spec.revision_history_limit:
        message = "it is 0: autoRollback needs the former template; write 1 or more, or remove autoRollback"
        yield "spec.revisionHistoryLimit", message
    yield from _labels(template)
    yield from _pod(pod)
    yield from _containers(pod)
    yield from _host_ports(spec, pod)
    yield from _health_ports(spec, pod)
    yield from _node_selectors(spec, pod)


def port_problems(new: IngressDaemonSet, others: Iterable[PortUser]) -> Iterator[Problem]:
    for other in others:
        for index, port in enumerate(new.spec.health_check_node_ports):
            if other.node and port in other.health_ports:
                taken = f"{port} is taken on node {other.node} by IngressDaemonSet {other.key}"
                yield f"{PORTS}[{index}]", f"{taken}; give one of them another port"


def port_warnings(new: IngressDaemonSet, others: Iterable[PortUser]) -> list[str]:
    return [
        f"healthCheckNodePort {port} is also that of IngressDaemonSet {other.key}: they may never share a node"
        for other in others
        for port in new.spec.health_check_node_ports
        if not other.node and port in other.health_ports
    ]


def load_balancer_problems(
    new: IngressDaemonSet, old: IngressDaemonSet | None, clb: CLBSettings
) -> Iterator[Problem]:
    """Load balancers that the operator does not allow; one that was stored before must not prevent other changes."""
    before = load_balancers(old) if old else ()
    for index, each in enumerate(load_balancers(new)):
        if each not in before and (refusal := clb.refusal(each, new.metadata.namespace)):
            yield f"{WEIGHTS}[{index}]", refusal


def warnings(new: IngressDaemonSet, settings: IngressDaemonSetSettings) -> Iterator[str]:
    """Of what is valid, but probably not meant, or not configured."""
    rolling, checker = new.spec.update_strategy.rolling_update, new.spec.health_checker
    needless = {
        "waitForConnections": rolling.wait_for_connections,
        "setWeightToDetach": rolling.set_weight_to_detach,
        "labelNodeToDetach": rolling.label_node_to_detach,
        "annotateNodeToDetach": rolling.annotate_node_to_detach,
    }
    for field in [field for field, given in needless.items() if given and not rolling.detaches]:
        yield f"{field} has no effect: maxUnavailableNodes is 0, so that no node is detached"
    ways = (rolling.node_annotation, rolling.weights, rolling.labels_node, new.spec.health_check_node_ports)
    if rolling.detaches and not any(ways):
        yield (
            "no load balancer learns of an update: there is no annotateNodeToDetach, setWeightToDetach,"
            " labelNodeToDetach or healthCheckNodePort"
        )
    if checker.is_the_originals:
        yield (
            f"healthChecker.image is {checker.image}, another program: "
            "Drawbridge's own is used, as if there were neither image nor imagePullPolicy"
        )
    longest = rolling.grace_seconds
    if 0 < (held := new.spec.drain_timeout_seconds) < longest:
        yield f"drainTimeoutSeconds is {held}: an eviction passes before the grace of {longest} s is over"
    for port in new.spec.health_check_node_ports:
        if 0 < port < UNPRIVILEGED:
            yield (
                f"healthCheckNodePort {port} needs root, and health checkers are not root; "
                f"use a port from {UNPRIVILEGED} on"
            )
    if rolling.canary and rolling.canary.metric and not settings.prometheus.url:
        yield (
            "canary.metric is never measured: Drawbridge has no ingressDaemonSet.prometheus.url;"
            " canaries wait to be promoted by hand"
        )
    for each in load_balancers(new):
        if refusal := settings.clb.refusal(each, new.metadata.namespace):
            yield f"no node is updated: {refusal}"


def _deadline(spec: Spec) -> Iterator[Problem]:
    """The schema compares them only where both are written."""
    if (deadline := spec.progress_deadline_seconds) <= spec.min_ready_seconds:
        message = f"it is {deadline}; it must be more than minReadySeconds ({spec.min_ready_seconds})"
        yield "spec.progressDeadlineSeconds", message


def _selector(spec: Spec, given: Mapping[str, str]) -> Iterator[Problem]:
    path, wanted = "spec.selector.matchLabels", spec.selector.match_labels
    if not wanted:
        yield path, "it is empty; remove spec.selector to use the template's labels"
    if missing := [f"{key}={value}" for key, value in wanted.items() if given.get(key) != value]:
        yield path, f"the template's labels lack {', '.join(missing)}; keep these there"


def _budgets(rolling: RollingUpdate) -> Iterator[Problem]:
    nodes = (DEGRADED, rolling.max_degraded_nodes, "maxUnavailableNodes", rolling.max_unavailable_nodes)
    pods = (
        PODS,
        rolling.max_unavailable_pods_per_node,
        "maxSurgedPodsPerNode",
        rolling.max_surged_pods_per_node,
    )
    for one, share, other, its_share in (nodes, pods):
        if not is_some(share) and not is_some(its_share):
            yield f"{ROLLING}.{one}", f"it is 0, as is {other}: write 1 or more for one of them"


def _canary(rolling: RollingUpdate) -> Iterator[Problem]:
    canary = rolling.canary
    if canary is None:
        return
    if canary.nodes is None and not canary.node_selector:
        yield f"{ROLLING}.canary", "it has no nodes: write nodes, such as 1 or 10%, or nodeSelector, or both"
    if canary.nodes is not None and not is_some(canary.nodes):
        yield (
            f"{ROLLING}.canary.nodes",
            f"it is {canary.nodes}: write 1 or more, or remove canary to have none",
        )


def _connections(spec: Spec, rolling: RollingUpdate, pod: PodSpec) -> Iterator[Problem]:
    path, wanted = f"{ROLLING}.waitForConnections", rolling.wait_for_connections
    if wanted is None:
        return
    if bool(wanted.ports) == bool(wanted.endpoint):
        yield path, "write either ports or endpoint: connections are counted in one way"
    if not spec.health_check_node_ports:
        yield path, "there are no healthCheckNodePorts, and health checkers count the connections; write one"
    if not pod.host_network:
        message = "connections of pods without hostNetwork are not seen on the node"
        yield path, f"{message}; write hostNetwork: true into the template, or remove it"


def _annotations(rolling: RollingUpdate) -> Iterator[Problem]:
    timestamp, node = rolling.wait_for_detachment_by_annotated_timestamp, rolling.annotate_node_to_detach
    written = {
        f"{ROLLING}.annotateDeploymentToDetach.key": rolling.annotate_deployment_to_detach,
        f"{ROLLING}.annotateNodeToDetach.key": node,
        TIMESTAMP_KEY: timestamp,
    }
    for path, key in ((path, each.key) for path, each in written.items() if each):
        yield from key_problems(path, key)
        if key.startswith(RESERVED):
            yield path, f"{key} belongs to Drawbridge itself; choose another key"
    if timestamp and node and node.key == timestamp.key:
        yield TIMESTAMP_KEY, f"{node.key[:80]} is also annotateNodeToDetach.key; the two must differ"


def _label(rolling: RollingUpdate, spec: Spec, pod: PodSpec) -> Iterator[Problem]:
    """A node that is detached by it must still match."""
    keys, required = {*spec.node_selector, *pod.node_selector}, pod.affinity.node_affinity.required
    terms = (required.node_selector_terms if required else ()) or ()
    keys |= {expression.key for term in terms for expression in term.match_expressions}
    if rolling.label_node_to_detach and EXCLUDED in keys:
        yield (
            f"{ROLLING}.labelNodeToDetach",
            f"nodes are selected by the label {EXCLUDED}, and would leave when detached; select them by another",
        )


def _labels(template: Template) -> Iterator[Problem]:
    path = f"{PATH}.metadata.labels"
    if not template.metadata.labels:
        yield path, "it is empty: give at least one label, by which the pods are found"
    if NODE_LABEL in template.metadata.labels:
        yield f"{path}[{NODE_LABEL}]", "this label says on which node a pod is; leave it out"
    yield from label_problems(path, template.metadata.labels)


def _pod(pod: PodSpec) -> Iterator[Problem]:
    if pod.node_name:
        yield (
            f"{PATH}.spec.nodeName",
            f"it is {pod.node_name!r}; leave it out, and choose nodes by nodeSelector",
        )
    if pod.restart_policy != "Always":
        yield f"{PATH}.spec.restartPolicy", f"it is {pod.restart_policy!r}; leave it out, or write Always"
    if pod.active_deadline_seconds is not None:
        yield f"{PATH}.spec.activeDeadlineSeconds", "these pods run for good; leave it out"


def _containers(pod: PodSpec) -> Iterator[Problem]:
    taken = {each.name for each in pod.init_containers}
    for index, container in enumerate(pod.containers):
        path = f"{PATH}.spec.containers[{index}]"
        if not container.name:
            yield f"{path}.name", "it is missing"
        if container.name in taken:
            yield f"{path}.name", f"{container.name!r} is used twice; give each container another name"
        if not container.image:
            yield f"{path}.image", "it is missing"
        taken |= {container.name} - {""}


def _host_ports(spec: Spec, pod: PodSpec) -> Iterator[Problem]:
    """On the host network ports are removed; otherwise the kubelet would refuse a node's second pod."""
    surge = is_some(spec.update_strategy.rolling_update.max_surged_pods_per_node)
    if pod.host_network or (spec.pods_per_node < 2 and not surge):
        return
    for path, port in _ports(pod):
        if port.host_port:
            yield (
                f"{path}.hostPort",
                f"{port.host_port} can be used once per node, and there may be several pods: leave hostPort out and"
                " use a NodePort Service, or set hostNetwork",
            )


def _health_ports(spec: Spec, pod: PodSpec) -> Iterator[Problem]:
    for path, port in _ports(pod):
        bound = port.host_port or (port.container_port if pod.host_network else 0)
        if bound in spec.health_check_node_ports and port.protocol == "TCP":
            yield path, f"{bound} is one of healthCheckNodePorts, too; give one of them another port"


def _node_selectors(spec: Spec, pod: PodSpec) -> Iterator[Problem]:
    for key, value in spec.node_selector.items():
        if (other := pod.node_selector.get(key, value)) != value:
            yield (
                f"spec.nodeSelector[{key}]",
                f"it is {value!r}, but {other!r} in the template's: no node can have both; write the same in both",
            )
    yield from label_problems("spec.nodeSelector", spec.node_selector)
    yield from label_problems(f"{PATH}.spec.nodeSelector", pod.node_selector)


def _ports(pod: PodSpec) -> Iterator[tuple[str, Port]]:
    containers = [(f"containers[{index}]", each) for index, each in enumerate(pod.containers)]
    for index, each in enumerate(pod.init_containers):
        if each.restart_policy == "Always":
            containers.append((f"initContainers[{index}]", each))
    for name, container in containers:
        for number, port in enumerate(container.ports):
            yield f"{PATH}.spec.{name}.ports[{number}]", port
