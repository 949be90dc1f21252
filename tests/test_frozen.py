"""The frozen command needs a C library and zlib: it runs in a root that has nothing else, on its own and by kubectl."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cli.app import COMMANDS
from dev.lab import binaries
from dev.lab.release import frozen, krew
from dev.lab.waiting import stretch
from kube.resources import NAMESPACES, PODS
from tests import cli
from tests.factories import raw_pod
from tests.misbehaving_server import serving
from tests.server import CA, leaf, write_pair
from tests.test_release import RELEASED

programs = pytest.mark.programs
LIBRARIES = ("libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libz.so.1")
KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: a, cluster: {{server: "https://127.0.0.1:{port}"}}}}]
users: [{{name: a, user: {user}}}]
contexts: [{{name: a, context: {{cluster: a, user: a}}}}]
current-context: a
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return frozen.archive(RELEASED, tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def root(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that is there: the unpacked archive, kubectl, the libraries, and the authority of the API server."""
    root = tmp_path_factory.mktemp("root")
    with tarfile.open(archive) as packed:
        packed.extractall(root / "opt", filter="data")
    program = root / "opt" / "drawbridge" / "drawbridge"
    needed = subprocess.check_output(["ldd", program], text=True)
    [libc] = re.findall(r"=> (\S+)/libc\.so\.6", needed)
    [loader] = re.findall(r"^\s(/\S+)", needed, re.MULTILINE)
    for file in (loader, *(f"{libc}/{name}" for name in LIBRARIES)):
        (root / file[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, root / file[1:])
    (root / loader[1:]).chmod(0o755)
    (root / "bin").mkdir()
    shutil.copy(binaries.ensure("kubectl")["kubectl"], root / "bin" / "kubectl")
    (root / "bin" / "kubectl-drawbridge").symlink_to("../opt/drawbridge/drawbridge")
    authorities = root / "etc" / "ssl" / "certs" / "ca-certificates.crt"
    authorities.parent.mkdir(parents=True)
    authorities.write_bytes(CA.certificate)
    (root / "root" / ".kube").mkdir(parents=True)
    return root


def call(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As root, with nothing but *root* in reach."""
    return subprocess.run(
        ["unshare", "--user", "--map-root-user", "--root", root, *arguments],
        capture_output=True,
        text=True,
        env={"PATH": "/bin:/usr/bin", "HOME": "/root"},
        timeout=60 * stretch(),
        check=False,
    )


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Of an API server with Drawbridge, which speaks TLS."""
    directory = tmp_path_factory.mktemp("pair")
    write_pair(directory, leaf())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    api = cli.installed()
    api.put(NAMESPACES, {"metadata": {"name": "redis", "labels": {"ip-reserve": "enabled"}}})
    api.put(PODS, raw_pod())
    with serving(lambda asked: cli.answered(asked) or api.handle(asked)) as server:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        yield server.server_port


@programs
@pytest.mark.parametrize(
    "command", [("/opt/drawbridge/drawbridge",), ("kubectl", "drawbridge")], ids=lambda command: command[0]
)
def test_it_reads_a_cluster_without_a_python_in_reach(
    root: Path, port: int, command: tuple[str, ...]
) -> None:
    """The authority is the system's."""
    (root / "root" / ".kube" / "config").write_text(KUBECONFIG.format(port=port, user="{token: x}"))
    called = call(root, *command, "status", "--no-color")

    assert (called.returncode, called.stderr) == (1, "")
    assert "validating drawbridge   2          Fail, Ignore" in called.stdout
    assert not [*root.rglob("python3")]


@programs
def test_it_leaves_no_key_behind(root: Path, port: int) -> None:
    """The official client writes keys into files, and removes them when the program ends."""
    pair = leaf()
    data = {"client-certificate-data": pair.certificate, "client-key-data": pair.key}
    user = {"username": "x", "password": "x"} | {
        name: b64encode(each).decode() for name, each in data.items()
    }
    (root / "root" / ".kube" / "config").write_text(KUBECONFIG.format(port=port, user=json.dumps(user)))
    before = {*root.rglob("*")}

    assert call(root, "/opt/drawbridge/drawbridge", "status").returncode == 1
    assert {*root.rglob("*")} == before


@programs
def test_it_evaluates_match_conditions(root: Path, port: int) -> None:
    (root / "root" / ".kube" / "config").write_text(KUBECONFIG.format(port=port, user="{token: x}"))
    called = call(root, "kubectl-drawbridge", "explain", "pod", "redis-0", "-n", "redis")

    assert "ip-reservation.drawbridge.io   called    allowed; reserved: 10.0.0.1/32" in called.stdout


@programs
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_in_it(root: Path, command: str) -> None:
    called = call(root, "kubectl-drawbridge", command, "--help")

    assert (called.returncode, called.stderr) == (0, "")
    assert called.stdout.startswith(f"Usage: drawbridge {command}")


@programs
def test_it_says_its_version_and_what_it_lacks(root: Path) -> None:
    (root / "root" / ".kube" / "config").unlink(missing_ok=True)

    assert call(root, "kubectl-drawbridge", "--version").stdout == "drawbridge, version 0.2.0\n"
    called = call(root, "kubectl-drawbridge", "status")
    assert (called.returncode, called.stderr.splitlines()[0]) == (
        3,
        "Error: there is no kubeconfig at ~/.kube/config",
    )


@programs
def test_krew_finds_what_its_manifest_names(archive: Path) -> None:
    """The archives of other systems have other content, and names of one form."""
    directory = archive.parent
    others = [directory / f"drawbridge-0.2.0-{each}.tar.gz" for each in ("darwin-arm64", "windows-amd64")]
    for other in others:
        other.write_bytes(other.name.encode())
    manifest = yaml.safe_load(krew.write(RELEASED, directory).read_text())

    assert (manifest["metadata"]["name"], manifest["spec"]["version"]) == ("drawbridge", "v0.2.0")
    named = {each["uri"].rpartition("/")[2]: each for each in manifest["spec"]["platforms"]}
    assert {*named} == {archive.name, *(other.name for other in others)}
    for name, each in named.items():
        assert each["sha256"] == hashlib.sha256((directory / name).read_bytes()).hexdigest()
        assert each["uri"] == f"{RELEASED.source}/releases/download/v0.2.0/{name}"
        assert "-{os}-{arch}.".format(**each["selector"]["matchLabels"]) in name
    assert named["drawbridge-0.2.0-windows-amd64.tar.gz"]["bin"].endswith(".exe")
    with tarfile.open(archive) as packed:
        members = packed.getmembers()
    assert named[archive.name]["bin"] in [each.name for each in members if each.mode & 0o111]
    assert {each.isfile() or each.isdir() for each in members} == {True}
    assert [each.name for each in members if ".." in each.name] == []


def test_a_manifest_is_not_made_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(krew.LabError, match="no archive of the command"):
        krew.write(RELEASED, tmp_path)


ELSEWHERE = """\
import os, signal, socket, sys
sys.modules |= dict.fromkeys(("fcntl", "grp", "pwd", "resource", "termios"))
del os.fork, os.uname, signal.SIGKILL, socket.AF_UNIX, socket.TCP_KEEPIDLE
socket.TCP_KEEPALIVE = 16  # macOS's name for it
import pkgutil
from cli.app import COMMANDS
for reference, _ in COMMANDS.values():
    pkgutil.resolve_name(reference)
import dev.lab.release.__main__
"""


def test_it_loads_and_is_frozen_where_python_lacks_what_only_linux_has() -> None:
    subprocess.run([sys.executable, "-c", ELSEWHERE], check=True, cwd=frozen.ROOT)
