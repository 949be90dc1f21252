"""The files that the repository's host shows to users are there, and lead to pages that are there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.pages import ROOT, prose
from tests.test_docs_commands import links

PAGES = [ROOT / name for name in ("SECURITY.md", "CODE_OF_CONDUCT.md", "MAINTAINERS.md", "CONTRIBUTING.md")]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yaml"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert [target for target, there, _ in links(page) if not there.exists()] == []
    assert prose(page).startswith("# ")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_a_form_asks_for_something_and_its_links_exist(form: Path) -> None:
    text = form.read_text()
    parts = yaml.safe_load(text)["body"]

    ids = [part["id"] for part in parts if part["type"] != "markdown"]
    assert len(ids) == len({*ids}) > 0
    assert any(part.get("validations", {}).get("required") for part in parts)
    assert [path for path in re.findall(r"`([\w./-]+\.md)`", text) if not (ROOT / path).exists()] == []


def test_renovate_updates_the_files_that_exist() -> None:
    renovate = json.loads((ROOT / "renovate.json").read_text())

    [pattern] = renovate["pip_requirements"]["managerFilePatterns"]
    assert [each.name for each in sorted(ROOT.glob("*.txt")) if re.search(pattern.strip("/"), each.name)] == [
        "requirements-browser.txt",
        "requirements-cli.txt",
        "requirements-dev.txt",
        "requirements-frozen.txt",
        "requirements.txt",
    ]
