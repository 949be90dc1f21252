"""Which values of the chart become which settings, and that Helm can read the patterns of both."""

from __future__ import annotations

import json
import re

from cli.value_names import COMPUTED, CONSTANT
from dev.lab.values_schema import SCHEMA, SETTINGS, SOURCE
from tests import facts

MAPPED = {
    *SETTINGS.values(),
    *(each[kind] for each in SOURCE["values"].values() for kind in ("setting", "original") if kind in each),
}


def test_each_setting_has_a_value_or_is_computed_by_the_chart() -> None:
    assert {name.partition("[]")[0] for name in facts.SETTINGS} == MAPPED | COMPUTED | CONSTANT
    assert MAPPED.isdisjoint(COMPUTED | CONSTANT)


def test_no_setting_has_two_values_of_one_name() -> None:
    assert len(set(SETTINGS.values())) == len(SETTINGS)
    assert SETTINGS.keys().isdisjoint(SOURCE["values"])


def test_patterns_have_nothing_that_gos_expressions_lack() -> None:
    patterns = re.findall(r'"pattern": (".*")', SCHEMA.read_text())

    assert len(patterns) > 20
    for pattern in map(json.loads, patterns):
        assert not re.search(r"\(\?|\\[1-9uUNAzZ]|[*+?}]\+", pattern), pattern
        assert all(int(each) <= 1000 for each in re.findall(r"[{,](\d+)}", pattern)), pattern
