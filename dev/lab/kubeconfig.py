"""Clients of labs, by their kubeconfigs."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from kube.client import Client
from kube.connection import POOL_SIZE, connect


def client_of(path: str | os.PathLike[str], *, timeout: float = 10.0, pool_size: int = POOL_SIZE) -> Client:
    """By the current context of the file at *path*; NotConfigured."""
    return Client(connect(os.fspath(path), pool_size), timeout=timeout)


def api_server(path: str | os.PathLike[str]) -> tuple[str, int]:
    """Host and port of the current context's server."""
    url = urlsplit(connect(os.fspath(path)).host)
    return url.hostname or "localhost", url.port or 443
