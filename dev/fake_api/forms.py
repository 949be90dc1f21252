"""Lists in the form that a client asks for: with the metadata of objects alone, or as the table that kubectl prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Raw = Mapping[str, Any]
META = "meta.k8s.io/v1"
NONE = "<none>"
COLUMNS: dict[str, Callable[[Raw], str]] = {
    "Name": lambda raw: raw["metadata"]["name"],
    "Node": lambda raw: raw.get("spec", {}).get("nodeName") or NONE,
}
"""Those of pods that are used here."""


def formed(accept: str, metadata: Raw, objects: Sequence[Raw]) -> bytes | None:
    """None for a list as it is."""
    if "as=PartialObjectMetadataList" in accept:
        return _encoded(
            "PartialObjectMetadataList", metadata, items=[_without_spec(each) for each in objects]
        )
    if "as=Table" in accept:
        rows = [{"cells": [cell(each) for cell in COLUMNS.values()], "object": None} for each in objects]
        return _encoded("Table", metadata, columnDefinitions=[{"name": each} for each in COLUMNS], rows=rows)
    return None


def _without_spec(raw: Raw) -> Raw:
    return {"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": raw["metadata"]}


def _encoded(kind: str, metadata: Raw, **fields: object) -> bytes:
    # Compact, as the real one writes.
    return json.dumps(
        {"kind": kind, "apiVersion": META, "metadata": metadata, **fields}, separators=(",", ":")
    ).encode()
