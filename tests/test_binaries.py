"""The lab's programs: which source serves, and what happens when sources fail, lie or meet another run."""

import hashlib
import http.server
import io
import os
import re
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lab import binaries
from lab.binaries import cache, found, table
from lab.binaries import go as golang
from lab.binaries.build import build
from lab.binaries.download import Downloads, checksum_in
from lab.binaries.errors import BinaryError, ChecksumMismatch, Unavailable
from lab.binaries.progress import Countdown, elapsed
from lab.binaries.table import Program, Release

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


def says(version: str) -> bytes:
    return f"#!/bin/sh\necho {version}\n".encode()


def fake_build(built: Sequence[Program], directory: Path) -> None:
    for each in built:
        executable(directory / each.name, BUILT)


def no_build(built: Sequence[Program], directory: Path) -> None:
    raise Unavailable("build: there is no Go")


@pytest.fixture
def obtain(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """`ensure` of one made-up program, with a made-up build."""

    def call(
        wanted: Program, make: Callable[[Sequence[Program], Path], None] = fake_build, patience: float = 4.0
    ) -> Path:
        monkeypatch.setattr(binaries, "programs", lambda: {wanted.name: wanted})
        monkeypatch.setattr(binaries, "build", make)
        monkeypatch.setattr(binaries, "Downloads", lambda: Downloads(patience))
        return binaries.ensure(wanted.name)[wanted.name]

    return call


def release(site: Site, checksum: str = SHA256) -> Release:
    site.files = {"/kube-apiserver": PROGRAM, "/kube-apiserver.sha256": checksum.encode()}
    return Release(f"{site.url}/kube-apiserver", f"{site.url}/kube-apiserver.sha256")


def out_of_reach() -> Release:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/kube-apiserver"
    return Release(url, f"{url}.sha256")


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


@pytest.mark.parametrize("source", ["assets", "path"])
def test_a_program_of_another_version_on_the_machine_is_passed_over(
    obtain: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    executable(tmp_path / source / "kube-apiserver", says("Kubernetes v1.35.9"))
    assert obtain(program()).read_bytes() == BUILT


def test_the_labs_own_program_is_never_taken_from_path(obtain: Callable[..., Path], tmp_path: Path) -> None:
    executable(tmp_path / "path" / "kube-apiserver")
    assert obtain(program(version_question=None)).read_bytes() == BUILT


def test_a_program_that_cannot_be_run_is_passed_over(obtain: Callable[..., Path], tmp_path: Path) -> None:
    executable(tmp_path / "path" / "kube-apiserver", b"\x7fELF of another machine")
    assert obtain(program()).read_bytes() == BUILT


@pytest.mark.parametrize(
    ("said", "wanted", "fitting"),
    [
        pytest.param("Kubernetes v1.36.3", "v1.36.3", True, id="the same"),
        pytest.param("Kubernetes v1.36.0", "v1.36.3", True, id="another patch release"),
        pytest.param("Kubernetes v1.35.3", "v1.36.3", False, id="another minor release"),
        pytest.param("Client Version: v1.36.3\nKustomize Version: v5.8.1", "v1.36.3", True, id="kubectl"),
        pytest.param("etcd Version: 3.7.3\nGo Version: go1.26.8", "v3.7.3", True, id="no v"),
        pytest.param("v4.3.1+g1a2b3c4", "v4.3.1", True, id="with a build"),
        pytest.param("v3.4.3", "v4.3.1", False, id="another major release"),
        pytest.param("unknown", "v0.8.0", False, id="no version"),
        pytest.param("", "v0.8.0", False, id="nothing"),
    ],
)
def test_a_version_fits_by_its_major_and_minor_part(said: str, wanted: str, fitting: bool) -> None:
    assert found.fits(said, wanted) is fitting


def test_a_verified_download_can_be_run(obtain: Callable[..., Path], site: Site) -> None:
    path = obtain(program(release=release(site)), no_build)
    assert os.access(path, os.X_OK)
    assert path == cache.place("kube-apiserver", "v1.36.3") / "kube-apiserver"
    assert [file.name for file in path.parent.iterdir()] == ["kube-apiserver"]


def test_what_was_made_once_is_not_made_again(obtain: Callable[..., Path], site: Site) -> None:
    wanted = program(release=release(site))
    assert obtain(wanted) == obtain(wanted)
    assert site.asked == ["/kube-apiserver.sha256", "/kube-apiserver"]


def test_a_download_with_a_wrong_checksum_is_reported_and_never_used(
    obtain: Callable[..., Path], site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    path = obtain(program(release=release(site, "0" * 64)))
    assert path.read_bytes() == BUILT
    assert (
        f"{site.url}/kube-apiserver has SHA-256 {SHA256}, published is {'0' * 64}" in capsys.readouterr().err
    )


def test_a_wrong_checksum_is_an_error_of_its_own(site: Site, tmp_path: Path) -> None:
    with pytest.raises(ChecksumMismatch):
        Downloads().fetch(program(release=release(site, "0" * 64)), tmp_path)
    assert list(tmp_path.glob("kube*")) == []


def test_a_program_is_taken_out_of_its_archive(site: Site, tmp_path: Path) -> None:
    content = archive("linux/helm", PROGRAM)
    digest = hashlib.sha256(content).hexdigest()
    site.files = {"/helm.tar.gz": content, "/sums": f"{'1' * 64}  other\n{digest}  helm.tar.gz\n".encode()}
    wanted = Release(f"{site.url}/helm.tar.gz", f"{site.url}/sums", "linux/helm")

    Downloads().fetch(program(name="helm", release=wanted), tmp_path)
    assert (tmp_path / "helm").read_bytes() == PROGRAM
    with pytest.raises(Unavailable, match="holds no file linux/other"):
        Downloads().fetch(program(release=replace(wanted, member="linux/other")), tmp_path)


def archive(name: str, content: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(SHA256, id="the digest alone"),
        pytest.param(f"{SHA256.upper()}\n", id="in capitals"),
        pytest.param(f"{'1' * 64}  kube-proxy\n{SHA256}  kube-apiserver\n", id="one of several"),
        pytest.param(f"### SHA256\n{SHA256} *kube-apiserver", id="binary mode, with a heading"),
    ],
)
def test_a_checksum_is_read_as_publishers_write_it(text: str) -> None:
    assert checksum_in(text, Release("http://site/kube-apiserver", "http://site/sums")) == SHA256


def test_a_checksum_of_another_file_does_not_count() -> None:
    with pytest.raises(Unavailable, match="http://site/sums has no SHA-256 for kube-apiserver"):
        checksum_in(f"{SHA256}  kube-proxy", Release("http://site/kube-apiserver", "http://site/sums"))


def test_a_release_that_is_not_published_does_not_stop_other_downloads(site: Site, tmp_path: Path) -> None:
    downloads = Downloads()
    there = release(site)
    with pytest.raises(Unavailable, match="404"):
        downloads.fetch(program(release=Release(there.url, f"{site.url}/absent")), tmp_path)
    downloads.fetch(program(release=there), tmp_path)
    assert (tmp_path / "kube-apiserver").read_bytes() == PROGRAM


def test_a_refused_connection_ends_all_downloads_of_the_run(site: Site, tmp_path: Path) -> None:
    downloads = Downloads()
    for wanted in (out_of_reach(), release(site)):
        with pytest.raises(Unavailable, match="out of reach"):
            downloads.fetch(program(release=wanted), tmp_path)
    assert site.asked == []


def test_a_site_that_never_answers_is_given_up_soon_and_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/kube-apiserver"
        downloads = Downloads(patience=0.1)
        for _ in range(2):
            with pytest.raises(Unavailable, match="out of reach"):
                downloads.fetch(program(release=Release(url, url)), tmp_path)
        silent.accept()[0].close()
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_when_all_sources_fail_the_error_lists_them_in_order_with_the_ways_out(
    obtain: Callable[..., Path], tmp_path: Path
) -> None:
    executable(tmp_path / "path" / "kube-apiserver", says("Kubernetes v1.29.1"))
    with pytest.raises(BinaryError) as raised:
        obtain(program(release=out_of_reach()), no_build)
    head, *lines = str(raised.value).splitlines()
    assert head == "no kube-apiserver v1.36.3 to be had; tried, in this order:"
    tried = [line.removeprefix("  - ").split(":")[0] for line in lines if line.startswith("  - ")]
    assert tried == ["KUBEBUILDER_ASSETS", "PATH", "cache", "download", "build"]
    assert "says 'Kubernetes v1.29.1', wanted is v1.36.3" in lines[1]
    assert lines[5].startswith(
        "What helps: a fitting kube-apiserver in a directory named in KUBEBUILDER_ASSETS"
    )


def test_a_failed_attempt_leaves_nothing_half_made(obtain: Callable[..., Path]) -> None:
    def half(built: Sequence[Program], directory: Path) -> None:
        executable(directory / built[0].name)
        raise Unavailable("build: out of space")

    with pytest.raises(BinaryError):
        obtain(program(), half)
    assert [path for path in cache.root().iterdir() if path.is_dir()] == []
    assert obtain(program()).read_bytes() == BUILT


def test_what_a_killed_run_left_is_cleared_away(obtain: Callable[..., Path]) -> None:
    place = cache.place("kube-apiserver", "v1.36.3")
    left = executable(place.with_name(f"{place.name}.making-x1") / "kube-apiserver")
    obtain(program())
    assert not left.exists()


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        BinaryError, match="'kubelet' is not a program of the lab; there are: kwok, kwokctl, etcd"
    ):
        binaries.ensure("kubelet")


SECOND_RUN = """
import sys
from pathlib import Path
from lab.binaries import cache
def fill(directory):
    print("made again")
print(cache.ensure(Path(sys.argv[1]), "tool", fill).read_text())
"""


def test_a_second_run_says_that_it_waits_and_takes_what_the_first_made(tmp_path: Path) -> None:
    place = tmp_path / "tool-v1"
    second: list[subprocess.Popen[str]] = []

    def fill(directory: Path) -> None:
        command = [sys.executable, "-c", SECOND_RUN, str(place)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        second.append(subprocess.Popen(command, text=True, cwd=table.LAB.parent, **pipes))  # type: ignore[call-overload]
        assert second[0].stderr is not None
        assert second[0].stderr.readline() == "waiting for another run that makes tool-v1 ...\n"
        (directory / "tool").write_text("made by the first")

    cache.ensure(place, "tool", fill)
    out, _ = second[0].communicate(timeout=20)
    assert out == "made by the first\n"


FAKE_GO = """#!/bin/sh
case "$1" in
  version) echo "go version go{version} linux/amd64" ;;
  build)
    for last; do
      test "$before" = -o && out=$last
      program=${{last%/v3}}
      case "$out" in
        "" | "$last") ;;
        */) echo "$last" > "$out${{program##*/}}" ;;
      esac
      before=$last
    done
    case "$out" in */) ;; *) echo "$GOFLAGS $CGO_ENABLED" > "$out" ;; esac ;;
  list|mod) echo '{{"Dir": "{modules}"}}' ;;
esac
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    directory = tmp_path / "module"
    directory.mkdir()
    (directory / "go.mod").write_text("module x\n\ngo 1.26.0\n")
    return directory


def install_go(tmp_path: Path, version: str = "1.26.8") -> Path:
    script = FAKE_GO.format(version=version, modules=tmp_path / "modules")
    return executable(tmp_path / "path" / "go", script.encode())


def test_a_build_uses_the_pinned_versions_and_keeps_files_of_the_module(module: Path, tmp_path: Path) -> None:
    install_go(tmp_path)
    crd = tmp_path / "modules" / "config" / "crd.yaml"
    crd.parent.mkdir(parents=True)
    crd.write_text("kind: CustomResourceDefinition")
    crd.chmod(0o444)

    wanted = program(module=module, module_directories={"crds": ("example.org/calico", "config")})
    (tmp_path / "out").mkdir()
    build([wanted], tmp_path / "out")
    assert "-mod=readonly" in (tmp_path / "out" / "kube-apiserver").read_text()
    assert (tmp_path / "out" / "crds" / "crd.yaml").read_text() == crd.read_text()


def test_programs_of_one_module_are_built_together_and_kept_each_in_its_place(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install_go(tmp_path)
    wanted = [
        program(name="etcd", module=module, package="go.example/etcd/server/v3"),
        program(name="kubectl", module=module, package="k8s.example/cmd/kubectl"),
    ]
    monkeypatch.setattr(binaries, "programs", lambda: {each.name: each for each in wanted})

    found = binaries.ensure("kubectl", "etcd")
    assert {name: path.read_text().strip() for name, path in found.items()} == {
        each.name: each.package for each in wanted
    }
    assert {path.parent for path in found.values()} == {
        cache.place(each.name, each.version) for each in wanted
    }
    assert capsys.readouterr().err.count("\nbuilding ") == 2  # its begin and its end
    assert [path for path in cache.root().iterdir() if path.name.startswith("building-")] == []


def test_what_is_left_of_a_build_is_estimated_from_what_is_done() -> None:
    packages = Countdown("packages", 400)
    for _ in range(100):
        packages.one_more()
    assert packages.line(60) == "  100 of 400 packages, about 3 min 0 s left"


def test_definitions_come_from_their_module_and_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = install_go(tmp_path)
    crd = tmp_path / "modules" / "example" / "prometheus-operator-crd" / "crd.yaml"
    crd.parent.mkdir(parents=True)
    crd.write_text("kind: CustomResourceDefinition")

    kept = binaries.prometheus_operator_crds() / "crd.yaml"
    assert kept.read_text() == crd.read_text()
    assert table.versions()["prometheus-operator"] in str(kept)

    go.write_text("#!/bin/sh\nexit 1\n")
    assert binaries.prometheus_operator_crds() / "crd.yaml" == kept


def test_definitions_that_cannot_be_had_are_told_with_the_reason(tmp_path: Path) -> None:
    go = install_go(tmp_path)
    go.write_text(go.read_text().replace("list|mod)", "mod) echo no such host >&2; exit 1;; list)"))

    with pytest.raises(
        BinaryError, match=r"(?s)no definitions of cert-manager v\S+ to be had: .*no such host"
    ):
        binaries.cert_manager_crds()


def test_a_failed_build_says_the_compilers_last_words(module: Path, tmp_path: Path) -> None:
    go = install_go(tmp_path)
    go.write_text(go.read_text().replace("build)", "build) echo main.go:7: no such thing >&2; exit 1;"))
    with pytest.raises(
        Unavailable, match=r"build: '.*go build' in .*module failed:\n +main.go:7: no such thing"
    ):
        build([program(module=module)], tmp_path)


@pytest.mark.parametrize(
    ("on_machine", "taken"),
    [
        pytest.param("1.26.0", True, id="exactly what the module wants"),
        pytest.param("1.27rc1", True, id="newer"),
        pytest.param("1.25.9", False, id="too old"),
        pytest.param(None, False, id="none"),
    ],
)
def test_go_comes_from_pypi_only_when_the_machines_own_does_not_do(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_machine: str | None, taken: bool
) -> None:
    from_pypi = tmp_path / "pypi"
    monkeypatch.setattr(golang, "_from_pypi", lambda version: from_pypi)
    own = install_go(tmp_path, on_machine) if on_machine else None
    assert golang.go_for(module) == (own if taken else from_pypi)


def test_the_table_names_the_versions_that_the_go_modules_require() -> None:
    wanted = table.versions()
    text = (table.LAB / "versions.toml").read_text()
    as_module = dict(re.findall(r"^(\w+) = .+ as a Go module: (\S+)$", text, re.MULTILINE))
    required = {
        "build/programs": (
            f"k8s.io/kubernetes {wanted['kubernetes']}",
            f"go.etcd.io/etcd/server/v3 {wanted['etcd']}",
            f"sigs.k8s.io/kwok {wanted['kwok']}",
            f"helm.sh/helm/v4 {wanted['helm']}",
        ),
        "calico": (f"github.com/projectcalico/calico {as_module['calico']}",),
        "build/prometheus": (f"github.com/prometheus/prometheus {as_module['prometheus']}",),
        "build/cert-manager": (f"github.com/cert-manager/cert-manager {wanted['cert-manager']}",),
        "build/prometheus-operator": (
            f"github.com/prometheus-operator/prometheus-operator {wanted['prometheus-operator']}",
        ),
    }
    for module_name, requirements in required.items():
        go_mod = table.LAB / module_name / "go.mod"
        assert all(
            f"\t{each}\n" in go_mod.read_text() or f"require {each}\n" in go_mod.read_text()
            for each in requirements
        )
        assert golang.go_version(go_mod.read_text()) <= golang.go_version(f"go {wanted['go']}")


def test_every_program_is_named_in_its_module_so_that_go_sum_covers_it() -> None:
    for wanted in table.programs().values():
        source = "main.go" if wanted.package == "." else "programs.go"
        text = (wanted.module / source).read_text()
        assert wanted.package == "." or f'"{wanted.package}"' in text


def test_the_command_prints_name_and_path_of_each_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lab.binaries.__main__ import main

    helm = executable(tmp_path / "path" / "helm", says(table.versions()["helm"]))
    monkeypatch.setattr(sys, "argv", ["binaries", "helm"])
    assert main() == 0
    assert capsys.readouterr().out == f"helm {helm}\n"
    monkeypatch.setattr(sys, "argv", ["binaries", "nonsense"])
    assert main() == 1
    assert "'nonsense' is not a program of the lab" in capsys.readouterr().err


def test_elapsed_time_is_told_in_minutes_and_seconds() -> None:
    assert (elapsed(4.4), elapsed(260)) == ("4 s", "4 min 20 s")
