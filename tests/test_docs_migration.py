"""Users of an original find each of its names in the page for it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.ingress_daemonset import FINALIZER, NODE_LABEL, TO_BE_UPDATED
from cli.value_names import ORIGINALS
from controllers.ingress_daemonset.health_checks import FOR
from dev.lab.values_schema import REFUSED
from tests import facts
from tests.charts import CAPO_VALUES
from tests.pages import ROOT, sections, table

CAPO = ROOT / "docs" / "how-to" / "migrate-from-capo.md"
AIA = ROOT / "docs" / "how-to" / "migrate-from-aia-ip-controller.md"
RESILIENCE = ROOT / "docs" / "how-to" / "migrate-from-tke-resilience.md"
NAMES = yaml.safe_load((ROOT / "tests/data/originals/names.yaml").read_text())
OF_EKLET = yaml.safe_load((ROOT / "charts/eklet/values.yaml").read_text())
INGRESS = ROOT / "docs" / "how-to" / "migrate-from-ingress-daemonset-controller.md"


def keys(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        for key, part in document.items():
            yield key
            yield from keys(part)


def dotted(values: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, part in values.items():
        yield from dotted(part, f"{path}{key}.") if isinstance(part, dict) else (f"{path}{key}",)


@pytest.mark.parametrize("name", [*dotted(yaml.safe_load(CAPO_VALUES))])
def test_every_value_of_the_originals_chart_is_in_the_migration_page(name: str) -> None:
    assert [row[1] for row in table(CAPO, "Value by value") if row[0] == f"`{name}`"] == [
        f"`{ORIGINALS.get(name, name)}`"
    ]


@pytest.mark.parametrize("name", [*dotted(NAMES["capo others"])])
def test_the_page_says_of_every_other_value_of_the_original_whether_the_chart_accepts_it(name: str) -> None:
    block = name.partition(".")[0]
    accepted = {name, block}.isdisjoint(REFUSED)
    [said] = [
        row[1]
        for row in table(CAPO, "Values to remove")
        if {f"`{name}`", f"`{block}`"} & {*re.findall("`.+?`", row[0])}
    ]

    assert said.startswith("accepted" if accepted else "refused")


@pytest.mark.parametrize("name", [*keys(NAMES["capo file"])])
def test_every_field_of_the_originals_file_is_in_the_migration_page(name: str) -> None:
    fields = " ".join(row[0] for row in table(CAPO, "The ConfigMap"))

    assert re.search(rf"\b{name}\b", fields)


def test_the_originals_labels_and_metrics_are_in_the_migration_page() -> None:
    said = sections(CAPO)["Labels and metrics"]

    for name in (
        "ip-reserve=enabled",
        "ip-reserve=enable",
        "ip_reserve_count",
        "ip_reserve_count_max",
        "leader_election_master_status",
    ):
        assert f"`{name}`" in said
    assert "`ip_reserve_evictions_count`" in said


VALUES = [(AIA, name) for name in dotted(NAMES["aia"])]
VALUES += [(RESILIENCE, name) for name in dotted(NAMES["resilience"])]


@pytest.mark.parametrize(("page", "name"), VALUES, ids=lambda each: getattr(each, "stem", each))
def test_every_value_of_the_other_originals_is_in_its_migration_page(page: Path, name: str) -> None:
    rows = [row for row in table(page, "Value by value") if row[0] == f"`{name}`"]
    if not rows:
        [line] = [each for each in sections(page)["Value by value"].splitlines() if f"`{name}`" in each]
        assert line.startswith("- ")
        assert name in LISTED or is_refused(name) or has_our_last_name(name)
        return

    [[_, ours, _]] = rows
    assert ours
    assert {*re.findall("`(.+?)`", ours)} <= facts.chart_values()


LISTED = {*facts.paths(OF_EKLET), "credential.appID", "config.region.shortName"}
"""Values that chart eklet has by the same name, or that have no effect."""


def is_refused(name: str) -> bool:
    return any(f"{name}.".startswith(f"{path}.") for path in REFUSED)


def has_our_last_name(name: str) -> bool:
    return ORIGINALS.get(name) == f"anycastIP.{name.rpartition('.')[2]}"


@pytest.mark.parametrize(("page", "values"), [(AIA, "aia"), (RESILIENCE, "resilience")])
def test_the_values_that_a_page_saves_have_none_that_the_chart_refuses(page: Path, values: str) -> None:
    removed = re.findall(r"del\((.+?)\)", page.read_text())
    refused = {name.partition(".")[0] for name in REFUSED}

    assert refused & NAMES[values].keys() <= {
        name.strip(" .") for each in removed for name in each.split(",")
    }


@pytest.mark.parametrize("name", [*keys(NAMES["ingress daemonset"])])
def test_every_field_of_the_original_of_ingress_daemonset_is_in_its_migration_page(name: str) -> None:
    rows = [" ".join(row) for row in table(INGRESS, "Field by field")]

    assert name == "rollingUpdate" or any(re.search(rf"\b{name}\b", row) for row in rows)


def test_the_objects_of_the_original_of_ingress_daemonset_are_in_its_migration_page() -> None:
    said = sections(INGRESS)["Objects"]

    for name in (
        "ingress-daemonset-node: <name>-<node>",
        "ingress-daemonset-hc: <name>-<port>",
        "ingressdaemonsets.mumoshu.github.io",
        TO_BE_UPDATED,
        FINALIZER,
        FOR,
        NODE_LABEL,
    ):
        assert re.search(rf"`[^`]*{re.escape(name)}[^`]*`", said), name
