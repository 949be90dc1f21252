"""Every program of the lab is there in the pinned version, from the nearest source that has it.

Only modules of Python itself are imported here: programs are built while pip installs the others.
"""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from dev.lab.binaries import cache, definitions, found, progress
from dev.lab.binaries.build import build
from dev.lab.binaries.download import Downloads
from dev.lab.binaries.errors import BinaryError, ChecksumMismatch, Unavailable
from dev.lab.binaries.table import Program, programs, versions

__all__ = ["DEFAULT", "BinaryError", "calico_crds", "cert_manager_crds", "ensure", "prometheus_operator_crds"]

NODE = (
    "kubelet",
    "kube-proxy",
    "pause",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "calico",
)
"""Programs of a real node."""
SELDOM = (
    *NODE,
    "calico-ipam",
    "calico-node",
    "configs",
    "noop-gate",
    "noop-webhook",
    "promtool",
    "cert-manager-controller",
    "cert-manager-cainjector",
    "metallb-controller",
    "metallb-speaker",
    "actionlint",
    "crane",
)
"""Programs of single tests, which labs do not need."""
BUILDING = "building-"
DEFAULT = tuple(name for name in programs() if name not in SELDOM)

WAYS_OUT = """\
What helps: a fitting {name} in a directory named in {assets} or on PATH; or access to the release
downloads; or access to the Go modules with a Go at least as new as go.mod in {module} asks for."""


def ensure(*names: str) -> dict[str, Path]:
    """Where each named program is (all but those of SELDOM by default), made available first if need be.

    Sources, in this order: KUBEBUILDER_ASSETS, PATH, our cache, the verified release, a build; raises BinaryError.
    """
    known = programs()
    for name in names:
        if name not in known:
            raise BinaryError(f"'{name}' is not a program of the lab; there are: {', '.join(known)}")
    search = Search([known[name] for name in names or DEFAULT])
    for source in (found.in_assets, found.on_path, _kept):
        search.ask(source)
    if search.missing:
        cache.root().mkdir(parents=True, exist_ok=True)
        with cache.locked(cache.root() / "programs"):
            search.ask(_downloading(Downloads()))
            search.build()
    if search.missing:
        raise BinaryError("\n".join(map(search.explanation, search.missing)))
    return {name: search.paths[name] for name in names or DEFAULT}


class Search:
    """Where programs are, and why a source does not have those that are missing."""

    def __init__(self, wanted: Sequence[Program]) -> None:
        self.missing = list(wanted)
        self.paths: dict[str, Path] = {}
        self._tried: dict[str, list[str]] = {each.name: [] for each in wanted}

    def ask(self, source: Callable[[Program], Path]) -> None:
        for program in list(self.missing):
            try:
                self._take(program, source(program))
            except Unavailable as reason:
                self._failed(program, reason)

    def build(self) -> None:
        """What the programs of one module share is compiled once."""
        for _, group in groupby(list(self.missing), lambda each: each.module):
            together = list(group)
            for abandoned in cache.root().glob(f"{BUILDING}*"):
                shutil.rmtree(abandoned, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=BUILDING, dir=cache.root()) as directory:
                try:
                    build(together, Path(directory))
                except Unavailable as reason:
                    for program in together:
                        self._failed(program, reason)
                else:
                    for program in together:
                        self._take(program, _keep(program, partial(_move, Path(directory), program)))

    def explanation(self, program: Program) -> str:
        head = f"no {program.name} {program.version} to be had; tried, in this order:"
        out = WAYS_OUT.format(name=program.name, assets=found.ASSETS, module=program.module)
        return "\n".join([head, *(f"  - {reason}" for reason in self._tried[program.name]), out])

    def _take(self, program: Program, path: Path) -> None:
        self.paths[program.name] = path
        self.missing.remove(program)

    def _failed(self, program: Program, reason: Unavailable) -> None:
        self._tried[program.name].append(str(reason))
        if isinstance(reason, ChecksumMismatch):
            progress.say(f"WARNING: {reason}")


def calico_crds() -> Path:
    """The directory of Calico's CRD manifests, of the very version of the allocator."""
    return ensure("calico-ipam")["calico-ipam"].parent / "crds"


def cert_manager_crds() -> Path:
    """The directory of cert-manager's CRD manifests, of the very version of its controller."""
    return _definitions("cert-manager")


def prometheus_operator_crds() -> Path:
    """The directory of the Prometheus operator's CRD manifests."""
    return _definitions("prometheus-operator")


def _definitions(name: str) -> Path:
    try:
        return definitions.directory(name)
    except Unavailable as reason:
        raise BinaryError(f"no definitions of {name} {versions()[name]} to be had: {reason}") from reason


def _kept(program: Program) -> Path:
    place = cache.place(program.name, program.version)
    if not cache.has(place, (program.name, *program.module_directories)):
        raise Unavailable(f"cache: nothing, or not all of it, at {place}")
    return place / program.name


def _keep(program: Program, fill: Callable[[Path], None]) -> Path:
    place = cache.place(program.name, program.version)
    return cache.ensure(place, program.name, fill, beside=program.module_directories)


def _downloading(downloads: Downloads) -> Callable[[Program], Path]:
    return lambda program: _keep(program, partial(downloads.fetch, program))


def _move(built: Path, program: Program, target: Path) -> None:
    for name in (program.name, *program.module_directories):
        (built / name).rename(target / name)
