"""A container's environment, command line and working directory, as Kubernetes makes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dev.lab.kubelet.values import CannotRun, Data, Kind, Place, Pod, Store, field, reference_name

REFERENCE = re.compile(r"\$(\$|\(([^()]*)\))")
KEYS: tuple[tuple[str, Kind], ...] = (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret"))


def expand(text: str, variables: Mapping[str, str]) -> str:
    """``$(NAME)`` replaced when the variable is known, left as it is otherwise; ``$$`` stands for ``$``."""

    def value(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return variables.get(match[2], match[0])

    return REFERENCE.sub(value, text)


def command(container: Mapping[str, Any], variables: Mapping[str, str]) -> list[str]:
    """What is run; an image of ours has no entry point."""
    words = [*container.get("command", ()), *container.get("args", ())]
    if not words:
        raise CannotRun(
            "CreateContainerConfigError",
            f"container {container['name']!r} has no command, and the lab's images have no entry point",
        )
    return [expand(word, variables) for word in words]


def environment(
    pod: Pod, container: Mapping[str, Any], place: Place, store: Store, given: Mapping[str, str]
) -> dict[str, str]:
    """``given``, then ``env``: later ones win, and may refer to earlier ones."""
    variables = dict(given)
    for variable in container.get("env", ()):
        value = _value(pod, variable, place, store, variables)
        if value is not None:
            variables[variable["name"]] = value
    return variables


def _value(
    pod: Pod, variable: Mapping[str, Any], place: Place, store: Store, earlier: Mapping[str, str]
) -> str | None:
    origin = variable.get("valueFrom")
    if origin is None:
        return expand(variable.get("value", ""), earlier)
    if "fieldRef" in origin:
        return field(pod, place, origin["fieldRef"]["fieldPath"])
    for name, kind in KEYS:
        if name in origin:
            return _key_of(store, kind, origin[name])
    raise CannotRun(
        "CreateContainerConfigError",
        f"variable {variable['name']!r}: valueFrom {sorted(origin)} is not known; use a fieldRef or a key",
    )


def _key_of(store: Store, kind: Kind, reference: Mapping[str, Any]) -> str | None:
    data = required(store, kind, reference)
    if data is not None and reference["key"] in data:
        return data[reference["key"]].decode()
    if reference.get("optional"):
        return None
    raise CannotRun(
        "CreateContainerConfigError",
        f"couldn't find key {reference['key']} in {kind} {reference_name(reference)}",
    )


def required(store: Store, kind: Kind, reference: Mapping[str, Any]) -> Data | None:
    """What the reference names; None only when it is optional."""
    data = store[kind, reference_name(reference)]
    if data is None and not reference.get("optional"):
        raise CannotRun(
            "CreateContainerConfigError", f"{kind.lower()} {reference_name(reference)!r} not found"
        )
    return data
