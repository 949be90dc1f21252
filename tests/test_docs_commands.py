"""What the pages name is there: links, pages, values, targets of make, and commands that a shell understands."""

import os
import re
import shutil
import subprocess
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from certs import issue
from certs.rotation import certificates_in
from dev.lab import tour
from settings.models import Webhook
from tests import facts
from tests.pages import PAGES, ROOT, SHELL, Block, commands, prose, run, sections, slug

LINKED = [*PAGES, ROOT / "CHANGELOG.md", *sorted(ROOT.glob("charts/*/README.md"))]


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target, there, anchor in links(page):
        assert there.exists(), target
        assert not anchor or there.suffix == ".py" or anchor in {slug(title) for title in sections(there)}, (
            target
        )


@pytest.mark.parametrize("page", sorted(tour.PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_each_link_to_a_line_leads_to_the_definition_that_it_names(page: Path) -> None:
    for found in tour.LINK.finditer(page.read_text()):
        line = tour.line_of((page.parent / found["path"]).resolve(), found["name"])
        assert abs(line - int(found["line"])) <= SLACK, f"{found[0]}: make format renews the lines"


SLACK = 20
"""Lines by which a link may be off before `make format` has to renew it."""


def links(page: Path) -> list[tuple[str, Path, str]]:
    """Those that stay in the repository, each with where it leads: a file, and a heading there or nothing."""
    targets = [each for each in re.findall(r"\]\(([^)\s]+)\)", prose(page)) if "://" not in each]
    parts = [(target, *target.partition("#")) for target in targets]
    return [
        (target, (page.parent / path).resolve() if path else page, anchor)
        for target, path, _, anchor in parts
    ]


def test_every_page_can_be_reached_from_the_first_one() -> None:
    reached, ahead = set(), {ROOT / "README.md"}
    while ahead:
        page = ahead.pop()
        reached.add(page)
        ahead |= {there for _, there, _ in links(page) if there.suffix == ".md"} - reached

    assert [
        str(page) for page in sorted((ROOT / "docs").rglob("*.md")) if page not in reached | DECISIONS
    ] == []
    assert (ROOT / "docs" / "decisions") in {there for _, there, _ in links(ROOT / "README.md")}


DECISIONS = {*(ROOT / "docs" / "decisions").iterdir()}
"""Readers find these by the link to their folder."""


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_every_shell_block_is_well_formed(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_every_shell_block_is_run_or_says_why_not(block: Block) -> None:
    assert bool(block.where) != bool(block.reason), f"{block}: see CONTRIBUTING.md, Words"
    for name in re.findall(r"(?:tests|dev)/[\w/]+\.py", block.reason):
        assert (ROOT / name).exists()
    for name in re.findall(r"[\w-]+\.md", block.reason):
        assert [*(ROOT / "docs").rglob(name)]


def test_the_shell_blocks_that_are_run_are_run_by_something() -> None:
    assert {block.where for block in SHELL} == {"", "here", *RUN_IN}


RUN_IN = ("lab", "cloud", "edge", "gated", "gone", "migration")
"""The labs of tests/cluster/test_docs.py, and of the migrations beside it."""


def given(words: list[str]) -> list[str]:
    """The values that a command of Helm sets by their names."""
    sets = [text for option, text in pairwise(words) if re.fullmatch("--set(-json|-file|-string)?", option)]
    return [name for text in sets for name in re.findall(r"(?:^|,)([\w.\[\]]+)=", text)]


@pytest.mark.parametrize("block", [block for block in SHELL if "--set" in block.text], ids=str)
def test_every_value_that_is_set_is_one_of_the_charts(block: Block) -> None:
    named = [name for words in commands(block) if words[0] == "helm" for name in given(words)]

    assert named
    for name in named:
        assert facts.takes(re.sub(r"\[.*", "", name)), name


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        name
        for page in PAGES
        for name in re.findall(r"(?:`|\n|\()make (?:-s )?([a-z0-9]+)", page.read_text())
    }

    assert {"demo", "test", "up", "down"} <= named <= targets


OPENSSL = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl on this machine")


def run_here(directory: Path, page: str) -> None:
    """Run the block of *page* that needs no lab."""
    [block] = [block for block in SHELL if block.where == "here" and f"how-to/{page}.md" in str(block)]
    assert block.prints in run(block, directory, os.environ)


@OPENSSL
def test_the_client_certificate_of_its_page_fits_the_setting(tmp_path: Path) -> None:
    run_here(tmp_path, "client-certificates")

    ca = (tmp_path / "client-ca.crt").read_text()
    assert Webhook(clientCA=ca).client_ca == ca
    [issuer] = certificates_in(ca.encode())
    assert issue.is_issued_by((tmp_path / "client.crt").read_bytes(), issuer)


@OPENSSL
def test_the_certificate_of_the_install_page_fits_the_chart(tmp_path: Path) -> None:
    run_here(tmp_path, "certificates")

    pair = issue.Pair((tmp_path / "tls.crt").read_bytes(), (tmp_path / "tls.key").read_bytes())
    [ca] = certificates_in((tmp_path / "ca.crt").read_bytes())
    assert issue.check(pair, ca, "drawbridge-webhook.drawbridge.svc", datetime.now(UTC)) is None
