"""The image of the release, built from the Dockerfile for this machine's architecture, in one file."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab import chart
from lab.errors import LabError
from lab.image import base
from lab.image.build import build
from lab.image.stage import Stage
from lab.release.identity import Release, committed, revision
from lab.release.oci import INDEX, LAYER, MANIFEST, blob

Json = dict[str, Any]


def write(release: Release, directory: Path) -> Path:
    """The archive; raises LabError where this machine cannot build images."""
    if why := base.missing():
        raise LabError(f"no image can be made: {why}")
    file = directory / f"drawbridge-{release.version}-image-{release.architecture}.tar"
    with tarfile.open(file, "w") as whole:
        _write(whole, build(chart.ROOT), release)
    return file


def _write(whole: tarfile.TarFile, stage: Stage, release: Release) -> None:
    packed = [_packed(layer) for layer in stage.layers]
    described = [_add_blob(whole, LAYER, data) for data, _ in packed]
    config = _add_blob(whole, "application/vnd.oci.image.config.v1+json", _config(stage, packed, release))
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": described}
    found = _add_blob(whole, MANIFEST, _json(manifest))
    named = {"org.opencontainers.image.ref.name": release.version}
    _add(
        whole,
        "index.json",
        _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [found | {"annotations": named}]}),
    )
    _add(whole, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))


def _config(stage: Stage, packed: list[tuple[bytes, str]], release: Release) -> bytes:
    labels = {
        **stage.labels,
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.revision": revision(),
    }
    running = {
        "User": stage.user,
        "Env": [f"{name}={value}" for name, value in stage.env.items()],
        "Cmd": [*stage.command],
        "WorkingDir": stage.directory,
        "Labels": labels,
    }
    layers = {"type": "layers", "diff_ids": [plain for _, plain in packed]}
    return _json({"architecture": release.architecture, "os": "linux", "config": running, "rootfs": layers})


def _packed(layer: Path) -> tuple[bytes, str]:
    """The files of *layer*, compressed, and the digest of what was compressed. Only times of the source are in it."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(layer.rglob("*")):
            archive.add(path, str(path.relative_to(layer)), recursive=False, filter=_anonymous(committed()))
    data = plain.getvalue()
    return gzip.compress(data, 6, mtime=0), _digest(data)


def _anonymous(when: int) -> Callable[[tarfile.TarInfo], tarfile.TarInfo]:
    def change(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uname = member.gname = ""
        member.mtime = when
        return member

    return change


def _add_blob(whole: tarfile.TarFile, media_type: str, data: bytes) -> Json:
    _add(whole, blob(_digest(data)), data)
    return {"mediaType": media_type, "digest": _digest(data), "size": len(data)}


def _add(whole: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(data), 0o644, committed()
    whole.addfile(member, io.BytesIO(data))


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _json(value: Json) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
