"""The image as its builder leaves it has what the programs need and nothing else, and they run in it."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest

from dev.lab.install import NAMESPACE, RELEASE
from dev.lab.waiting import at_most
from tests.e2e.cluster import FIRST, Cluster
from tests.e2e.real import Real
from tests.test_layers import FLOORS

BUDGET = 150e6
USER = 65532
Files = Mapping[str, tarfile.TarInfo]
IMPORT_ALL = f"""\
import importlib, pkgutil
packages = [importlib.import_module(name) for name in {sorted(FLOORS)}]
names = [
    found.name
    for package in packages
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


@pytest.fixture(scope="module")
def files(cluster: Cluster) -> Files:
    return files_of(cluster.archive())


def files_of(saved: Path) -> Files:
    """All files of its layers, by path."""
    found: dict[str, tarfile.TarInfo] = {}
    with tarfile.open(saved) as archive:
        [image] = json.load(archive.extractfile("manifest.json"))
        for layer in image["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(layer)) as content:
                found |= {f"/{member.name.removeprefix('./').strip('/')}": member for member in content}
    return found


def test_it_is_within_its_budget(files: Files) -> None:
    size = sum(each.size for each in files.values())

    print(f"{size / 1e6:.0f} MB")
    assert size < BUDGET


def programs(files: Files) -> set[str]:
    return {
        PurePosixPath(path).name
        for path, found in files.items()
        if PurePosixPath(path).parent.name in ("bin", "sbin") and not found.isdir()
    }


def test_it_has_no_programs_but_its_own(files: Files) -> None:
    assert programs(files) == {"drawbridge", "gunicorn", "python", "python3", "python3.11"}


def test_an_image_that_is_not_trimmed_has_a_shell_and_a_package_manager(real_nodes: Real) -> None:
    """The control of the test above: the same base, with nginx."""
    assert {"sh", "apt-get", "nginx"} <= programs(files_of(real_nodes.edge_archive()))


def test_nothing_of_the_machine_that_built_it_is_in_it(files: Files) -> None:
    assert "/app/wsgi.py" in files
    assert {"/etc/pip.conf", "/run/machine-ca.crt", "/etc/resolv.conf", "/root/.cache"}.isdisjoint(files)
    mount_point = "/dev"
    others = [path for path in files if "site-packages" not in path and path != mount_point]
    assert [path for path in others if {".git", "tests", "dev", "pip"} & {*PurePosixPath(path).parts}] == []


def test_its_user_could_write_nothing_on_a_root_that_is_not_read_only(files: Files) -> None:
    writable = {
        path
        for path, found in files.items()
        if found.uid == USER or found.gid == USER or (found.mode & 0o002 and not found.issym())
    }

    assert writable == {"/tmp", "/var/tmp", "/var/lock"}  # noqa: S108 - as Debian has it


def test_every_module_has_its_bytecode(files: Files) -> None:
    modules = [PurePosixPath(path) for path in files if path.endswith(".py") and not path.startswith("/etc/")]

    assert len(modules) > 500
    assert {
        str(path)
        for path in modules
        if str(path.parent / "__pycache__" / f"{path.stem}.cpython-311.pyc") not in files
    } == set()


def test_every_module_of_the_product_can_be_imported(cluster: Cluster) -> None:
    pod = ("--namespace", NAMESPACE, "exec", f"deployment/{RELEASE}-controllers")

    output = cluster.kubectl(*pod, "--", "python", "-W", "error", "-c", IMPORT_ALL).stdout

    assert int(output) > 100


def test_the_webhook_servers_answer_every_feature(cluster: Cluster) -> None:
    assert "Phase:          Succeeded" in cluster.helm("test", RELEASE, "--namespace", NAMESPACE).stdout


def test_the_controllers_report_what_they_lack(cluster: Cluster) -> None:
    spec = {"automountServiceAccountToken": False, "restartPolicy": "Never"}
    run = (
        "run",
        "lacking",
        f"--image={FIRST}",
        "--restart=Never",
        f"--overrides={json.dumps({'spec': spec})}",
    )
    cluster.kubectl(*run, "--", "python", "-m", "controllers")
    ended = ("wait", "pod/lacking", "--for=jsonpath={.status.phase}=Failed", at_most(120))
    cluster.kubectl(*ended)

    state = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}"
    assert cluster.kubectl("get", "pod", "lacking", "--output", state).stdout == "2"
    assert "the controllers cannot start:\nthe ServiceAccount in" in cluster.kubectl("logs", "lacking").stdout
    cluster.kubectl("delete", "pod", "lacking")


def test_the_programs_write_nothing_but_to_their_volumes(cluster: Cluster) -> None:
    for program in ("webhook", "controllers"):
        place = ("--namespace", NAMESPACE, "logs", f"deployment/{RELEASE}-{program}", "--all-pods=true")
        log = cluster.kubectl(*place).stdout

        assert log
        assert "Read-only file system" not in log
        assert "Permission denied" not in log
