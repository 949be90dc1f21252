"""The benches of two commits are run in turns, and their figures set side by side."""

import subprocess
from pathlib import Path

import pytest

from bench import compare

SUITE = """
import pathlib, sys
directory = pathlib.Path("build/bench")
directory.mkdir(parents=True, exist_ok=True)
values = {values}
log = pathlib.Path({log!r})
log.write_text((log.read_text() if log.exists() else "") + {who!r})
value = values[min(len(log.read_text()) // 2, len(values) - 1)]
if value < 0:
    sys.exit(1)
(directory / "elasticity.json").write_text('[{{"name": "placed", "unit": "s", "value": %s}}]' % value)
"""


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository whose last commit measured 2 s."""
    root = tmp_path / "repository"
    (root / "bench").mkdir(parents=True)
    git(tmp_path, "init", "--quiet", str(root))
    write(root, "a", [2.0])
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "before")
    return root


def write(root: Path, who: str, values: list[float]) -> None:
    log = str(root.parent / "log")
    (root / "bench" / "__main__.py").write_text(SUITE.format(values=values, log=log, who=who))


def test_both_are_run_in_turns_and_the_ratio_of_their_medians_is_shown(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(root, "b", [3.0])

    assert compare.main(["HEAD", "elasticity"], root) == 0
    assert (root.parent / "log").read_text() == "abba"
    assert capfd.readouterr().out.split()[-5:] == ["placed", "s", "2", "3", "1.5"]
    assert len(list((root / ".git").glob("worktrees/*"))) == 0
