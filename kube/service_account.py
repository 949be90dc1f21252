"""The pod's ServiceAccount as credentials, without the official client: it takes 0.1 s and 7 MiB of each process."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import urllib3
from urllib3.connection import HTTPSConnection

from kube.errors import NotConfigured
from kube.rest_config import POOL_SIZE, Connection

MOUNTED = Path("/var/run/secrets/kubernetes.io/serviceaccount")
KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 9),
)
"""As client-go: the kernel finds a connection whose other end is gone."""
OPTIONS = (*HTTPSConnection.default_socket_options, *KEEPALIVE)


class ServiceAccount(Connection):
    """Connections that trust the mounted CA and bear the token that is mounted at the time; no proxy is used."""

    def __init__(self, mounted: Path, host: str, port: str) -> None:
        self._token = mounted / "token"
        self.host = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        ca = str(mounted / "ca.crt")
        try:
            self.pool = urllib3.PoolManager(maxsize=POOL_SIZE, ca_certs=ca, socket_options=OPTIONS)
            self._read_token()
        except (OSError, ValueError) as error:
            raise NotConfigured(f"the ServiceAccount in {mounted} cannot be used: {error}") from error

    def authorization(self) -> dict[str, str]:
        """Read for each request: the kubelet replaces the token."""
        try:
            return {"Authorization": f"Bearer {self._read_token()}"}
        except OSError as error:
            raise NotConfigured(f"the ServiceAccount's token cannot be read: {error}") from error

    def _read_token(self) -> str:
        return self._token.read_text().strip()


def in_cluster() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def of_pod() -> ServiceAccount:
    """The one that the kubelet has mounted; NotConfigured."""
    port = os.environ.get("KUBERNETES_SERVICE_PORT") or "443"
    return ServiceAccount(MOUNTED, os.environ["KUBERNETES_SERVICE_HOST"], port)
