"""The file that `make cli` makes: it needs nothing besides a Python of the version that it was built for."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dev.lab import cli_bootstrap, cli_file
from dev.lab.waiting import stretch

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("build") / "kubectl-drawbridge"
    cli_file.build(path)
    return path


def call(built: Path, cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Without the packages of this virtual environment."""
    python = sys._base_executable  # type: ignore[attr-defined]
    return subprocess.run(
        [python, "-I", str(built), *arguments],
        capture_output=True,
        text=True,
        cwd=cache,
        env={"PATH": os.environ["PATH"], "HOME": str(cache), "XDG_CACHE_HOME": str(cache)},
        timeout=60 * stretch(),
        check=False,
    )


def test_it_runs_without_any_package_and_unpacks_once(built: Path, tmp_path: Path) -> None:
    first = call(built, tmp_path, "--version")
    [place] = (tmp_path / "drawbridge").iterdir()
    second = call(built, tmp_path, "status")

    assert (first.returncode, first.stdout, first.stderr) == (0, "drawbridge, version 0.1.0\n", "")
    assert second.returncode == 3
    assert second.stderr.startswith("Error: there is no kubeconfig at ~/.kube/config")
    assert [*(tmp_path / "drawbridge").iterdir()] == [place]


KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: a, user: {token: x}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
"""


def test_it_connects_by_a_kubeconfig(built: Path, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    called = call(built, tmp_path, "status", "--kubeconfig", str(tmp_path / "kubeconfig"))

    assert called.stderr.startswith("Error: the API server cannot be reached: ")


def test_another_python_is_refused_with_the_way_out(
    built: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cli_bootstrap, "platform", lambda: "plan9-mips")
    monkeypatch.setattr(sys, "argv", [str(built)])

    with pytest.raises(
        SystemExit, match=r"this is Python 3.* on plan9-mips: .*or build one here with make cli"
    ):
        cli_bootstrap.main()


def test_it_says_the_version_that_it_was_built_of(tmp_path: Path) -> None:
    cli_file.build(tmp_path / "kubectl-drawbridge", "1.2.3")

    assert (
        call(tmp_path / "kubectl-drawbridge", tmp_path, "--version").stdout == "drawbridge, version 1.2.3\n"
    )


def test_a_cache_that_cannot_be_written_is_named(built: Path, tmp_path: Path) -> None:
    (tmp_path / "drawbridge").write_text("a file in place of the directory")
    called = call(built, tmp_path, "--version")

    assert called.returncode == 1
    assert called.stderr.startswith(f"cannot unpack into {tmp_path}/drawbridge/")
    assert "set XDG_CACHE_HOME" in called.stderr


def test_the_same_packages_make_the_same_file(built: Path, tmp_path: Path) -> None:
    cli_file.build(tmp_path / "again")

    assert (tmp_path / "again").read_bytes() == built.read_bytes()


def test_a_call_reads_a_directory_of_three_files(built: Path) -> None:
    """Python and the first module read it each time, and that of thousands takes a tenth of a second."""
    assert len(zipfile.ZipFile(built).namelist()) == 3


def test_it_has_the_page_and_cel_but_no_server_of_the_cluster_and_no_models_of_the_official_client(
    built: Path,
) -> None:
    with zipfile.ZipFile(built) as outer, zipfile.ZipFile(outer.open(cli_bootstrap.CONTENT)) as inner:
        names = inner.namelist()

    assert any(name.startswith("cel_expr_python/cel.") for name in names)
    assert any(name.startswith("cel_expr_python/ext/ext_optional") for name in names)
    assert not [name for name in names if name.startswith(("gunicorn/", "kubernetes/client/api/"))]
    assert {
        "dashboard/templates/page.html",
        "dashboard/templates/overview/elasticity.html",
        "dashboard/static/live.js",
    } <= set(names)
