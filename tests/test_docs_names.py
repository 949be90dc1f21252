"""What operators meet has the names that the pages give it: alerts, Events, values of the chart, words of logs."""

import re
from pathlib import Path

import pytest
import yaml

from tests import facts, monitoring
from tests.pages import PAGES, ROOT, table, terms

HERE = {str(page.relative_to(ROOT)): page for page in [*PAGES, ROOT / "CHANGELOG.md"]}
TROUBLE = ROOT / "docs" / "how-to" / "troubleshooting.md"
TOP = yaml.safe_load((ROOT / "charts" / "drawbridge" / "values.yaml").read_text()).keys()


@pytest.mark.parametrize("page", HERE.values(), ids=HERE)
def test_every_alert_that_is_named_exists(page: Path) -> None:
    assert set(re.findall(r"`(Drawbridge[A-Z]\w+)`", page.read_text())) <= {
        *monitoring.alerts(),
        "DrawbridgeConfig",
    }


@pytest.mark.parametrize("page", HERE.values(), ids=HERE)
def test_every_event_that_is_named_exists(page: Path) -> None:
    lists = re.findall(r"\bEvents? ((?:`\w+`(?:, | or | and )?)+)", page.read_text())

    assert {name for each in lists for name in re.findall(r"`(\w+)`", each)} <= facts.reasons()


OURS = {name: page for name, page in HERE.items() if "migrate-from" not in name}
"""The others name values of the originals, too: tests/test_docs_migration.py knows which of them there are."""


@pytest.mark.parametrize("page", OURS.values(), ids=OURS)
def test_every_value_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"`((\w+)\.[\w.]+)(?:=[^`]*|: [^`]*)?`", page.read_text()))

    for name in (name for name, top in named if top in TOP and not name.endswith((".md", ".yaml"))):
        assert facts.takes(name) or name in facts.SETTINGS, name


INSTALLED = [
    each
    for file in sorted((ROOT / "deploy").rglob("*.yaml"))
    for each in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader)
    if each and "kind" in each
]
LABELLED = {
    each["kind"].lower()
    for each in INSTALLED
    if "app.kubernetes.io/name" in each.get("metadata", {}).get("labels", {})
}
BY_RELEASE = re.compile(
    r"kubectl [^\n`]*?\b(?:get|delete) (\S+) [^\n`]*-l app\.kubernetes\.io/(?:name|instance)="
)


def test_what_is_selected_by_the_labels_of_a_release_has_them() -> None:
    """What the programs create has others, or none."""
    found = {kinds for page in PAGES for kinds in BY_RELEASE.findall(page.read_text())}
    selected = {kind.removesuffix("s") for kinds in found for kind in kinds.split(",")}

    assert "validatingwebhookconfiguration" in selected
    assert selected <= LABELLED


QUOTED = [
    *(row[0] for row in table(TROUBLE, "Troubleshooting") if row[0].startswith("Drawbridge: ")),
    *terms(ROOT / "docs" / "reference" / "ingressdaemonset.md", "When it waits"),
    *terms(ROOT / "docs" / "reference" / "ingressdaemonset.md", "What a health check says"),
]
MESSAGES = {
    *(message for cell in QUOTED for message in re.findall("`([^`]* [^`]*)`", cell)),
    *(message for page in PAGES for message in re.findall(r"\blog: `([^`]* [^`]*)`", page.read_text())),
}


@pytest.mark.parametrize("message", sorted(MESSAGES))
def test_what_drawbridge_is_said_to_say_it_says(message: str) -> None:
    parts = [part.strip(' "') for part in message.split("...")]

    assert max(map(len, parts)) > 10
    for part in parts:
        assert any(part in text for text in facts.texts()), part
