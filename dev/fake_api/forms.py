"""Lists in the form that a client asks for: as the table that kubectl prints."""

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
    if "as=Table" in accept:
        rows = [{"cells": [cell(each) for cell in COLUMNS.values()], "object": None} for each in objects]
        columns = [{"name": each} for each in COLUMNS]
        kind = {"kind": "Table", "apiVersion": META, "metadata": metadata}
        # Compact, as the real one writes.
        whole = kind | {"columnDefinitions": columns, "rows": rows}
        return json.dumps(whole, separators=(",", ":")).encode()
    return None
