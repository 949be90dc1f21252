"""The definitions of other projects' kinds are there in the pinned version, without a build of their programs."""

import json
from pathlib import Path

from dev.lab.binaries import cache, progress
from dev.lab.binaries.build import keep, run_go
from dev.lab.binaries.go import go_for
from dev.lab.binaries.table import LAB, versions

PLACES = {
    "cert-manager": ("github.com/cert-manager/cert-manager", "deploy/crds"),
    "prometheus-operator": (
        "github.com/prometheus-operator/prometheus-operator",
        "example/prometheus-operator-crd",
    ),
}
"""In which Go module, and where in it; our own module in dev/lab/build/<name> pins its version and its checksum."""
ORIGIN = "module.json"


def directory(name: str) -> Path:
    """Of the manifests, from our cache or the Go module; raises Unavailable."""
    place = cache.place(f"{name}-crds", versions()[name])
    return cache.ensure(place, ORIGIN, lambda making: _fetch(name, making)).parent / "crds"


def _fetch(name: str, making: Path) -> None:
    module, path = PLACES[name]
    ours = LAB / "build" / name
    with progress.step(f"fetching the definitions of {name} {versions()[name]}"):
        origin = run_go(go_for(ours), ours, "mod", "download", "-json", module)
    keep(Path(json.loads(origin)["Dir"]) / path, making / "crds")
    (making / ORIGIN).write_text(origin)
