"""Each set of values in tests/data/renders installs what its file says, and the sets together all that there is."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lab import chart, renders
from tests.charts import CHART, helm, helm_needed

SETS = sorted(renders.RENDERS.glob("*.yaml"))
each_set = pytest.mark.parametrize("file", SETS, ids=lambda file: file.stem)
WORKED_WITH = """\
kind: Deployment
metadata:
  name: gate
spec:
  replicas: 1
  template:
    spec:
      containers:
        - name: gate
          args:
            - --quiet
---
kind: Secret
metadata:
  name: keys
"""


@functools.cache
def manifests(values: str) -> str:
    return chart.manifests(values)


@helm_needed
@each_set
def test_the_values_change_what_their_file_says(file: Path) -> None:
    text = file.read_text()

    found = renders.renewed(text, manifests("{}"), manifests(renders.values_in(text)))
    assert found == text, "run: make manifests"


@helm_needed
@each_set
def test_rendered_anew_they_give_the_same_bytes(file: Path) -> None:
    values = renders.values_in(file.read_text())

    assert chart.manifests(values) == manifests(values)


def twice(node: yaml.Node) -> Iterator[str]:
    """The keys that stand twice in one mapping, of which Helm and kubectl silently take the last."""
    if isinstance(node, yaml.MappingNode):
        keys = Counter(key.value for key, _ in node.value)
        yield from (key for key, count in keys.items() if count > 1)
    parts = node.value if isinstance(node.value, list) else []
    for part in parts:
        for each in part if isinstance(part, tuple) else [part]:
            yield from twice(each)


@helm_needed
@each_set
def test_no_key_stands_twice_in_a_mapping(file: Path) -> None:
    nodes = yaml.compose_all(manifests(renders.values_in(file.read_text())), Loader=yaml.CSafeLoader)

    assert [key for node in nodes if node is not None for key in twice(node)] == []


def test_a_key_that_stands_twice_is_found() -> None:
    assert [*twice(yaml.compose("a: [{b: 1, c: 2, b: 3}]"))] == ["b"]


@helm_needed
@each_set
def test_the_chart_lints_strictly_with_them(file: Path) -> None:
    values = yaml.safe_load(file.read_text())["values"]

    done = helm("lint", "--strict", str(CHART), values=values, certs=False)
    assert done.returncode == 0, done.stdout + done.stderr


@helm_needed
def test_every_template_is_rendered_for_one_of_them() -> None:
    templates = {str(path.relative_to(CHART)) for path in (CHART / "templates").rglob("*.yaml")}

    used = {
        name
        for file in SETS
        for name in re.findall(r"# Source: drawbridge/(\S+)", manifests(renders.values_in(file.read_text())))
    }
    assert used == templates


# What a difference looks like


def changed(right: str, wrong: str) -> list[str]:
    assert right in WORKED_WITH
    return renders.changes(WORKED_WITH, WORKED_WITH.replace(right, wrong)).splitlines()


def test_nothing_is_said_of_what_stays() -> None:
    assert renders.changes(WORKED_WITH, WORKED_WITH) == ""


def test_a_line_is_told_with_the_keys_that_it_stands_under() -> None:
    assert changed("--quiet", "--loud") == [
        "changed: Deployment/gate",
        "@@ spec / template / spec / containers",
        "         - name: gate",
        "           args:",
        "-            - --quiet",
        "+            - --loud",
    ]


def test_an_object_that_goes_is_named_alone() -> None:
    assert changed("---\nkind: Secret\nmetadata:\n  name: keys\n", "") == ["gone: Secret/keys"]


def test_an_object_that_comes_is_told_whole() -> None:
    found = renders.changes("", "---\nkind: Secret\nmetadata:\n  name: keys\n")

    assert found.splitlines() == ["added: Secret/keys", "+kind: Secret", "+metadata:", "+  name: keys"]


def test_a_file_of_the_chart_is_told_by_its_name() -> None:
    file = renders.FILES / "dashboards" / "platform.json"
    lines = [f"    {line}".rstrip() for line in file.read_text().strip().splitlines()]

    text = renders.shortened("\n".join(["data:", "  x: |-", *lines, ""]))
    assert text == "data:\n  x: |-\n    <files/dashboards/platform.json>\n"
