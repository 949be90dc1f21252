"""Which fields of a pod template another field manager owns, by the managedFields of the object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from kube.types import Value, complete
from webhook.ingress_daemonset import APPLIED_TEMPLATE

SHOWN = 3
"""Fields that a message names at most."""
SELF = "."


class ManagedFields(Value, frozen=True):
    manager: str = ""
    subresource: str = ""
    fields: dict[str, Any] = msgspec.field(default={}, name="fieldsV1")


class Metadata(Value, frozen=True):
    managed_fields: tuple[ManagedFields, ...] = ()


class Managed(Value, frozen=True):
    metadata: Metadata = Metadata()


complete(Managed)


@dataclass(frozen=True)
class Alteration:
    """*fields* are paths; without any, a field was removed, which has no manager."""

    manager: str = ""
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.fields:
            return "a field of spec.template was removed"
        more = ", ..." if len(self.fields) > SHOWN else ""
        return f"{', '.join(self.fields[:SHOWN])}{more} by field manager {self.manager or 'unknown'!r}"


def alteration(found: Managed) -> Alteration:
    """By the manager, other than us, that owns most of the template."""
    theirs = [each for each in found.metadata.managed_fields if not each.subresource and not _is_ours(each)]
    fields = [Alteration(each.manager, tuple(_template_fields(each))) for each in theirs]
    return max(fields, key=lambda each: len(each.fields), default=Alteration())


def _is_ours(entry: ManagedFields) -> bool:
    return f"f:{APPLIED_TEMPLATE}" in _at(entry.fields, ("f:metadata", "f:annotations"))


def _template_fields(entry: ManagedFields) -> Iterator[str]:
    template = _at(entry.fields, ("f:spec", "f:template"))
    yield from _paths(template, "spec.template") if template else ()


def _at(fields: Mapping[str, Any], path: Iterable[str]) -> Mapping[str, Any]:
    for key in path:
        fields = fields.get(key) or {}
    return fields


def _paths(fields: Mapping[str, Any], path: str) -> Iterator[str]:
    parts = {key: value for key, value in fields.items() if key != SELF}
    # An item or a map that has a manager itself was added as a whole.
    if not parts or SELF in fields:
        yield path
        return
    for key, value in parts.items():
        yield from _paths(value, f"{path}{_segment(key)}")


def _segment(key: str) -> str:
    """``f:name`` is a field, ``k:{"name":"proxy"}`` an item by its keys, anything else an item."""
    kind, _, name = key.partition(":")
    if kind != "k":
        return f".{name}" if kind == "f" else f"[{name}]"
    try:
        keys = msgspec.json.decode(name, type=dict[str, Any])
    except msgspec.MsgspecError:
        return f"[{name}]"
    return f"[{','.join(f'{key}={value}' for key, value in keys.items())}]"
