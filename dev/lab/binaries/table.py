"""Say of every program of the lab which version is wanted and where it can come from."""

import hashlib
import os
import platform
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LAB = Path(__file__).resolve().parents[1]
TOGETHER = LAB / "build" / "programs"
"""One module for all programs that every lab needs: what they share is compiled once."""
OLDEST = LAB / "build" / "oldest"
NODE = LAB / "build" / "node"
COLUMN = "DRAWBRIDGE_LAB_VERSIONS"
"""The environment variable that names a column of versions.toml."""
CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
PLATFORM = {
    "os": platform.system().lower(),
    "arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine().lower()),
}


@dataclass(frozen=True)
class Release:
    """An official download; `member` is the program's place in a .tar.gz, None when the file is the program."""

    url: str
    checksums: str
    member: str | None = None


@dataclass(frozen=True)
class Program:
    """One program; `version_question` is what makes it say its version, None when only our own build will do."""

    name: str
    version: str
    module: Path
    package: str
    ldflags: str = ""
    tags: str = ""
    """Build tags, with commas between them."""
    version_question: tuple[str, ...] | None = ("--version",)
    release: Release | None = None
    module_directories: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Directories of Go modules kept beside the program: name there -> (module, path in it)."""


def versions(column: str = "versions") -> dict[str, str]:
    """What is wanted, or the oldest that is supported."""
    table: dict[str, str] = tomllib.loads((LAB / "versions.toml").read_text())[column]
    return table


def programs() -> dict[str, Program]:
    """All programs of the lab by name, in the order in which they are made; raises KeyError for other columns.

    With ``DRAWBRIDGE_LAB_VERSIONS=oldest`` some are those that the oldest supported cluster and operator have.
    """
    wanted = versions()
    every = [
        *_kwok(wanted["kwok"]),
        _etcd(wanted["etcd"]),
        *_kubernetes(wanted["kubernetes"], TOGETHER, CONTROL_PLANE),
        *_kubernetes(wanted["kubernetes"], TOGETHER, ("kubectl",)),
        _helm(wanted["helm"], TOGETHER),
        _own("configs", wanted["helm"], "configs"),
        _own("noop-webhook", wanted["go"], "noop"),
        _own("noop-gate", wanted["go"], "gate"),
        _calico(wanted["calico"]),
        _promtool(wanted["prometheus"]),
        *_cert_manager(wanted["cert-manager"]),
        *_of_releases(wanted),
        *_kubernetes(wanted["kubernetes"], NODE, ("kubelet", "kube-proxy")),
        _pause(),
        *_containerd(wanted["containerd"]),
        *_calico_node(wanted["calico"]),
        *_metallb(wanted["metallb"]),
    ]
    column = os.environ.get(COLUMN)
    instead = {program.name: program for program in _oldest(versions(column))} if column else {}
    return {program.name: program for program in every if program.name not in instead} | instead


def _oldest(wanted: Mapping[str, str]) -> list[Program]:
    return [*_kubernetes(wanted["kubernetes"], OLDEST, CONTROL_PLANE), _helm(wanted["helm"], OLDEST)]


def _kwok(version: str) -> list[Program]:
    """kwok publishes no checksums with its releases, so there is nothing to verify a download by: built."""
    return [
        Program(
            name,
            version,
            TOGETHER,
            f"sigs.k8s.io/kwok/cmd/{name}",
            ldflags=f"-X sigs.k8s.io/kwok/pkg/consts.Version={version}",
        )
        for name in ("kwok", "kwokctl")
    ]


def _etcd(version: str) -> Program:
    base = f"https://github.com/etcd-io/etcd/releases/download/{version}"
    archive = "etcd-{version}-{os}-{arch}".format(version=version, **PLATFORM)
    return Program(
        "etcd",
        version,
        TOGETHER,
        "go.etcd.io/etcd/server/v3",
        release=Release(f"{base}/{archive}.tar.gz", f"{base}/SHA256SUMS", f"{archive}/etcd"),
    )


def _kubernetes(version: str, module: Path, names: Sequence[str]) -> list[Program]:
    major, minor, _ = version.removeprefix("v").split(".")
    stamp = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    ldflags = " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamp.items())
    base = "https://dl.k8s.io/release/{version}/bin/{os}/{arch}".format(version=version, **PLATFORM)
    return [
        Program(
            name,
            version,
            module,
            f"k8s.io/kubernetes/cmd/{name}",
            ldflags=ldflags,
            version_question=("version", "--client") if name == "kubectl" else ("--version",),
            release=Release(f"{base}/{name}", f"{base}/{name}.sha256"),
        )
        for name in names
    ]


def _helm(version: str, module: Path) -> Program:
    major = version.split(".")[0]
    place = "{os}-{arch}".format(**PLATFORM)
    url = f"https://get.helm.sh/helm-{version}-{place}.tar.gz"
    return Program(
        "helm",
        version,
        module,
        f"helm.sh/helm/{major}/cmd/helm",
        ldflags=f"-X helm.sh/helm/{major}/internal/version.version={version}",
        version_question=("version", "--short"),
        release=Release(url, f"{url}.sha256sum", f"{place}/helm"),
    )


def _own(name: str, version: str, directory: str) -> Program:
    """Our own program, in the module of the programs of the lab; *version* is of what it is made with."""
    source = (TOGETHER / directory / "main.go").read_bytes()
    return Program(
        name,
        f"{version}-{hashlib.sha256(source).hexdigest()[:8]}",
        TOGETHER,
        f"drawbridge/lab/build/programs/{directory}",
        version_question=None,
    )


def _calico(version: str) -> Program:
    """Our own program, so its version says what it was made of."""
    module = LAB / "calico"
    sources = b"".join((module / name).read_bytes() for name in ("main.go", "go.mod", "go.sum"))
    return Program(
        "calico-ipam",
        f"{version}-{hashlib.sha256(sources).hexdigest()[:8]}",
        module,
        ".",
        version_question=None,
        module_directories={"crds": ("github.com/projectcalico/calico", "libcalico-go/config/crd")},
    )


def _promtool(version: str) -> Program:
    """Built without what tests do not use: discovery of targets but from files and by HTTP."""
    number = version.removeprefix("v")
    base = f"https://github.com/prometheus/prometheus/releases/download/{version}"
    archive = "prometheus-{number}.{os}-{arch}".format(number=number, **PLATFORM)
    return Program(
        "promtool",
        version,
        LAB / "build/prometheus",
        "github.com/prometheus/prometheus/cmd/promtool",
        ldflags=f"-X github.com/prometheus/common/version.Version={number}",
        tags="remove_all_sd",
        release=Release(f"{base}/{archive}.tar.gz", f"{base}/sha256sums.txt", f"{archive}/promtool"),
    )


def _cert_manager(version: str) -> list[Program]:
    """Released as images only, and its programs do not print their version, so it is built."""
    module = "github.com/cert-manager/cert-manager"
    return [
        Program(
            f"cert-manager-{name}",
            version,
            LAB / "build/cert-manager",
            f"{module}/cmd/{name}",
            ldflags=f"-X {module}/pkg/util.AppVersion={version}",
            version_question=None,
        )
        for name in ("controller", "cainjector")
    ]


def _of_releases(wanted: Mapping[str, str]) -> list[Program]:
    """What checks the workflows, and what pushes images."""
    return [
        Program(
            "actionlint",
            wanted["actionlint"],
            LAB / "build/actionlint",
            "github.com/rhysd/actionlint/cmd/actionlint",
        ),
        Program(
            "crane",
            wanted["crane"],
            LAB / "build/crane",
            "github.com/google/go-containerregistry/cmd/crane",
            version_question=("version",),
            ldflags=f"-X github.com/google/go-containerregistry/cmd/crane/cmd.Version={wanted['crane']}",
        ),
    ]


def _pause() -> Program:
    """Our own program: the first container of each pod on a real node."""
    source = (NODE / "pause" / "main.go").read_bytes()
    version = hashlib.sha256(source).hexdigest()[:8]
    return Program("pause", version, NODE, "drawbridge/lab/build/node/pause", version_question=None)


def _containerd(version: str) -> list[Program]:
    """Built together, because the daemon and its shim must be of one version."""
    return [
        Program(
            name,
            version,
            LAB / "build/containerd",
            f"github.com/containerd/containerd/v2/cmd/{name}",
            version_question=None,
        )
        for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    ]


def _calico_node(version: str) -> list[Program]:
    """Calico's CNI plugin and its IPAM plugin in one program, which its file name tells apart; Felix and confd."""
    module, calico = LAB / "build/calico", "github.com/projectcalico/calico"
    return [
        Program("calico", version, module, f"{calico}/cni-plugin/cmd/calico", version_question=None),
        Program(
            "calico-node",
            version,
            module,
            f"{calico}/node/cmd/calico-node",
            version_question=None,
            module_directories={
                each: (calico, f"confd/etc/calico/confd/{each}") for each in ("conf.d", "templates")
            },
        ),
    ]


def _metallb(version: str) -> list[Program]:
    """Released as images only, so it is built; its kinds are kept beside it."""
    module = "go.universe.tf/metallb"
    return [
        Program(
            f"metallb-{name}",
            version,
            LAB / "build/metallb",
            f"{module}/{name}",
            version_question=None,
            module_directories={"metallb-crds": (module, "config/crd/bases")} if name == "speaker" else {},
        )
        for name in ("controller", "speaker")
    ]
