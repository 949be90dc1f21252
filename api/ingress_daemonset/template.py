"""Faults of a pod template: what cannot run several times on a node, or in a Deployment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from api.ingress_daemonset import NODE_LABEL
from api.ingress_daemonset.types import IngressDaemonSet, Spec, is_some, resource
from kube.selectors import REQUIRED, NodeSelector
from kube.types import ObjectMeta, Toleration, Value, complete

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


class Port(Value, frozen=True):
    container_port: int = 0
    host_port: int = 0
    protocol: str = "TCP"


class Container(Value, frozen=True):
    name: str = ""
    image: str = ""
    ports: tuple[Port, ...] = ()


class NodeAffinity(Value, frozen=True):
    required: NodeSelector | None = msgspec.field(default=None, name=REQUIRED)


class Affinity(Value, frozen=True):
    node_affinity: NodeAffinity = NodeAffinity()


class PodSpec(Value, frozen=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_selector: dict[str, str] = {}
    node_name: str = ""
    host_network: bool = False
    restart_policy: str = "Always"
    active_deadline_seconds: int | None = None
    affinity: Affinity = Affinity()
    tolerations: tuple[Toleration, ...] = ()


class Template(Value, frozen=True):
    """The parts of a template that are checked."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


def template_of(spec: Spec) -> Template:
    """Raises msgspec.ValidationError."""
    return msgspec.convert(_without_nulls(spec.template), Template)


def readable(raw: Mapping[str, Any]) -> IngressDaemonSet:
    """*raw* with all defaults. msgspec.ValidationError when a field of it, or of its template, has a wrong type."""
    template_of(msgspec.convert(raw, IngressDaemonSet).spec)
    return resource(raw)


def template_problems(spec: Spec, template: Template) -> Iterator[Problem]:
    yield from _labels(template)
    yield from _pod(template.spec)
    yield from _containers(template.spec)
    yield from _host_ports(spec, template.spec)
    yield from _health_ports(spec, template.spec)
    yield from _node_selectors(spec, template.spec)


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
                f"{port.host_port} can be had once on a node, and there may be several pods: leave hostPort out and"
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
    for index, container in enumerate(pod.containers):
        for number, port in enumerate(container.ports):
            yield f"{PATH}.spec.containers[{index}].ports[{number}]", port


def _without_nulls(part: Any) -> Any:
    """As in Kubernetes: a field that is null is absent."""
    if isinstance(part, Mapping):
        return {key: _without_nulls(value) for key, value in part.items() if value is not None}
    return [_without_nulls(each) for each in part] if isinstance(part, list) else part


complete(Template)
