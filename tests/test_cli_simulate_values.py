"""`drawbridge simulate values`: the settings that the chart would make of them, and what these select."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import reduce
from typing import Any

import pytest
import yaml

from cli.simulate import outcome
from cli.value_names import MAPS, NO_SETTINGS, ORIGINALS, SETTINGS
from dev.lab.install import merged
from tests.charts import CHART, NAMESPACE, SETS, configurations, helm_needed

Raw = dict[str, Any]
CHANGES: dict[str, Raw] = {
    "numbers and times": {"ipReservation": {"maxCount": 12, "duration": "5m"}},
    "a list is replaced": {"ipReservation": {"labelSelector": {"matchExpressions": []}}},
    "a map is merged": {"ipReservation": {"labelSelector": {"matchLabels": {"app": "redis"}}}},
    "labels of nodes": {"anycastIP": {"nodeLabels": {"edge": "true"}, "tags": {"team": "a"}}},
    "names of the originals' charts": {
        "config": {"node": {"labels": {"edge": "true"}}, "aia": {"bandwidth": 5}, "ipReserveTime": "5m"}
    },
    "no limits": {"elasticity": {"maxSuperPods": {"total": None}}, "anycastIP": {"bandwidth": None}},
    "what is rarely changed": {"ipReservation": {"advanced": {"releasePeriod": "1s", "timeout": "9s"}}},
    "namespaces": {"elasticity": {"excludedNamespaces": ["a"], "maxSuperPods": {"total": 5}}},
    "features off": {"elasticity": {"enabled": False}, "ingressDaemonSet": {"enabled": False}},
    "a null": {"elasticity": {"localReplicas": None}},
    "nulls of which the chart makes a setting": {
        "config": {"leaderElectionEnable": None},
        "ipReservation": {"labelSelector": {"matchLabels": None, "matchExpressions": None}},
        "ingressDaemonSet": {"healthChecker": {"resources": None}},
    },
    "sections without entries": {"elasticity": {}, "config": {"node": {}}, "podAnnotations": {}},
    "the cloud": {"cloud": {"region": "ap-guangzhou", "rateShare": "50%", "subnets": []}},
    "what is no setting": {"replicaCount": 5, "webhook": {"threads": 100, "nodeSelector": {"a": "b"}}},
}


@helm_needed
def test_the_settings_are_those_that_the_chart_makes(subtests: pytest.Subtests) -> None:
    for name, base in {"all features": SETS["all-features"], "the defaults": {}}.items():
        sets = [base, *(merged(base, change) for change in CHANGES.values())]
        before, *after = (answer["config"] for answer in configurations(sets))
        for (change, values), config in zip(CHANGES.items(), after, strict=True):
            found, predicted = outcome(before, values, NAMESPACE)
            _, made = outcome(config, {}, NAMESPACE)
            with subtests.test(change, over=name):
                assert found.refused == ()
                assert predicted
                assert made
                assert predicted.then == made.now


def test_other_names_are_values_of_the_chart_for_known_ones() -> None:
    assert set(ORIGINALS.values()) | set(MAPS) <= SETTINGS.keys() | NO_SETTINGS
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert all(_is_in(values, each) for each in ORIGINALS)


def test_each_other_value_of_the_chart_is_known_by_its_name() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    of_settings = (*SETTINGS, *ORIGINALS)
    found = {
        re.sub(r"(\.resources|r\.image|k\.image)\.\w+$", r"\1", each) for each in _leaves(schema, schema)
    }

    assert {each for each in found if not each.startswith(of_settings)} <= NO_SETTINGS <= found
    assert NO_SETTINGS.isdisjoint(of_settings)


def _leaves(schema: Raw, root: Raw, path: str = "") -> Iterator[str]:
    """Names of the values that *schema*, a part of *root*, has fields for."""
    while reference := schema.get("$ref"):
        schema = reduce(lambda part, name: part[name], reference[2:].split("/"), root)
    for name, part in schema.get("properties", {}).items():
        yield from _leaves(part, root, f"{path}.{name}".lstrip("."))
    if not schema.get("properties"):
        yield path


def _is_in(values: Raw, path: str) -> bool:
    for part in path.split("."):
        if not isinstance(values, dict) or part not in values:
            return False
        values = values[part]
    return True
