"""Turn the configuration file into settings, or into a list of all mistakes, in the names of the file."""

import difflib
import os
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from settings.models import HEADER, Settings

DEFAULT_PATH = "/etc/drawbridge/config.yaml"

CAPO_HEADER = ("config.capo.io/v1", "CapoConfig")
"""Of the original: such a file is accepted as it is."""
CAPO_MOVED = {
    "maxCount": "ipReserveMaxCount",
    "duration": "ipReserveTime",
    "releasePeriod": "ipReleasePeriod",
    "labelSelector": "labelSelector",
}
"""Under `ipReservation` of ours, with their names at the top of a CapoConfig."""


class SettingsError(Exception):
    """`problems` has a line for each mistake, in the names of the file."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


def config_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the configuration file is: DRAWBRIDGE_CONFIG, or its default."""
    return Path(environ.get("DRAWBRIDGE_CONFIG") or DEFAULT_PATH)


def load(path: str | os.PathLike[str]) -> Settings:
    """The settings in the file; SettingsError when it cannot be read or used."""
    try:
        return parse(Path(path).read_bytes())
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error


def parse(text: str | bytes) -> Settings:
    """The settings in one YAML document of ours or of Capo; SettingsError when it cannot be used."""
    try:
        document = _mapping_in(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: what YAML takes for a date
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        raise SettingsError(f"line {mark.line + 1}: {problem}" if mark else problem) from error
    header = (document.get("apiVersion"), document.get("kind"))
    if header == HEADER:
        return _validated(document, {})
    if header != CAPO_HEADER:
        raise SettingsError(
            f"apiVersion, kind: {header[0]!r} and {header[1]!r} are unknown; write {_written(HEADER)} "
            f"({_written(CAPO_HEADER)} of the original are understood, too)"
        )
    if "ipReservation" in document:
        raise SettingsError(f"ipReservation: not a field of a {CAPO_HEADER[1]}; write {_written(HEADER)}")
    known = {*CAPO_MOVED.values(), "apiVersion", "kind"}
    kept = {key: value for key, value in document.items() if key not in known}
    capo = {ours: document[theirs] for ours, theirs in CAPO_MOVED.items() if theirs in document}
    return _validated(kept | {"ipReservation": capo}, CAPO_MOVED)


def _written(header: tuple[str, str]) -> str:
    return f"apiVersion: {header[0]} and kind: {header[1]}"


def _validated(fields: Mapping[str, object], moved: Mapping[str, str]) -> Settings:
    try:
        return Settings.model_validate(fields, by_alias=True, by_name=False)
    except ValidationError as error:
        raise SettingsError(*(_explain(problem, moved) for problem in error.errors())) from error


def _explain(error: ErrorDetails, moved: Mapping[str, str]) -> str:
    """One line for one of pydantic's errors; *moved* fields of ipReservation stand at the top, by other names."""
    path = list(error["loc"])
    if path[1:] and path[0] == "ipReservation" and path[1] in moved:
        path = [moved[str(path[1])], *path[2:]]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
    return f"{where}: {_reason(error, moved)}" if where else _reason(error, moved)


def _reason(error: ErrorDetails, moved: Mapping[str, str]) -> str:
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


def _unknown_field(location: Sequence[int | str], moved: Mapping[str, str]) -> str:
    *parents, name = location
    known = _fields(parents)
    if not parents:
        known += sorted(moved.values())
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
    if not hasattr(model, "model_fields"):
        return dict(model.__annotations__)  # Kubernetes' own names, as a typed dict
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


class _StrictLoader(yaml.SafeLoader):
    """YAML's own rule, which PyYAML does not enforce: the keys of a mapping are unique."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                problem = f"{key.value} stands here a second time"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def _mapping_in(text: str | bytes) -> dict[str, Any]:
    """The mapping in the document; YAMLError for anything else, also for an empty document."""
    document = yaml.load(text, _StrictLoader)  # noqa: S506 - it is a SafeLoader
    if document is None:
        # Likely a mistake: all defaults take two lines.
        raise yaml.MarkedYAMLError(problem="the document is empty; write at least apiVersion and kind")
    if not isinstance(document, dict):
        raise yaml.MarkedYAMLError(problem=f"the document is a {type(document).__name__}, not a mapping")
    return document
