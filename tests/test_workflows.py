"""The workflows are valid, pin what they use, and do what can be done without them by targets of make."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.lab import binaries, chart

WORKFLOWS = sorted((chart.ROOT / ".github" / "workflows").glob("*.yaml"))
each_workflow = pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)


def jobs(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text())["jobs"]
    return found


def scripts(file: Path) -> Iterator[str]:
    steps = (step for job in jobs(file).values() for step in job.get("steps", ()))
    yield from (step["run"] for step in steps if "run" in step)


@pytest.mark.slow
def test_the_workflows_are_valid() -> None:
    actionlint = str(binaries.ensure("actionlint")["actionlint"])
    done = subprocess.run([actionlint, *map(str, WORKFLOWS)], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "")


@each_workflow
def test_actions_are_pinned_by_their_commit_with_the_version_beside_it(file: Path) -> None:
    used = re.findall(r"uses: (.+)", file.read_text())

    assert used
    for each in used:
        if each.startswith("./"):
            assert (chart.ROOT / each).is_file(), each
            continue
        assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each), each


def test_one_action_has_one_version() -> None:
    used = {each for file in WORKFLOWS for each in re.findall(r"uses: (.+)", file.read_text())}

    assert len(used) == len({each.partition("@")[0] for each in used})


@each_workflow
def test_jobs_end_in_time_and_have_no_more_permissions_than_they_name(file: Path) -> None:
    longest = 150 if file.stem == "nightly" else 60

    assert yaml.safe_load(file.read_text())["permissions"] == {"contents": "read"}
    assert [
        name for name, job in jobs(file).items() if "steps" in job and not job["timeout-minutes"] <= longest
    ] == []


@each_workflow
def test_scripts_take_values_of_the_event_from_the_environment_only(file: Path) -> None:
    """An expression in a script would be run as a part of it."""
    assert [script for script in scripts(file) if "${{" in script] == []


@each_workflow
def test_the_targets_of_make_exist(file: Path) -> None:
    makefile = (chart.ROOT / "Makefile").read_text()
    called = {
        name for script in scripts(file) for name in re.findall(r"\bmake (?:--silent )?([a-z0-9]+)", script)
    }

    assert {name for name in called if not re.search(rf"(?m)^{name}:", makefile)} == set()


def test_a_venv_that_could_not_be_made_whole_is_made_again(tmp_path: Path) -> None:
    """As Debian's Python leaves one behind where python3-venv is missing."""
    fake, venv = tmp_path / "python3", tmp_path / "venv"
    fake.write_text('#!/bin/sh\n[ "$1" = -c ] || { mkdir -p "$3/bin"; touch "$3/bin/python"; exit 1; }\n')
    fake.chmod(0o755)
    made = venv / "bin" / "python"
    command = ["make", "-C", str(chart.ROOT), f"PYTHON={fake}", f"VENV={venv}", str(made)]

    assert subprocess.run(command, capture_output=True, check=False).returncode == 2
    assert not made.exists()


def test_images_are_built_where_the_builder_runs() -> None:
    """It is made of packages of one release of Debian, and refuses others."""
    [release] = [file for file in WORKFLOWS if file.stem == "release"]
    [base] = re.findall(r"(?m)^ARG BASE=(.+)-slim@", (chart.ROOT / "Dockerfile").read_text())

    assert jobs(release)["image"]["container"] == {"image": base, "options": "--privileged"}
