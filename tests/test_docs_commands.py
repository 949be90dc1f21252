"""What the pages name is there: links, targets of make, and commands that a shell understands."""

import os
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from certs import issue
from tests.pages import PAGES, ROOT, Block, blocks, prose, run, sections


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
