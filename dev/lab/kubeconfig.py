"""Clients of labs, by their kubeconfigs."""

from __future__ import annotations

import os

from kube.client import Client
from kube.connection import POOL_SIZE, connect


def client_of(path: str | os.PathLike[str], *, timeout: float = 10.0, pool_size: int = POOL_SIZE) -> Client:
    """By the current context of the file at *path*; NotConfigured."""
    return Client(connect(os.fspath(path), pool_size), timeout=timeout)
