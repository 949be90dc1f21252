"""What each command prints and writes in the clusters of tests/data/cli."""

from __future__ import annotations

import pytest

from dev.lab import cli_page
from tests.charts import helm_needed
from tests.cli_sessions import FILES, Session, played, sessions

ALL = [
    pytest.param(each, id=f"{path.stem}: {each.name}", marks=[helm_needed] if each.needs_helm else [])
    for path in FILES
    for each in sessions(path)
]


@pytest.mark.parametrize("session", ALL)
def test_a_session_prints_and_writes_what_it_did(session: Session) -> None:
    written = "\n".join([f"# {session.name}", *session.lines]).rstrip("\n") + "\n"

    assert played(session) == written, "if that is right: python -m tests.cli_sessions"


def test_each_command_is_in_a_session() -> None:
    groups = {path.rpartition(" ")[0] for path, _ in cli_page.commands()}
    known = {path.removeprefix("drawbridge ") for path, _ in cli_page.commands() if path not in groups}
    lines = {line for path in FILES for each in sessions(path) for line in each.lines}
    called = {name for name in known if any(line.startswith(f"$ {name}") for line in lines)}

    assert known - called == {"completion", "convert-values", "dashboard"}, "which have tests of their own"
