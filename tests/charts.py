"""The chart as Helm takes it: what is installed for which values, and what is refused."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.lab import binaries, chart, renders
from settings import Settings, parse

CHART = chart.CHART
DATA = Path(__file__).parent / "data" / "chart"
NAMESPACE = "gate-system"
CONFIG = "templates/configmap.yaml"
"""The template of the programs' configuration."""
TEMPLATES = (
    CONFIG,
    *sorted({str(path.relative_to(CHART)) for path in (CHART / "templates").rglob("*.yaml")} - {CONFIG}),
)
PAIR = re.compile(r"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}")
SETS = {
    file.stem: yaml.safe_load(renders.values_in(file.read_text())) for file in renders.RENDERS.glob("*.yaml")
}
"""The values of each file in tests/data/renders."""
CAPO_VALUES = """
replicaCount: 3
config:
  leaderElectionEnable: true
  healthProbeBindAddress: ":8081"
  webhookPort: 9443
  metricsBindAddress: ":8080"
  ipReserveMaxCount: 300
  ipReserveTime: 40m
  ipReleasePeriod: 5s
"""
"""All that the original of ip_reservation, Capo, can be installed with."""
ANYCAST_IP: dict[str, Any] = {
    "anycastIP": {"enabled": True, "clusterID": "cls-1"},
    "cloud": {"region": "ap-singapore", "existingSecret": "keys"},
}
CA = (DATA / "ca.crt").read_text()

Objects = dict[tuple[str, str], dict[str, Any]]
helm_needed = pytest.mark.programs


def helm(*arguments: str, values: dict[str, Any]) -> str:
    command = [binaries.ensure("helm")["helm"], *arguments, "--namespace", NAMESPACE, "--values", "-"]
    text = json.dumps(values)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@functools.cache
def manifests(values: str) -> str:
    return chart.manifests(values, "--namespace", NAMESPACE)


def render(values: dict[str, Any] | None = None) -> Objects:
    parsed = yaml.load_all(manifests(json.dumps(values or {})), Loader=yaml.CSafeLoader)
    documents = [document for document in parsed if document]
    objects = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    assert len(objects) == len(documents), "two objects have one name"
    return objects


def of_kinds(objects: Objects, *kinds: str) -> dict[str, dict[str, Any]]:
    """By their names."""
    return {name: each for (kind, name), each in objects.items() if kind in kinds}


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The values of a schema and the sections in which they stand, by their paths."""
    for key, value in schema.get("properties", {}).items():
        yield f"{path}{key}", value
        yield from nodes(value, f"{path}{key}.")


def configurations(sets: Sequence[dict[str, Any]], *templates: str) -> list[dict[str, str]]:
    """What Helm's libraries make of each, many a second: `config`, the programs' file, or `refused` or `broken` with
    a reason. All templates are rendered unless some are named, the ConfigMap first.
    """
    chosen = templates or TEMPLATES
    command = [binaries.ensure("configs")["configs"], CHART, NAMESPACE, *chosen]
    questions = "".join(as_yaml(values) + "\n" for values in sets)
    done = subprocess.run(command, input=questions, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert len(answers) == len(sets), done.stderr
    return answers


def as_yaml(values: dict[str, Any]) -> str:
    """In one line of JSON; YAML knows no character that is escaped as two surrogates."""
    return PAIR.sub(lambda found: str(json.loads(f'"{found[0]}"')), json.dumps(values))


def table(name: str) -> Any:
    return yaml.safe_load((DATA / f"{name}.yaml").read_text())


def settings_in(objects: Objects) -> Settings:
    """From the ConfigMap that the programs read."""
    [text] = [
        each["data"]["config.yaml"]
        for each in of_kinds(objects, "ConfigMap").values()
        if "config.yaml" in each["data"]
    ]
    return parse(text)
