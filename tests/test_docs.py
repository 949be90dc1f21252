"""The documents say what the code does: names, defaults, links and commands."""

import ast
import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from calico.segment import Record
from certs import issue
from settings import Settings
from settings.changes import needing_restart
from tests.pages import PAGES, ROOT, Block, blocks, prose, run, sections, table

REFERENCE = ROOT / "docs" / "ip-reservation.md"
MIGRATION = ROOT / "docs" / "migrate-from-capo.md"
PRODUCT = ["settings", "telemetry", "kube", "certs", "calico", "webhook", "controllers"]
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
CAPO_FILE = """
apiVersion: config.capo.io/v1
kind: CapoConfig
health: {healthProbeBindAddress: ":8081"}
metrics: {bindAddress: ":8080"}
webhook: {port: 9443}
leaderElection: {leaderElect: true, resourceName: capo, resourceNamespace: ip-reserve}
ipReserveMaxCount: 400
ipReserveTime: 40m
ipReleasePeriod: 5s
labelSelector: {matchExpressions: []}
"""


@functools.cache
def calls() -> list[ast.Call]:
    trees = [
        ast.parse(path.read_text()) for package in PRODUCT for path in sorted((ROOT / package).rglob("*.py"))
    ]
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]


def text_of(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def metrics_of_the_code() -> set[str]:
    """As a scraper sees them: a counter always ends in _total."""
    found = set()
    for call in calls():
        kind = call.func.id if isinstance(call.func, ast.Name) else ""
        if kind in ("Counter", "Gauge", "Histogram") and call.args and (name := text_of(call.args[0])):
            found.add(f"{name.removesuffix('_total')}_total" if kind == "Counter" else name)
    return found


def reasons_of_the_code() -> set[str]:
    """Second argument of each `event` of a Recorder."""
    return {
        reason
        for call in calls()
        if isinstance(call.func, ast.Attribute) and call.func.attr == "event" and len(call.args) > 1
        if (reason := text_of(call.args[1]))
    }


def leaves(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, Any]]:
    """The settings, as written in the file, with their defaults."""
    for name, field in model.model_fields.items():
        where = f"{path}{field.alias or name}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from leaves(field.annotation, f"{where}.")
        else:
            yield where, field.default
            for part in get_args(field.annotation):
                if isinstance(part, type) and issubclass(part, BaseModel):
                    yield from ((name.rpartition(".")[2], None) for name, _ in leaves(part))


