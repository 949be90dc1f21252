"""A Dockerfile is read and carried out without an engine as an engine would do it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import LabError
from lab.image import base, context, network
from lab.image.build import build, destination
from lab.image.dockerfile import Instruction, parse
from lab.image.stage import Stage


def test_lines_are_joined_and_comments_between_them_left_out() -> None:
    text = "# a word\nARG BASE=debian:12.1-slim\n\nRUN one \\\n    # why\n    && two\nCOPY --from=a --chmod=755 x y\n"

    assert parse(text) == [
        Instruction(2, "ARG", "BASE=debian:12.1-slim"),
        Instruction(4, "RUN", "one && two"),
        Instruction(7, "COPY", "x y", {"from": "a", "chmod": "755"}),
    ]


def test_variables_are_filled_in_and_lists_taken_as_they_are() -> None:
    assert Instruction(1, "FROM", "${BASE} AS $NAME", {}).words({"BASE": "b"}) == ["b", "AS", ""]
    assert Instruction(1, "CMD", '["$BASE", "two words"]', {}).words({"BASE": "b"}) == ["$BASE", "two words"]


@pytest.mark.parametrize(
    ("source", "path", "target", "found"),
    [
        pytest.param("wsgi.py", "wsgi.py", "/app/", "/app/wsgi.py", id="a file into a directory"),
        pytest.param("wsgi.py", "wsgi.py", "/app/other.py", "/app/other.py", id="a file under another name"),
        pytest.param(
            "kube", "kube/client.py", "/app/kube", "/app/kube/client.py", id="what is in a directory"
        ),
        pytest.param("kube", "kube/a/b.py", "/app/", "/app/a/b.py", id="without the directory's name"),
    ],
)
def test_copies_end_where_docker_puts_them(source: str, path: str, target: str, found: str) -> None:
    assert destination(source, Path(path), target) == found


@pytest.mark.parametrize(
    ("image", "suite"),
    [("debian:12.11-slim", "bookworm"), ("mirror.example/library/debian:12-slim", "bookworm")],
)
def test_debians_releases_are_known_by_their_numbers_whatever_the_registry(image: str, suite: str) -> None:
    assert base.suite_of(image) == suite


@pytest.mark.parametrize("image", ["python:3.12-slim-bookworm", "debian:latest", "debian:9-slim"])
def test_no_other_base_is_made(image: str) -> None:
    with pytest.raises(LabError, match=f"FROM {image}: only Debian 12 can be made here"):
        base.suite_of(image)


def test_an_instruction_that_is_not_understood_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n\nONBUILD RUN true\n")

    with pytest.raises(LabError, match="line 3: ONBUILD cannot be carried out here, only ARG, CMD, COPY"):
        build(tmp_path)


def test_a_copy_of_what_is_not_there_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY missing here\n")
    (tmp_path / ".dockerignore").write_text("*\n")

    with pytest.raises(LabError, match="line 2: COPY missing: there is no such file in the build context"):
        build(tmp_path)


def test_what_a_stage_holds_has_a_name_of_its_own_for_all_that_it_was_made_of() -> None:
    stage = Stage("scratch")

    keys = [stage.key_after("RUN", "a"), stage.key_after("RUN", "b"), Stage("other").key_after("RUN", "a")]
    assert len({*keys}) == 3
    assert stage.key_after("RUN", "a") == keys[0]


def test_of_this_machines_environment_only_the_way_to_registries_is_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "7")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("SECRET", "s3cret")

    found = network.environment()
    assert (found["PIP_DEFAULT_TIMEOUT"], found["HTTPS_PROXY"]) == ("7", "http://proxy.example:3128")
    assert "SECRET" not in found
    assert {found[name] for name in ("PIP_CERT", "PIP_CONFIG_FILE") if name in found} <= {*network.mounts()}


@pytest.mark.parametrize(
    ("path", "ignored"),
    [
        pytest.param("webhook/app.py", False, id="let through by its directory"),
        pytest.param("webhook/elasticity/webhook.py", False, id="deeper"),
        pytest.param("webhook/__pycache__/app.pyc", True, id="left out again"),
        pytest.param("tests/webhook", True, id="the name elsewhere"),
        pytest.param(".git/config", True, id="hidden"),
        pytest.param("wsgi.py", False, id="a file"),
    ],
)
def test_the_last_rule_about_a_path_has_its_way(path: str, ignored: bool) -> None:
    rules = context.patterns("# a word\n*\n\n!webhook\n!wsgi.py\n**/__pycache__\n")

    assert context.ignored(Path(path), rules) is ignored
