"""What a kubeconfig says about the API server's address."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml


def api_server(path: Path) -> tuple[str, int]:
    """Host and port of the current context's server."""
    config = yaml.safe_load(path.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    url = urlsplit(_named(config["clusters"], context["cluster"])["cluster"]["server"])
    return url.hostname or "localhost", url.port or 443


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)
