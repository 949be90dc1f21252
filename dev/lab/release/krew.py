"""The manifest by which krew installs the command, of the archives that are there."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from dev.lab.errors import LabError
from dev.lab.release import checksums
from dev.lab.release.identity import Release

ARCHIVE = re.compile(r"drawbridge-.+-(?P<os>linux|darwin|windows)-(?P<arch>amd64|arm64)\.tar\.gz")
DESCRIPTION = """\
Drawbridge reserves IPs, gives nodes anycast IPs, places pods on super nodes, and rolls out ingress pods node by node.
This shows what it does in a cluster, what is wrong and why, and makes changes by hand, with your own permissions.
"""


def write(release: Release, directory: Path) -> Path:
    """Raises LabError without an archive: the manifest has their checksums."""
    found = [(file, named) for file in sorted(directory.iterdir()) if (named := ARCHIVE.fullmatch(file.name))]
    if not found:
        raise LabError(f"{directory}: no archive of the command; run make release PART=cli first")
    download = f"{release.source}/releases/download/v{release.version}"
    platforms = [
        {
            "selector": {"matchLabels": named.groupdict()},
            "uri": f"{download}/{file.name}",
            "sha256": checksums.digest(file),
            "bin": f"drawbridge/drawbridge{'.exe' if named['os'] == 'windows' else ''}",
        }
        for file, named in found
    ]
    spec = {
        "version": f"v{release.version}",
        "homepage": release.source,
        "shortDescription": "See what Drawbridge does, and what is wrong",
        "description": DESCRIPTION,
        "platforms": platforms,
    }
    version = "krew.googlecontainertools.github.com/v1alpha2"
    manifest = {"apiVersion": version, "kind": "Plugin", "metadata": {"name": "drawbridge"}, "spec": spec}
    (directory / "drawbridge.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))
    return directory / "drawbridge.yaml"