def keys(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        for key, part in document.items():
            yield key
            yield from keys(part)


def dotted(values: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, part in values.items():
        yield from dotted(part, f"{path}{key}.") if isinstance(part, dict) else (f"{path}{key}",)


# Names


SETTINGS = dict(leaves(Settings))


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_in_the_reference(name: str) -> None:
    short = name.removeprefix("ipReservation.")

    assert f"`{short}`" in REFERENCE.read_text()


def seconds_as_written(seconds: float) -> str:
    return f"{seconds // 60:g}m" if seconds >= 60 else f"{seconds:g}s"


def as_written(default: object) -> str:
    match default:
        case bool():
            return str(default).lower()
        case float():
            return seconds_as_written(default)
        case str() if default.startswith(":"):
            return f'"{default}"'
        case _:
            return str(default)


@pytest.mark.parametrize(
    ("name", "default"),
    [
        (name, default)
        for name, default in SETTINGS.items()
        if isinstance(default, str | int | float) and name not in ("apiVersion", "kind")
    ],
)
def test_the_reference_tells_the_default(name: str, default: object) -> None:
    [row] = [
        row
        for row in table(REFERENCE, "Settings")
        if row[0].rstrip(" ★") == f"`{name.removeprefix('ipReservation.')}`"
    ]

    assert row[2] == f"`{as_written(default)}`"


def test_the_reference_tells_what_is_read_at_start() -> None:
    at_start = {
        name
        for name in SETTINGS
        for row in table(REFERENCE, "Settings")
        if row[0].rstrip(" ★") == f"`{name.removeprefix('ipReservation.')}`" and row[4].startswith("at start")
    }

    assert {*needing_restart([*SETTINGS])} <= at_start


def test_the_reference_names_values_that_the_chart_has() -> None:
    values = yaml.safe_load((ROOT / "charts" / "drawbridge" / "values.yaml").read_text())
    known = {*dotted(values), "config.labelSelector.matchLabels"}
    named = [
        name
        for row in table(REFERENCE, "Settings")
        if len(row) == 5
        for name in re.findall("`(.+?)`", row[1])
    ]

    assert len(named) > 15
    assert set(named) <= known


@pytest.mark.parametrize("name", [*dotted(yaml.safe_load(CAPO_VALUES))])
def test_every_value_of_the_originals_chart_is_in_the_migration_page(name: str) -> None:
    assert [row[1] for row in table(MIGRATION, "Value by value") if row[0] == f"`{name}`"] == [f"`{name}`"]


@pytest.mark.parametrize("name", [*keys(yaml.safe_load(CAPO_FILE))])
def test_every_field_of_the_originals_file_is_in_the_migration_page(name: str) -> None:
    fields = " ".join(row[0] for row in table(MIGRATION, "The ConfigMap"))

    assert re.search(rf"\b{name}\b", fields)


def test_the_originals_labels_and_metrics_are_in_the_migration_page() -> None:
    said = sections(MIGRATION)["Labels and metrics"]

    for name in ("ip-reserve=enabled", "ip-reserve=enable", "ip_reserve_count", "ip_reserve_count_max"):
        assert f"`{name}`" in said
    assert "`ip_reserve_evictions_count`" in said


@pytest.mark.parametrize("field", Record.__struct_encode_fields__)
def test_every_field_of_a_record_is_in_the_reference(field: str) -> None:
    assert f"`{field}`" in " ".join(row[0] for row in table(REFERENCE, "The life of a reservation"))


def test_the_reference_lists_exactly_the_metrics_of_the_code() -> None:
    listed = {re.split("[`{]", row[0])[1] for row in table(REFERENCE, "Metrics") if len(row) == 3}

    assert listed == metrics_of_the_code()


def test_no_page_names_a_metric_that_is_not_there() -> None:
    named = {
        (page.name, name)
        for page in PAGES
        for name in re.findall(r"\b(?:drawbridge|ip_reserve)_[a-z_]+", page.read_text())
    }

    assert {each for each in named if each[1] not in metrics_of_the_code()} == set()


def test_the_reference_lists_exactly_the_event_reasons_of_the_code() -> None:
    listed = {row[0].strip("`") for row in table(REFERENCE, "Events")}

    assert listed == reasons_of_the_code()


# Links, and commands as text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert not anchor or anchor in {slug(title) for title in sections(there)}, target


def slug(title: str) -> str:
    """A heading's anchor, as the usual renderers make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


SHELL = [block for page in PAGES for block in blocks(page) if block.language == "sh"]


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_every_shell_block_is_well_formed(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True)

    assert (done.returncode, done.stderr) == (0, "")


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        name for page in PAGES for name in re.findall(r"(?:`|\n|\()make (?:-s )?([a-z]+)", page.read_text())
    }

    assert {"demo", "test", "up", "down"} <= named <= targets


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl on this machine")
def test_the_certificate_of_the_install_page_fits_the_chart(tmp_path: Path) -> None:
    [block] = [block for block in SHELL if block.where == "here"]

    assert block.prints in run(block, tmp_path, os.environ)
    pair = issue.Pair((tmp_path / "tls.crt").read_bytes(), (tmp_path / "tls.key").read_bytes())
    ca = issue.Pair((tmp_path / "ca.crt").read_bytes(), b"")
    assert issue.check(pair, ca, "drawbridge-webhook.drawbridge.svc", datetime.now(UTC)) is None
