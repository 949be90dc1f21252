"""What the labs of a whole session tell in the end, and whether it was a whole session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.audit import VARIABLE
from tests import audit

HERE = Path(__file__).parent
LAST = "test_least_privilege.py"
COLLECTED = pytest.StashKey[set[str]]()
"""All tests that need a lab, whether they were chosen or not."""


def kept(directory: Path) -> Iterator[Path]:
    """The logs of all labs meanwhile, those that are gone included, are in *directory*."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(directory))
        yield directory


def stories(logs: Path) -> list[audit.Story]:
    return [audit.told(log) for log in sorted(logs.iterdir())]


def refused(logs: Path) -> list[str]:
    """What Drawbridge asked for, and had never been given."""
    return [str(request) for story in stories(logs) for request in story.refused]


def remember(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[COLLECTED] = {item.nodeid for item in items if item.path.parent == HERE}


def put_last(items: list[pytest.Item]) -> None:
    """Its tests judge what all others have done."""
    items.sort(key=lambda item: item.path == HERE / LAST)


def missing(session: pytest.Session) -> str:
    """Why not every right can have been used, or nothing."""
    chosen = {item.nodeid for item in session.items}
    there = {each.partition("::")[0].rpartition("/")[2] for each in session.config.stash[COLLECTED]}
    if others := {path.name for path in HERE.glob("test_*.py")} - there:
        return f"not all files were run: {len(others)} are missing, such as {min(others)}"
    if others := session.config.stash[COLLECTED] - chosen:
        return f"not all tests were chosen: {len(others)} are missing, such as {min(others)}"
    return f"{session.testsfailed} tests failed" if session.testsfailed else ""
