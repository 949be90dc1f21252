"""Explain a mistake in the names of the file: where, which value, and what to write."""

import difflib
from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from settings.models import Settings


def explain(error: ErrorDetails, moved: frozenset[str] = frozenset()) -> str:
    """One line for one of pydantic's errors; *moved* fields stand at the file's top, not in ipReservation."""
    path = list(error["loc"])
    if path[1:] and path[0] == "ipReservation" and path[1] in moved:
        path = path[1:]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    return f"{where}: {_reason(error, moved)}" if where else _reason(error, moved)


def _reason(error: ErrorDetails, moved: frozenset[str]) -> str:
    value = error["input"]
    match error["type"]:
        case "value_error":
            return str(error["ctx"]["error"])
        case "extra_forbidden":
            return _unknown_field(error["loc"], moved)
        case "missing":
            return "is missing; write it, too"
        case "model_type" | "model_attributes_type" | "dict_type" | "mapping_type":
            return f"{value!r} is not a mapping of fields"
        case "tuple_type":
            return f"{value!r} is not a list"
        case "string_type":
            return f"{value!r} is not text; put it in quotes"
        case _:
            return f"{value!r} is refused: {error['msg'][:1].lower()}{error['msg'][1:]}"


def _unknown_field(location: Sequence[int | str], moved: frozenset[str]) -> str:
    *parents, name = location
    known = _fields(parents)
    if not parents:
        known += sorted(moved)
    if near := difflib.get_close_matches(str(name), known, n=1):
        return f"unknown field; did you mean {near[0]}?"
    return f"unknown field; known here are {', '.join(known)}"


def _fields(location: Sequence[int | str]) -> list[str]:
    """The names, as written in the file, of the fields of the model at *location*."""
    model: Any = Settings
    for part in location:
        model = get_args(model)[0] if isinstance(part, int) else _fields_of(model)[part]
    return list(_fields_of(model))


def _fields_of(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}
