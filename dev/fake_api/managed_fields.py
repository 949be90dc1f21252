"""Which manager has written which field last, as ``metadata.managedFields`` has it after plain updates."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

Raw = dict[str, Any]
Path = tuple[str, ...]
KEYS = {
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "ports": ("containerPort", "protocol"),
    "schedulingGates": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
    "webhooks": ("name",),
}
"""Lists whose items are owned one by one, with the fields that tell these apart; other lists are owned whole."""
UNOWNED = {
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "uid",
}
"""Fields of metadata that the server sets itself."""


def updated(
    old: Raw, new: Raw, manager: str, api_version: str, time: str, subresource: str = ""
) -> list[Raw]:
    """The entries after *manager* made *new* of *old*: it owns what it changed, and no entry keeps what is gone."""
    before, after = _differing(old, new)
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    gone = before.keys() - after.keys()
    own, entries = None, []
    for each in old.get("metadata", {}).get("managedFields", []):
        if _identity(each) == (manager, subresource):
            own = each["fieldsV1"]
        elif kept := _without(each["fieldsV1"], changed | gone):
            entries.append({**each, "fieldsV1": kept})
    if changed or own:
        fields = _with(own or {}, changed, gone)
        entries.append(_entry(manager, api_version, time, subresource, fields))
    return [each for each in entries if each["fieldsV1"]]


def _without(tree: Raw, paths: Set[Path]) -> Raw:
    return _tree({*_paths(tree)} - paths) if any(_has(tree, each) for each in paths) else tree


def _with(tree: Raw, added: set[Path], gone: Set[Path]) -> Raw:
    kept = _without(tree, gone)
    return kept if all(_has(kept, each) for each in added) else _tree({*_paths(kept)} | added)


def _has(tree: Raw, path: Path) -> bool:
    """Whether it ends there: most writes change what their manager has long owned."""
    for step in path:
        below = tree.get(step)
        if below is None:
            return False
        tree = below
    return not tree


def _differing(old: Raw, new: Raw) -> tuple[dict[Path, Any], dict[Path, Any]]:
    """The leaves of each one, without most of those that are the same in both."""
    before, after = dict(_leaves(_changed(old, new))), dict(_leaves(_changed(new, old)))
    return before, after


def _changed(raw: Raw, other: Raw) -> Raw:
    """*raw* without its parts that are the same in *other*; metadata by its own parts."""
    parts = {name: each for name, each in raw.items() if name != "metadata" and other.get(name) != each}
    metadata, beside = raw.get("metadata", {}), other.get("metadata", {})
    return {
        **parts,
        "metadata": {name: each for name, each in metadata.items() if beside.get(name) != each},
    }


def _entry(manager: str, api_version: str, time: str, subresource: str, fields: Raw) -> Raw:
    entry = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": api_version,
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    return {**entry, "subresource": subresource} if subresource else entry


def _identity(entry: Raw) -> tuple[str, str]:
    return entry["manager"], entry.get("subresource", "")


def _leaves(raw: Raw) -> Iterator[tuple[Path, Any]]:
    for name, value in raw.items():
        if name == "metadata":
            rest = {each: part for each, part in value.items() if each not in UNOWNED}
            yield from _below(rest, ("f:metadata",))
        elif name not in ("apiVersion", "kind"):
            yield from _value(name, value, ())


def _below(raw: Raw, path: Path) -> Iterator[tuple[Path, Any]]:
    for name, value in raw.items():
        yield from _value(name, value, path)


def _value(name: str, value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    here = (*path, f"f:{name}")
    if isinstance(value, dict) and value:
        yield (*here, "."), None
        yield from _below(value, here)
    elif isinstance(value, list) and _is_keyed(name, value):
        yield (*here, "."), None
        for each in value:
            yield from _item(name, each, here)
    else:
        yield here, value


def _item(name: str, item: Raw, path: Path) -> Iterator[tuple[Path, Any]]:
    pairs = [f'"{each}":{_json(item.get(each))}' for each in KEYS[name] if each in item]
    here = (*path, "k:{" + ",".join(pairs) + "}")
    yield (*here, "."), None
    yield from _below(item, here)


def _json(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _is_keyed(name: str, items: list[Any]) -> bool:
    return name in KEYS and all(isinstance(each, dict) and KEYS[name][0] in each for each in items)


def _tree(paths: set[Path]) -> Raw:
    tree: Raw = {}
    for path in sorted(paths):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
    return tree


def _paths(tree: Raw, above: Path = ()) -> Iterator[Path]:
    for name, below in tree.items():
        if below:
            yield from _paths(below, (*above, name))
        else:
            yield (*above, name)
