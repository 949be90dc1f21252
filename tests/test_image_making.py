"""A Dockerfile is read and built without an engine as an engine would build it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import chart
from lab.errors import LabError
from lab.image import base, context, network
from lab.image.build import build, destination
from lab.image.dockerfile import Instruction, parse


def test_lines_are_joined_and_comments_between_them_left_out() -> None:
    text = "# a word\nARG BASE=debian:12.1-slim\n\nRUN one \\\n    # why\n    && two\nCOPY --from=a --chmod=755 x y\n"

    assert parse(text) == [
        Instruction(2, "ARG", "BASE=debian:12.1-slim"),
        Instruction(4, "RUN", "one && two"),
        Instruction(7, "COPY", "x y", {"from": "a", "chmod": "755"}),
    ]
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


def test_bases_are_debian_12_from_any_registry() -> None:
    assert (
        base.suite_of("debian:12.11-slim")
        == base.suite_of("mirror.example/library/debian:12-slim")
        == "bookworm"
    )
    for image in ("python:3.12-slim-bookworm", "debian:latest", "debian:9-slim"):
        with pytest.raises(LabError, match=f"FROM {image}: only Debian 12 can be made here"):
            base.suite_of(image)


@pytest.mark.parametrize(
    ("dockerfile", "error"),
    [
        (
            "FROM scratch\n\nONBUILD RUN true\n",
            "line 3: ONBUILD cannot be carried out here, only ARG, CMD, COPY",
        ),
        (
            "FROM scratch\nCOPY missing here\n",
            "line 2: COPY missing: there is no such file in the build context",
        ),
    ],
)
def test_an_instruction_that_fails_is_named_with_its_line(
    tmp_path: Path, dockerfile: str, error: str
) -> None:
    (tmp_path / "Dockerfile").write_text(dockerfile)
    (tmp_path / ".dockerignore").write_text("*\n")

    with pytest.raises(LabError, match=error):
        build(tmp_path)


def test_only_the_way_to_registries_is_taken_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "7")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("SECRET", "s3cret")

    found = network.environment()
    assert (found["PIP_DEFAULT_TIMEOUT"], found["HTTPS_PROXY"]) == ("7", "http://proxy.example:3128")
    assert "SECRET" not in found
    assert {found[name] for name in ("PIP_CERT", "PIP_CONFIG_FILE") if name in found} <= {*network.mounts()}


def test_the_last_rule_about_a_path_decides() -> None:
    rules = context.patterns("# a word\n*\n\n!webhook\n!wsgi.py\n**/__pycache__\n")

    paths = ["webhook/app.py", "webhook/elasticity/webhook.py", "wsgi.py"]
    paths += ["webhook/__pycache__/app.pyc", "tests/webhook", ".git/config"]
    assert [context.ignored(Path(path), rules) for path in paths] == [False] * 3 + [True] * 3
    ours = context.patterns((chart.ROOT / ".dockerignore").read_text())
    assert context.ignored(Path("webhook/elasticity/__pycache__/gate.cpython-311.pyc"), ours)
