"""A Dockerfile is read and built without an engine as an engine would build it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import chart
from lab.image import context, network
from lab.image.build import destination


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
