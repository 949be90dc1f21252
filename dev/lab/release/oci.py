"""An image in one file, in the OCI's layout: what podman, skopeo, crane and containerd import."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
Json = dict[str, Any]


def layers(archive: Path) -> Iterator[tarfile.TarFile]:
    """Each layer of the only image in *archive*, the lowest first, open while it is looked at."""
    with tarfile.open(archive) as whole:
        index = _json(whole, "index.json")
        while "layers" not in index:
            index = _json(whole, blob(index["manifests"][0]["digest"]))
        for layer in index["layers"]:
            with ExitStack() as opened:
                raw = opened.enter_context(_member(whole, blob(layer["digest"])))
                data = (
                    opened.enter_context(gzip.GzipFile(fileobj=raw))
                    if layer["mediaType"].endswith("gzip")
                    else raw
                )
                yield opened.enter_context(tarfile.open(fileobj=data))


def blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _json(whole: tarfile.TarFile, name: str) -> Json:
    with _member(whole, name) as opened:
        found: Json = json.load(opened)
        return found


def _member(whole: tarfile.TarFile, name: str) -> Any:
    return whole.extractfile(name)
