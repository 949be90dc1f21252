"""Each set of values in tests/data/renders installs what its file says, and the sets use every template."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator

import pytest
import yaml

from dev.lab import chart, renders
from tests.charts import CHART, SETS, helm, helm_needed

FILES = sorted(renders.RENDERS.glob("*.yaml"))


@functools.cache
def manifests(values: str) -> str:
    return chart.manifests(values)


@helm_needed
@pytest.mark.promise
def test_the_values_change_what_their_file_says(subtests: pytest.Subtests) -> None:
    for file in FILES:
        with subtests.test(file.stem):
            text = file.read_text()
            found = renders.renewed(text, manifests("{}"), manifests(renders.values_in(text)))
            assert found == text, "run: make manifests"


def twice(node: yaml.Node) -> Iterator[str]:
    """The keys that a mapping has twice, of which Helm and kubectl silently take the last."""
    if isinstance(node, yaml.MappingNode):
        keys = Counter(key.value for key, _ in node.value)
        yield from (key for key, count in keys.items() if count > 1)
    parts = node.value if isinstance(node.value, list) else []
    for part in parts:
        for each in part if isinstance(part, tuple) else [part]:
            yield from twice(each)


@helm_needed
def test_no_mapping_has_a_key_twice() -> None:
    texts = {file.stem: manifests(renders.values_in(file.read_text())) for file in FILES}
    nodes = {name: yaml.compose_all(text, Loader=yaml.CSafeLoader) for name, text in texts.items()}

    assert [
        (name, key) for name, parts in nodes.items() for node in parts if node for key in twice(node)
    ] == []
    assert [*twice(yaml.compose("a: [{b: 1, c: 2, b: 3}]"))] == ["b"]


@helm_needed
def test_the_chart_lints_strictly() -> None:
    for name in ("the-defaults", "all-monitoring-of-all-features", "the-values-of-TKE-Resilience"):
        helm("lint", "--strict", str(CHART), values=SETS[name])


@helm_needed
def test_every_template_is_rendered_for_one_of_them() -> None:
    templates = {str(path.relative_to(CHART)) for path in (CHART / "templates").rglob("*.yaml")}

    texts = [manifests(renders.values_in(file.read_text())) for file in FILES]
    assert {name for text in texts for name in re.findall(r"# Source: drawbridge/(\S+)", text)} == templates
