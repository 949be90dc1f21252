"""Turn the configuration file into settings, or into a list of all mistakes."""

import os
from collections.abc import Mapping
from pathlib import Path

import yaml
from pydantic import ValidationError

from settings import capo, models
from settings.models import Settings
from settings.problems import explain
from settings.yaml_document import mapping_in

DEFAULT_PATH = "/etc/drawbridge/config.yaml"


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
        document = mapping_in(text)
    except yaml.YAMLError as error:
        raise SettingsError(_place_and_problem(error)) from error
    match (document.get("apiVersion"), document.get("kind")):
        case models.HEADER:
            return _validated(document)
        case capo.HEADER if "ipReservation" not in document:
            return _validated(capo.translated(document), moved=capo.MOVED)
        case capo.HEADER:
            raise SettingsError(
                f"ipReservation: not a field of a {capo.HEADER[1]}; write {_header(models.HEADER)}"
            )
        case api_version, kind:
            raise SettingsError(
                f"apiVersion, kind: {api_version!r} and {kind!r} are unknown; write {_header(models.HEADER)} "
                f"({_header(capo.HEADER)} of the original are understood, too)"
            )


def _header(header: tuple[str, str]) -> str:
    return f"apiVersion: {header[0]} and kind: {header[1]}"


def _validated(fields: Mapping[str, object], moved: frozenset[str] = frozenset()) -> Settings:
    try:
        return Settings.model_validate(fields, by_alias=True, by_name=False)
    except ValidationError as error:
        raise SettingsError(*(explain(problem, moved) for problem in error.errors())) from error


def _place_and_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"line {mark.line + 1}: {problem}" if mark else problem
