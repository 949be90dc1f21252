"""What the API server refuses as invalid: the rules that controllers meet, not all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

Raw = dict[str, Any]
KEY = re.compile(r"([-a-z0-9.]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
LONGEST_LABEL, LONGEST_NAME = 63, 253
EDITABLE = {"activeDeadlineSeconds", "schedulingGates", "terminationGracePeriodSeconds", "tolerations"}


def metadata(old: Raw | None, new: Raw) -> Iterator[str]:
    found = new["metadata"]
    name = found.get("name", "")
    # RBAC and Events may have other names; the first may contain colons.
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9.:]*[a-z0-9])?", name) or len(name) > LONGEST_NAME:
        yield f'metadata.name: Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of lower case'
    for key, value in (found.get("labels") or {}).items():
        if not KEY.fullmatch(key) or not LABEL.fullmatch(value) or len(value) > LONGEST_LABEL:
            yield f'metadata.labels: Invalid value: "{value}": a valid label must be an empty string or consist'
    for key in found.get("annotations") or {}:
        if not KEY.fullmatch(key):
            yield f'metadata.annotations: Invalid value: "{key}": name part must consist of alphanumeric characters'
    if old and "deletionTimestamp" in old["metadata"]:
        added = set(found.get("finalizers", ())) - set(old["metadata"].get("finalizers", ()))
        if added:
            yield "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted"


def required(schema: Raw) -> Callable[[Raw | None, Raw], Iterator[str]]:
    """What the schema of a CRD requires in objects that are there."""

    def missing(value: Any, part: Raw, path: str) -> Iterator[str]:
        if isinstance(value, list):
            for at, each in enumerate(value):
                yield from missing(each, part.get("items", {}), f"{path}[{at}]")
        if isinstance(value, dict):
            yield from (
                f"{path}.{name}: Required value" for name in part.get("required", ()) if name not in value
            )
            for name, known in part.get("properties", {}).items():
                yield from missing(value.get(name), known, f"{path}.{name}")

    return lambda _old, new: missing(new.get("spec"), schema.get("properties", {}).get("spec", {}), "spec")


def workload(old: Raw | None, new: Raw) -> Iterator[str]:
    """Deployments, DaemonSets, StatefulSets."""
    spec = new["spec"]
    selector = spec.get("selector")
    if not selector:
        yield "spec.selector: Required value"
    labels = spec["template"].get("metadata", {}).get("labels") or {}
    if selector and not (selector.get("matchLabels") or {}).items() <= labels.items():
        yield "spec.template.metadata.labels: Invalid value: `selector` does not match template `labels`"
    if old and old["spec"].get("selector") != selector:
        yield "spec.selector: Invalid value: field is immutable"
    if spec["template"]["spec"].get("restartPolicy") != "Always":
        yield 'spec.template.spec.restartPolicy: Unsupported value: supported values: "Always"'
    yield from pod_spec(spec["template"]["spec"], "spec.template.spec")


def pod(old: Raw | None, new: Raw) -> Iterator[str]:
    yield from pod_spec(new["spec"], "spec")
    if old:
        yield from _pod_update(old["spec"], new["spec"])
    elif new["spec"].get("schedulingGates") and new["spec"].get("nodeName"):
        yield "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"


def pod_spec(spec: Raw, path: str) -> Iterator[str]:
    if not spec.get("containers"):
        yield f"{path}.containers: Required value"
    names: set[str] = set()
    for kind in ("initContainers", "containers"):
        for at, each in enumerate(spec.get(kind, ())):
            for field in ("name", "image"):
                if not each.get(field):
                    yield f"{path}.{kind}[{at}].{field}: Required value"
            if each.get("name") in names:
                yield f'{path}.{kind}[{at}].name: Duplicate value: "{each["name"]}"'
            names.add(each.get("name", ""))
    for at, each in enumerate(spec.get("tolerations", ())):
        if not each.get("key") and each.get("operator") != "Exists":
            yield f"{path}.tolerations[{at}].operator: Invalid value: operator must be Exists when `key` is empty"


def role_binding(old: Raw | None, new: Raw) -> Iterator[str]:
    if old and old.get("roleRef") != new.get("roleRef"):
        yield "roleRef: Invalid value: cannot change roleRef"


def immutable_data(old: Raw | None, new: Raw) -> Iterator[str]:
    if old and old.get("type") != new.get("type"):
        yield "type: Invalid value: field is immutable"
    if old and old.get("immutable") and old.get("data") != new.get("data"):
        yield "data: Forbidden: field is immutable when `immutable` is set"


def secret(old: Raw | None, new: Raw) -> Iterator[str]:
    yield from immutable_data(old, new)
    if new.get("type") == "kubernetes.io/tls":
        missing = {"tls.crt", "tls.key"} - new.get("data", {}).keys()
        yield from (f"data[{each}]: Required value" for each in sorted(missing))


def controller_revision(old: Raw | None, new: Raw) -> Iterator[str]:
    if old and old.get("data") != new.get("data"):
        yield "data: Invalid value: field is immutable"
    if new.get("revision", 0) < 0:
        yield "revision: Invalid value: must be greater than or equal to 0"


def node(old: Raw | None, new: Raw) -> Iterator[str]:
    before = (old or {}).get("spec", {}).get("providerID")
    if before and before != new.get("spec", {}).get("providerID"):
        yield "spec.providerID: Forbidden: node updates may only change labels, taints, or capacity"
    seen = set()
    for at, each in enumerate(new.get("spec", {}).get("taints", ())):
        if (each.get("key"), each.get("effect")) in seen:
            yield f"spec.taints[{at}]: Duplicate value"
        seen.add((each.get("key"), each.get("effect")))


def lease(old: Raw | None, new: Raw) -> Iterator[str]:
    seconds = new.get("spec", {}).get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield "spec.leaseDurationSeconds: Invalid value: must be greater than 0"


def _pod_update(old: Raw, new: Raw) -> Iterator[str]:
    """Of a pod's spec, gates may only go, tolerations only come, and placement only be tightened while it is gated."""
    gates, kept = old.get("schedulingGates", []), new.get("schedulingGates", [])
    if any(each not in gates for each in kept):
        yield "spec.schedulingGates: Forbidden: only deletion is allowed, but found new scheduling gate"
    tolerations = new.get("tolerations", [])
    if not all(
        any(_same_toleration(each, now) for now in tolerations) for each in old.get("tolerations", [])
    ):
        yield "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
    for field in (old.keys() | new.keys()) - EDITABLE:
        if not _may_change(field, old, new):
            yield f"spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image` ({field})"


