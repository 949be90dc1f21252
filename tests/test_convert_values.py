"""`drawbridge convert-values`: the chart makes the same of what it prints as of the original's file."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cli.app import drawbridge
from cli.convert_values import BY_NAME, CAPO_FILE, UNKNOWN, converted
from dev.lab.install import merged
from settings import parse
from tests.charts import SETS, configurations, helm_needed
from tests.pages import ROOT
from tests.tables import table
from tests.test_settings import CAPO

NAMES = yaml.safe_load((ROOT / "tests/data/originals/names.yaml").read_text())
AIA = merged(SETS["the-values-of-AIA-IP-Controller"], {"credential": {"secretID": None, "secretKey": None}})
FILES: dict[str, dict[str, Any]] = {
    "capo": SETS["the-values-of-Capo"],
    "aia": AIA,
    "tke-resilience": SETS["the-values-of-TKE-Resilience"],
}
OF_OURS = {"aia": {"anycastIP", "controllers", "cloud"}, "tke-resilience": {"elasticity"}}
"""What the sets have besides the original's values."""


@helm_needed
@pytest.mark.parametrize("name", FILES)
def test_the_chart_makes_the_same_settings_of_both(name: str) -> None:
    given = {key: part for key, part in FILES[name].items() if key not in OF_OURS.get(name, ())}
    found, left = converted(given, BY_NAME[name])
    before, after = configurations([FILES[name], found])

    assert parse(after["config"]) == parse(before["config"])
    assert UNKNOWN not in left.values()


@helm_needed
def test_the_chart_makes_of_capos_file_what_the_programs_make_of_it() -> None:
    document = {key: part for key, part in yaml.safe_load(CAPO).items() if key not in ("apiVersion", "kind")}
    found, left = converted(document, CAPO_FILE)
    [answer] = configurations([found])

    assert parse(answer["config"]).ip_reservation == parse(CAPO).ip_reservation
    assert left.keys() == {"leaderElection.resourceName", "leaderElection.resourceNamespace"}


@pytest.mark.parametrize(
    ("name", "values"),
    [("capo", NAMES["capo others"]), ("aia", NAMES["aia"]), ("tke-resilience", NAMES["resilience"])],
    ids=["capo", "aia", "tke-resilience"],
)
def test_every_entry_of_the_originals_charts_is_known(name: str, values: dict[str, Any]) -> None:
    def filled(part: Any) -> Any:
        return {key: filled(each) for key, each in part.items()} if isinstance(part, dict) else part or "x"

    _, left = converted(filled(values), BY_NAME[name])

    assert [entry for entry, why in left.items() if why == UNKNOWN] == []


def test_entries_without_a_counterpart_are_comments_before_the_values(tmp_path: Any) -> None:
    file = tmp_path / "values.yaml"
    entries = {"replicaCount": 3, "config": {"ipReserveTime": "40m"}, "rbacImage": {"tag": "v1"}, "other": 1}
    file.write_text(json.dumps(entries))
    result = CliRunner().invoke(drawbridge, ["convert-values", "--from", "capo", str(file)])

    assert result.output == (
        "# rbacImage: there is no proxy before the metrics; metrics.authentication asks for a token\n"
        "# other: the original's chart has no such value\n"
        "replicaCount: 3\n"
        "ipReservation:\n"
        "  duration: 40m\n"
    )


@table(
    "text, why",
    {
        "a list": ("- a", "it is no mapping of values"),
        "an alias within itself": ("a: &a {b: *a}", "it is no YAML: Circular reference detected"),
        "too deep": ("a: " + "[" * 5000, "it is no YAML: maximum recursion depth exceeded"),
    },
)
def test_what_is_no_file_of_values_is_refused(tmp_path: Any, text: str, why: str) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(text)
    result = CliRunner().invoke(drawbridge, ["convert-values", "--from", "capo", str(file)])

    assert result.exit_code == 1
    assert f"the file cannot be used: {why}" in result.output


def test_keys_are_not_printed(tmp_path: Any) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps({"credential": {"secretID": "an-id", "secretKey": "a-key"}}))
    result = CliRunner().invoke(drawbridge, ["convert-values", "--from", "aia", str(file)])

    assert result.exit_code == 0
    assert "a-key" not in result.output
    assert "an-id" not in result.output
