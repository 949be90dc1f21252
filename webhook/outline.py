"""Leave out what is longer than it needs to be, before an object is decoded: 7 MiB of JSON can be 200 MiB of values."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

LONGEST_LIST, LONGEST = 256 * 1024, 2 * 1024 * 1024
"""Bytes of one field. All annotations of a stored object have 256 KiB, before JSON escapes them."""
ABSENT = msgspec.Raw()


def shortened(raw: msgspec.Raw, kind: type[msgspec.Struct]) -> bytes | msgspec.Raw:
    """Of *raw*, what *kind* reads, without fields that are too long: they take their defaults. MsgspecError."""
    if memoryview(raw).nbytes <= LONGEST_LIST:
        return raw
    outline = msgspec.json.decode(raw, type=_outline_of(kind))
    _shorten(outline, kind)
    return msgspec.json.encode(outline)


def _shorten(outline: msgspec.Struct, kind: type[msgspec.Struct]) -> None:
    for each in msgspec.structs.fields(kind):
        value = getattr(outline, each.name)
        if isinstance(value, msgspec.Struct):
            _shorten(value, each.type)
        elif each.type is not msgspec.Raw and value is not msgspec.UNSET and _is_too_long(memoryview(value)):
            setattr(outline, each.name, ABSENT)


def _is_too_long(value: memoryview) -> bool:
    return value.nbytes > (LONGEST_LIST if bytes(value[:1]) == b"[" else LONGEST)


@lru_cache
def _outline_of(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """With the fields of *kind*, each of which stays as it is written."""
    fields = [_outline_of_field(each) for each in msgspec.structs.fields(kind)]
    return msgspec.defstruct(f"{kind.__name__}Outline", fields, omit_defaults=True)


def _outline_of_field(each: msgspec.structs.FieldInfo) -> tuple[str, Any, Any]:
    if isinstance(each.type, type) and issubclass(each.type, msgspec.Struct):
        unset = msgspec.field(name=each.encode_name, default=msgspec.UNSET)
        return each.name, _outline_of(each.type) | msgspec.UnsetType, unset
    return each.name, msgspec.Raw, msgspec.field(name=each.encode_name, default=ABSENT)
