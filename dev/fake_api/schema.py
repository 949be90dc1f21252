"""What a kind's objects may contain: fields that are not in the schema are dropped, with their paths.

Built-in kinds have the types of the official client; a CRD has its structural schema.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from dev.fake_api.values import copied

Raw = dict[str, Any]
GENERIC = re.compile(r"(List|Dict)\[(?:str, )?(.+)\]")
SCALARS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "datetime": (str,),
    "bytes": (str,),
}
# Fields of Go that are neither pointers nor always written: their zero values are not stored. The client's
# types do not show the difference; strings are never pointers in the fields that matter here.
OMITTED_ZEROES = frozenset(
    {
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "initialDelaySeconds",
        "minReadySeconds",
        "paused",
        "readOnly",
        "stdin",
        "stdinOnce",
        "tty",
        "unschedulable",
    }
)


# Strings that are pointers in Go, or always written.
KEPT_EMPTY = frozenset({"apiGroup", "holderIdentity", "storageClassName", "type"})


class Undecodable(Exception):
    """A value has the wrong type."""


class Schema(Protocol):
    def tidy(self, raw: Raw) -> tuple[Raw, list[str]]:
        """The object as it is decoded, sharing nothing with *raw*, and the paths of its unknown fields; Undecodable."""
        ...


class Anything:
    """Every field is stored as it is."""

    def tidy(self, raw: Raw) -> tuple[Raw, list[str]]:
        return copied(raw), []


class Typed:
    """By the official client's type of that name."""

    def __init__(self, model: str) -> None:
        self._model = model

    def tidy(self, raw: Raw) -> tuple[Raw, list[str]]:
        unknown: list[str] = []
        return _typed(raw, self._model, "", unknown), unknown


class Structural:
    """By the openAPIV3Schema of a CRD; metadata is that of every object."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema

    def tidy(self, raw: Raw) -> tuple[Raw, list[str]]:
        unknown: list[str] = []
        identity = {name: raw[name] for name in ("apiVersion", "kind") if name in raw}
        metadata = _typed(raw.get("metadata", {}), "V1ObjectMeta", "metadata", unknown)
        rest = {name: each for name, each in raw.items() if name not in ("apiVersion", "kind", "metadata")}
        body = _structural(rest, self._schema, "", unknown)
        return {**identity, "metadata": metadata, **body}, unknown


def _typed(value: Any, type_: str, path: str, unknown: list[str]) -> Any:
    if value is None or type_ == "object":
        return copied(value)
    if found := _generic(type_):
        return _many(value, found[1], found[2], path, unknown)
    if type_ in SCALARS:
        return _scalar(value, type_, path)
    if not isinstance(value, dict):
        raise Undecodable(f"{path}: cannot unmarshal {_go(value)} into an object")
    fields, kept = _fields(type_), {}
    if not fields:  # V1FieldsV1, V1JSONSchemaProps and the like, whose fields the client does not list
        return copied(value)
    for name, each in value.items():
        if (field := fields.get(name)) is None:
            unknown.append(f"{path}.{name}" if path else name)
        elif each is None or each in field.omitted:
            continue
        elif type(each) is field.plain:
            kept[name] = each
        else:
            kept[name] = _typed(each, field.type_, f"{path}.{name}" if path else name, unknown)
    return kept


def _many(value: Any, kind: str, type_: str, path: str, unknown: list[str]) -> Any:
    if kind == "List" and isinstance(value, list):
        return [_typed(each, type_, f"{path}[{at}]", unknown) for at, each in enumerate(value)]
    if kind != "List" and isinstance(value, dict):
        return {name: _typed(each, type_, f"{path}.{name}", unknown) for name, each in value.items()}
    raise Undecodable(f"{path}: cannot unmarshal {_go(value)} into {kind.lower()}")


def _scalar(value: Any, type_: str, path: str) -> Any:
    if not isinstance(value, SCALARS[type_]) or (isinstance(value, bool) and type_ != "bool"):
        # The client has some types of Go as str that may be written as numbers: quantities.
        if type_ == "str" and isinstance(value, int | float) and ".resources." in path:
            return str(value)
        raise Undecodable(f"{path}: cannot unmarshal {_go(value)} into {type_}")
    return value


def _go(value: Any) -> str:
    names = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return names[type(value)]


class Field(NamedTuple):
    """Values of type *plain* stay as they are; those *omitted* Go would not write again, nor null."""

    type_: str
    plain: type | None
    omitted: tuple[Any, ...]


def _field(name: str, type_: str) -> Field:
    plain = SCALARS[type_][0] if type_ in SCALARS else None
    if _generic(type_):
        return Field(type_, plain, ([], {}))
    if type_ == "str":
        return Field(type_, plain, () if name in KEPT_EMPTY else ("",))
    return Field(type_, plain, (False, 0) if name in OMITTED_ZEROES else ())


_generic = functools.cache(GENERIC.fullmatch)


@functools.cache
def _fields(model: str) -> dict[str, Field]:
    """By their JSON names."""
    from kubernetes.client import models

    found: Any = getattr(models, model, None)
    types = getattr(found, "openapi_types", {})
    names = {found.attribute_map[name]: type_ for name, type_ in types.items()}
    return {name: _field(name, type_) for name, type_ in names.items()}


def preload(schema: Schema) -> None:
    """Read the client's types now, where a process that is forked often would do so again and again."""
    waiting = [schema._model] if isinstance(schema, Typed) else ["V1ObjectMeta"]
    seen = {*SCALARS, "object"}
    while waiting:
        type_ = waiting.pop()
        waiting += [each for each in _types_below(type_) if each not in seen]
        seen |= {*waiting, type_}


def _types_below(type_: str) -> list[str]:
    found = _generic(type_)
    return [found[2]] if found else [each.type_ for each in _fields(type_).values()]


def _structural(value: Any, schema: Mapping[str, Any], path: str, unknown: list[str]) -> Any:
    if schema.get("x-kubernetes-preserve-unknown-fields") and "properties" not in schema:
        return copied(value)
    if isinstance(value, list) and "items" in schema:
        return [_structural(each, schema["items"], f"{path}[{at}]", unknown) for at, each in enumerate(value)]
    if not isinstance(value, dict):
        return copied(value)
    return dict(_members(value, schema, path, unknown))


def _members(
    value: Raw, schema: Mapping[str, Any], path: str, unknown: list[str]
) -> Iterable[tuple[str, Any]]:
    known: Mapping[str, Any] = schema.get("properties", {})
    others = schema.get("additionalProperties")
    for name, each in value.items():
        below = f"{path}.{name}" if path else name
        if name in known:
            yield name, _structural(each, known[name], below, unknown)
        elif isinstance(others, Mapping):
            yield name, _structural(each, others, below, unknown)
        elif others or schema.get("x-kubernetes-preserve-unknown-fields"):
            yield name, copied(each)
        else:
            unknown.append(below)


def defaults_of(schema: Mapping[str, Any]) -> Callable[[Raw], None]:
    """Sets what a CRD's schema gives as defaults, in objects that are there."""

    def fill(value: Any, part: Mapping[str, Any]) -> None:
        if isinstance(value, list):
            for each in value:
                fill(each, part.get("items", {}))
        if isinstance(value, dict):
            for name, known in part.get("properties", {}).items():
                if "default" in known and name not in value:
                    value[name] = copied(known["default"])
                if name in value:
                    fill(value[name], known)

    return lambda raw: fill(raw, schema)
