"""Each chart as one file, and the manifests that it renders by default, both with the image of the release."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from dev.lab import binaries, chart
from dev.lab.errors import LabError
from dev.lab.manifests import DEPLOY
from dev.lab.release import notes
from dev.lab.release.identity import Release, committed

HEAD = "# Drawbridge {version}, as `helm template` renders its chart with default values in namespace drawbridge.\n"
PLATFORMS = ["linux/amd64", "linux/arm64"]


def write(release: Release, changes: str, directory: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        staged = Path(temporary) / "drawbridge"
        shutil.copytree(chart.CHART, staged)
        _fill(staged, release, changes)
        _helm("package", str(staged), "--destination", str(directory))
        eklet = Path(temporary) / "eklet"
        shutil.copytree(chart.EKLET, eklet)
        _date(eklet)
        _helm("package", str(eklet), f"--version={release.version}", "--destination", str(directory))
        rendered = _helm("template", chart.NAME, str(staged), "--namespace", chart.NAMESPACE, "--skip-tests")
    namespace = (DEPLOY / "namespace.yaml").read_text()
    manifests = f"{HEAD.format(version=release.version)}{namespace}---\n{chart.without_helm(rendered)}"
    (directory / "install.yaml").write_text(manifests)


def _fill(staged: Path, release: Release, changes: str) -> None:
    metadata = staged / "Chart.yaml"
    metadata.write_text(
        yaml.safe_dump(described(yaml.safe_load(metadata.read_text()), release, changes), sort_keys=False)
    )
    values = staged / "values.yaml"
    values.write_text(with_defaults(values.read_text(), release))
    _date(staged)


def _date(staged: Path) -> None:
    """Helm writes the time of each file into the archive."""
    for path in staged.rglob("*"):
        os.utime(path, (committed(), committed()))


def described(metadata: Mapping[str, Any], release: Release, changes: str) -> dict[str, Any]:
    """Chart.yaml with what is known only when it is released."""
    listed = [{"kind": each.kind, "description": each.text} for each in notes.changes(changes)]
    annotations = {
        **metadata.get("annotations", {}),
        "artifacthub.io/changes": yaml.safe_dump(listed, sort_keys=False, width=10_000),
        "artifacthub.io/prerelease": str("-" in release.version).lower(),
    }
    image = "/".join(part for part in (release.registry, release.repository) if part)
    if image:
        built = {"name": "drawbridge", "image": f"{image}:{release.version}", "platforms": PLATFORMS}
        annotations["artifacthub.io/images"] = yaml.safe_dump([built], sort_keys=False)
    found = {**metadata, "version": release.version, "appVersion": release.version}
    return {**found, **_pages(metadata, release), "annotations": annotations}


def _pages(metadata: Mapping[str, Any], release: Release) -> dict[str, Any]:
    if not release.source:
        return {}
    at_tag = f"{release.source}/raw/v{release.version}"
    return {
        "home": release.source,
        "sources": [release.source],
        "icon": f"{at_tag}/charts/drawbridge/icon.svg",
        "maintainers": [
            {**each, "url": f"{release.source}/blob/v{release.version}/MAINTAINERS.md"}
            for each in metadata["maintainers"]
        ],
    }


def with_defaults(values: str, release: Release) -> str:
    """values.yaml keeps its comments, so lines of it are replaced; raises LabError when they are not there."""
    lines = {}
    if release.repository:
        lines["  registry: "] = ('""', release.registry)
        lines["  repository: "] = ("drawbridge", release.repository)
    if release.source:
        pages = f"{release.source}/blob/v{release.version}/docs/how-to/runbooks"
        lines["    runbookBaseURL: "] = ('""', pages)
    for name, (default, value) in lines.items():
        if values.count(f"\n{name}{default}\n") != 1:
            raise LabError(
                f"values.yaml has no line '{name}{default}', which dev/lab/release/packages.py replaces"
            )
        values = values.replace(f"\n{name}{default}\n", f'\n{name}"{value}"\n')
    return values


def _helm(*arguments: str) -> str:
    helm = str(binaries.ensure("helm")["helm"])
    done = subprocess.run([helm, *arguments], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise LabError(f"`helm {arguments[0]}` failed: {done.stderr.strip()}")
    return done.stdout
