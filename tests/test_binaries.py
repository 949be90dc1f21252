"""The lab's programs: which source serves, and what happens when sources fail, or lie."""

import hashlib
import http.server
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dev.lab import binaries
from dev.lab.binaries import cache, table
from dev.lab.binaries import go as golang
from dev.lab.binaries.download import Downloads
from dev.lab.binaries.table import Program, Release

PROGRAM = b"#!/bin/sh\necho Kubernetes v1.36.3\n"
SHA256 = hashlib.sha256(PROGRAM).hexdigest()
BUILT = b"built"


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No assets, nothing on PATH, an empty cache."""
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)


@pytest.fixture
def site() -> Iterator["Site"]:
    with Site() as running:
        yield running


class Site(http.server.ThreadingHTTPServer):
    """A release site on the loopback: serves `files` and remembers what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Pages)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> "Site":
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class Pages(http.server.BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        content = self.server.files.get(self.path)
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_: object) -> None:
        pass


def program(**different: object) -> Program:
    usual = Program("kube-apiserver", "v1.36.3", Path("/no/module"), "example.org/kube-apiserver")
    return replace(usual, **different)  # type: ignore[arg-type]


def executable(path: Path, content: bytes = PROGRAM) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)
    return path


def fake_build(built: Sequence[Program], directory: Path) -> None:
    for each in built:
        executable(directory / each.name, BUILT)


@pytest.fixture
def obtain(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """`ensure` of one made-up program, with a made-up build."""

    def call(wanted: Program, make: Callable[[Sequence[Program], Path], None] = fake_build) -> Path:
        monkeypatch.setattr(binaries, "programs", lambda: {wanted.name: wanted})
        monkeypatch.setattr(binaries, "build", make)
        monkeypatch.setattr(binaries, "Downloads", lambda: Downloads(4.0))
        return binaries.ensure(wanted.name)[wanted.name]

    return call


def release(site: Site, checksum: str = SHA256) -> Release:
    site.files = {"/kube-apiserver": PROGRAM, "/kube-apiserver.sha256": checksum.encode()}
    return Release(f"{site.url}/kube-apiserver", f"{site.url}/kube-apiserver.sha256")


def test_each_source_serves_only_when_those_before_it_cannot(
    obtain: Callable[..., Path], site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = program(release=release(site))
    assets = executable(tmp_path / "assets" / wanted.name)
    on_path = executable(tmp_path / "path" / wanted.name)
    cached = executable(cache.place(wanted.name, wanted.version) / wanted.name, b"cached")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets.parent))

    assert obtain(wanted) == assets
    assets.unlink()
    assert obtain(wanted) == on_path
    on_path.unlink()
    assert obtain(wanted).read_bytes() == b"cached"
    cached.unlink()
    assert obtain(wanted).read_bytes() == PROGRAM
    cached.unlink()
    site.files = {}
    assert obtain(wanted).read_bytes() == BUILT


def test_a_program_in_the_cache_without_its_module_directory_is_made_again(
    obtain: Callable[..., Path],
) -> None:
    wanted = program(module_directories={"crds": ("example.org/module", "crd")})
    executable(cache.place(wanted.name, wanted.version) / wanted.name, b"cached")

    def build(built: Sequence[Program], directory: Path) -> None:
        fake_build(built, directory)
        (directory / "crds").mkdir()

    for _ in range(2):
        path = obtain(wanted, build)
        assert path.read_bytes() == BUILT
        assert (path.parent / "crds").is_dir()
        build = unexpected


def unexpected(*_: object) -> None:
    raise AssertionError("it is built although it is in the cache")


def test_what_a_build_that_was_killed_left_behind_is_removed(obtain: Callable[..., Path]) -> None:
    left = executable(cache.root() / "building-abc" / "kube-apiserver").parent

    assert obtain(program()).read_bytes() == BUILT
    assert not left.exists()


def test_a_download_with_a_wrong_checksum_is_reported_and_never_used(
    obtain: Callable[..., Path], site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    path = obtain(program(release=release(site, "0" * 64)))
    assert path.read_bytes() == BUILT
    assert (
        f"{site.url}/kube-apiserver has SHA-256 {SHA256}, published is {'0' * 64}" in capsys.readouterr().err
    )


def test_the_table_names_the_versions_that_the_go_modules_require() -> None:
    wanted, oldest = table.versions(), table.versions("oldest")
    text = (table.LAB / "versions.toml").read_text()
    as_module = dict(re.findall(r"^(\w+) = .+ as a Go module: (\S+)$", text, re.MULTILINE))
    required = {
        "build/programs": (
            f"k8s.io/kubernetes {wanted['kubernetes']}",
            f"go.etcd.io/etcd/server/v3 {wanted['etcd']}",
            f"sigs.k8s.io/kwok {wanted['kwok']}",
            f"helm.sh/helm/v4 {wanted['helm']}",
        ),
        "build/oldest": (
            f"k8s.io/kubernetes {oldest['kubernetes']}",
            f"helm.sh/helm/v3 {oldest['helm']}",
        ),
        "calico": (f"github.com/projectcalico/calico {as_module['calico']}",),
        "build/calico": (f"github.com/projectcalico/calico {as_module['calico']}",),
        "build/node": (f"k8s.io/kubernetes {wanted['kubernetes']}",),
        "build/containerd": (f"github.com/containerd/containerd/v2 {wanted['containerd']}",),
        "build/prometheus": (f"github.com/prometheus/prometheus {as_module['prometheus']}",),
        "build/cert-manager": (f"github.com/cert-manager/cert-manager {wanted['cert-manager']}",),
        "build/metallb": (f"go.universe.tf/metallb {wanted['metallb']}",),
        "build/prometheus-operator": (
            f"github.com/prometheus-operator/prometheus-operator {wanted['prometheus-operator']}",
        ),
        "build/actionlint": (f"github.com/rhysd/actionlint {wanted['actionlint']}",),
        "build/crane": (f"github.com/google/go-containerregistry {wanted['crane']}",),
    }
    for module_name, requirements in required.items():
        go_mod = table.LAB / module_name / "go.mod"
        assert all(
            f"\t{each}\n" in go_mod.read_text() or f"require {each}\n" in go_mod.read_text()
            for each in requirements
        )
        assert golang.go_version(go_mod.read_text()) <= golang.go_version(f"go {wanted['go']}")


@pytest.mark.parametrize("column", ["", "oldest"])
def test_every_program_is_named_in_its_module_so_that_go_sum_covers_it(
    column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(table.COLUMN, column)
    for wanted in table.programs().values():
        source = "main.go" if wanted.package == "." else "programs.go"
        text = (wanted.module / source).read_text()
        assert wanted.package == "." or f'"{wanted.package}"' in text
