"""The image of the release, built from the Dockerfile for this architecture, in one file of the OCI's layout."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from dev.lab.errors import LabError
from dev.lab.node import images, requirements
from dev.lab.release.identity import Release, committed, revision
from dev.lab.release.oci import INDEX, LAYER, MANIFEST, blob
from dev.lab.repository import ROOT

CONFIG = "application/vnd.oci.image.config.v1+json"
Json = dict[str, Any]


def write(release: Release, directory: Path) -> Path:
    """The archive; raises LabError where this machine cannot build images."""
    file = directory / f"drawbridge-{release.version}-image-{release.architecture}.tar"
    convert(saved(release), file, release.version)
    return file


def saved(release: Release) -> Path:
    """As Docker saves it."""
    if why := requirements.missing():
        raise LabError(f"no image can be made here: {why}")
    given = {"VERSION": release.version, "REVISION": revision()}
    return images.build(ROOT, f"drawbridge:{release.version}", arguments=given)


def convert(docker: Path, file: Path, version: str) -> None:
    """From the layout of Docker's archives, in which layers are not compressed."""
    with tarfile.open(docker) as built, tarfile.open(file, "w") as whole:
        [described] = json.loads(_read(built, "manifest.json"))
        config = _add_blob(whole, CONFIG, _read(built, described["Config"]))
        layers = [
            _add_blob(whole, LAYER, gzip.compress(_read(built, name), 6, mtime=0))
            for name in described["Layers"]
        ]
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
        named = {"annotations": {"org.opencontainers.image.ref.name": version}}
        found = _add_blob(whole, MANIFEST, _json(manifest)) | named
        _add(whole, "index.json", _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [found]}))
        _add(whole, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    """Layers of two names may be one file, and a link then."""
    opened = archive.extractfile(name)
    return opened.read() if opened else b""


def _add_blob(whole: tarfile.TarFile, media_type: str, data: bytes) -> Json:
    digest = hashlib.sha256(data).hexdigest()
    _add(whole, blob(f"sha256:{digest}"), data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def _add(whole: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(data), 0o644, committed()
    whole.addfile(member, io.BytesIO(data))


def _json(value: Json) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
