"""Kubeconfigs of tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def written(
    path: Path, server: str, *, user: Any = None, cluster: Any = None, context: Any = None, name: str = "a"
) -> str:
    """One with a single context, of this *name*; its path."""
    found = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **(context or {})}}],
        "current-context": name,
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(found))
    return str(path)
