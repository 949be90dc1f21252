"""The pod as the kubelet reads it, and why it cannot run one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from dev.lab.informing import Whole
from kube.types import ObjectMeta

Data = Mapping[str, bytes]
Kind = Literal["ConfigMap", "Secret"]
Store = Mapping[tuple[Kind, str], Data | None]  # of one namespace; None: there is none of that name

VOLUMES = ("emptyDir", "configMap", "secret", "projected", "downwardAPI")
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
HTTP: dict[str, Any] = {"httpGet": {}}


class Meta(ObjectMeta, frozen=True):
    deletion_grace_period_seconds: int | None = None


class Pod(Whole, frozen=True):
    metadata: Meta = Meta()

    @property
    def grace(self) -> float:
        """Seconds between the request to stop and SIGKILL."""
        if self.metadata.deletion_grace_period_seconds is not None:
            return self.metadata.deletion_grace_period_seconds
        return float(self.spec.get("terminationGracePeriodSeconds", 30))

    @property
    def containers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.spec["containers"]
        return found


class CannotRun(Exception):
    """What stands in the way of a container now; trying again may help."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True)
class Place:
    """Where a pod runs."""

    pod_ip: str
    host_ip: str


def timestamp(seconds: float) -> str:
    """An instant of ``time.time()`` as the API writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def refusals(pod: Pod) -> list[str]:
    """What the pod asks for that this kubelet does not know: it is never started."""
    return [*_unknown_volumes(pod), *_unknown_containers(pod)]


def _unknown_volumes(pod: Pod) -> Iterator[str]:
    for volume in pod.spec.get("volumes", ()):
        kinds = sorted(volume.keys() - {"name"} - set(VOLUMES))
        if kinds:
            yield f"volume {volume['name']!r} is of kind {kinds[0]!r}; known are {', '.join(VOLUMES)}"


def _unknown_containers(pod: Pod) -> Iterator[str]:
    if pod.spec.get("initContainers"):
        yield "init containers are not known"
    for container in pod.containers:
        unknown = ["envFrom"] if "envFrom" in container else []
        unknown += [
            f"{each} without httpGet" for each in PROBES if "httpGet" not in container.get(each, HTTP)
        ]
        hooks = container.get("lifecycle", {}).items()
        unknown += [name for name, hook in hooks if name != "preStop" or "sleep" not in hook]
        mounts = container.get("volumeMounts", ())
        unknown += [part for mount in mounts for part in mount if part.startswith("subPath")]
        if unknown:
            yield f"container {container['name']!r} has what is not known: {', '.join(unknown)}"


def references(pod: Pod) -> set[tuple[Kind, str]]:
    """The ConfigMaps and Secrets that the pod's environment and volumes are made of."""
    found: set[tuple[Kind, str]] = set()
    for container in pod.containers:
        for variable in container.get("env", ()):
            origin = variable.get("valueFrom", {})
            found |= _named(origin, ("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret"))
    for volume in pod.spec.get("volumes", ()):
        for source in (volume, *volume.get("projected", {}).get("sources", ())):
            found |= _named(source, ("configMap", "ConfigMap"), ("secret", "Secret"))
    return found


def _named(source: Mapping[str, Any], *kinds: tuple[str, Kind]) -> set[tuple[Kind, str]]:
    return {(kind, reference_name(source[field])) for field, kind in kinds if field in source}


def reference_name(reference: Mapping[str, str]) -> str:
    """Secret volumes alone call it ``secretName``."""
    return reference.get("name") or reference["secretName"]


def field(pod: Pod, place: Place, path: str) -> str:
    """The value of a ``fieldRef``; labels and annotations as a whole in the form of a downward volume."""
    metadata = pod.metadata
    for name, table in (("labels", metadata.labels), ("annotations", metadata.annotations)):
        if path == f"metadata.{name}":
            return "\n".join(f"{key}={_quoted(value)}" for key, value in sorted(table.items()))
        if path.startswith(f"metadata.{name}['") and path.endswith("']"):
            return table.get(path.removeprefix(f"metadata.{name}['").removesuffix("']"), "")
    known: dict[str, str] = {
        "metadata.name": metadata.name,
        "metadata.namespace": metadata.namespace,
        "metadata.uid": metadata.uid,
        "spec.nodeName": pod.spec.get("nodeName", ""),
        "spec.serviceAccountName": pod.spec.get("serviceAccountName", ""),
        "status.podIP": place.pod_ip,
        "status.podIPs": place.pod_ip,
        "status.hostIP": place.host_ip,
        "status.hostIPs": place.host_ip,
    }
    if path not in known:
        raise CannotRun(
            "CreateContainerConfigError", f"fieldRef {path!r} is not known; known: {', '.join(known)}"
        )
    return known[path]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