def _may_change(field: str, old: Raw, new: Raw) -> bool:
    before, after = old.get(field), new.get(field)
    if before == after:
        return True
    if field in ("containers", "initContainers"):
        return _without_images(before) == _without_images(after)
    if not old.get("schedulingGates"):
        return False
    if field == "nodeSelector":
        return (before or {}).items() <= (after or {}).items()
    return field == "affinity" and _is_tightened(before or {}, after or {})


def _same_toleration(old: Raw, new: Raw) -> bool:
    """But for its seconds."""
    return {**old, "tolerationSeconds": 0} == {**new, "tolerationSeconds": 0}


def _without_images(containers: Any) -> list[Raw]:
    return [{**each, "image": ""} for each in containers or ()]


def _is_tightened(old: Raw, new: Raw) -> bool:
    """Terms of the required node affinity may gain expressions, or come where none were; preferences may change."""
    before, after = _required(old), _required(new)
    if _rest(old) != _rest(new):
        return False
    if not before:
        return True
    return len(before) == len(after) and all(map(_term_is_tightened, before, after))


def _term_is_tightened(old: Raw, new: Raw) -> bool:
    return all(
        new.get(name, [])[: len(old.get(name, []))] == old.get(name, [])
        for name in ("matchExpressions", "matchFields")
    )


def _required(affinity: Raw) -> list[Raw]:
    node_affinity = affinity.get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms: list[Raw] = required.get("nodeSelectorTerms") or []
    return terms


def _rest(affinity: Raw) -> Raw:
    return {name: each for name, each in affinity.items() if name != "nodeAffinity" and each}
