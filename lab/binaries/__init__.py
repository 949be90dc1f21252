"""Every program of the lab is there in the pinned version, from the nearest source that has it."""

from collections.abc import Callable
from pathlib import Path

from lab.binaries import cache, definitions, found, progress
from lab.binaries.build import build
from lab.binaries.download import Downloads
from lab.binaries.errors import BinaryError, ChecksumMismatch, Unavailable
from lab.binaries.table import Program, programs, versions

__all__ = ["DEFAULT", "BinaryError", "calico_crds", "cert_manager_crds", "ensure", "prometheus_operator_crds"]

SELDOM = (
    "calico-ipam",
    "prometheus",
    "promtool",
    "cert-manager-controller",
    "cert-manager-cainjector",
)
"""Programs of single tests, which labs do not need."""
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
    downloads = Downloads()
    return {name: _obtain(known[name], downloads) for name in names or DEFAULT}


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


def _obtain(program: Program, downloads: Downloads) -> Path:
    tried: list[str] = []
    for look in (found.in_assets, found.on_path):
        try:
            return look(program)
        except Unavailable as reason:
            tried.append(str(reason))
    place = cache.place(program.name, program.version)
    tried.append(f"cache: nothing at {place}")
    return cache.ensure(place, program.name, lambda directory: _make(program, directory, downloads, tried))


def _make(program: Program, directory: Path, downloads: Downloads, tried: list[str]) -> None:
    makers: tuple[Callable[[Program, Path], None], ...] = (downloads.fetch, build)
    for make in makers:
        try:
            return make(program, directory)
        except Unavailable as reason:
            tried.append(str(reason))
            if isinstance(reason, ChecksumMismatch):
                progress.say(f"WARNING: {reason}")
    raise BinaryError(_explanation(program, tried))


def _explanation(program: Program, tried: list[str]) -> str:
    head = f"no {program.name} {program.version} to be had; tried, in this order:"
    out = WAYS_OUT.format(name=program.name, assets=found.ASSETS, module=program.module)
    return "\n".join([head, *(f"  - {reason}" for reason in tried), out])
