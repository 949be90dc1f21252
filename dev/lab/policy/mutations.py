"""What the policy makes of an object, as a function of it; done twice it is the same as done once."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

Raw = dict[str, Any]

MIRROR = "mirror.lab.invalid/"
"""What every image is fetched through."""
LABEL = ("policy.lab/checked", "true")
ENVIRONMENT = {"name": "POLICY_LAB", "value": "on"}
TOLERATION = {"key": "policy.lab/any", "operator": "Exists", "effect": "NoSchedule"}
SIDECAR_IMAGE = "policy-sidecar"
SIDECAR: Raw = {
    "name": "policy-sidecar",
    "image": f"{MIRROR}{SIDECAR_IMAGE}",
    # It is the first process of its container: without a trap a SIGTERM would pass it by.
    "command": ["sh", "-c", 'trap "exit 0" TERM; sleep infinity & wait'],
}
WORKLOADS = ("Deployment", "DaemonSet")


def mutated(kind: str, raw: Raw, *, is_new: bool) -> Raw:
    """*raw* as the policy wants it. Of a pod that is there already, containers and variables stay as they are."""
    new = copy.deepcopy(raw)
    if kind == "Node":
        _label(new["metadata"])
        new["metadata"].setdefault("annotations", {}).setdefault(*LABEL)
    elif kind in WORKLOADS:
        _label(new["metadata"])
        _label(new["spec"]["template"].setdefault("metadata", {}))
        _mutate_pod(new["spec"]["template"]["spec"], is_new=True)
    elif kind == "Pod":
        _label(new["metadata"])
        _mutate_pod(new["spec"], is_new=is_new)
    return new


def without_mirror(image: str) -> str:
    """The image that was asked for."""
    return image.removeprefix(MIRROR)


def without_policy(raw: Raw) -> Raw:
    """A workload as it was before the policy."""
    new = copy.deepcopy(raw)
    for metadata in (new["metadata"], new["spec"]["template"]["metadata"]):
        metadata.get("labels", {}).pop(LABEL[0], None)
    new["spec"]["template"]["spec"] = pod_without_policy(new["spec"]["template"]["spec"])
    return new


def pod_without_policy(spec: Raw) -> Raw:
    """The spec of a pod or of a template as it was before the policy."""
    new = copy.deepcopy(spec)
    new["containers"] = [each for each in new["containers"] if each["name"] != SIDECAR["name"]]
    for each in _containers(new):
        each["image"] = without_mirror(each["image"])
        _remove(each, "env", ENVIRONMENT)
    _remove(new, "tolerations", TOLERATION)
    return new


def _mutate_pod(spec: Raw, *, is_new: bool) -> None:
    _append(spec, "tolerations", TOLERATION)
    if is_new:
        # A sidecar beside containers that are to end would keep their pod forever.
        if spec.get("restartPolicy", "Always") == "Always" and not _has_sidecar(spec):
            spec["containers"].append(copy.deepcopy(SIDECAR))
        for each in _containers(spec):
            _append(each, "env", ENVIRONMENT)
    for each in _containers(spec):
        if not each["image"].startswith(MIRROR):
            each["image"] = MIRROR + each["image"]


def _label(metadata: Raw) -> None:
    metadata["labels"] = {**(metadata.get("labels") or {}), LABEL[0]: LABEL[1]}


def _append(raw: Raw, name: str, item: Raw) -> None:
    held = raw.get(name) or []
    if item not in held:
        raw[name] = [*held, dict(item)]


def _remove(raw: Raw, name: str, item: Raw) -> None:
    if left := [each for each in raw.get(name, ()) if each != item]:
        raw[name] = left
    else:
        raw.pop(name, None)


def _has_sidecar(spec: Raw) -> bool:
    return any(each["name"] == SIDECAR["name"] for each in spec["containers"])


def _containers(spec: Raw) -> Iterator[Raw]:
    for name in ("initContainers", "containers"):
        yield from spec.get(name) or ()
