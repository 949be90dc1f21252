"""The pod's ServiceAccount as credentials, without the 17 MiB of the official client: one checker runs on each node."""

from __future__ import annotations

import os
from pathlib import Path

import urllib3

from kube.client import Client
from kube.errors import NotConfigured
from kube.rest_config import Connection, in_cluster

MOUNTED = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ServiceAccount(Connection):
    """Connections that trust the mounted CA and bear the token that is mounted at the time."""

    def __init__(self, mounted: Path, host: str, port: str) -> None:
        self._token = mounted / "token"
        self.host = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        try:
            self.pool = urllib3.PoolManager(maxsize=2, ca_certs=str(mounted / "ca.crt"))
            self._read_token()
        except (OSError, ValueError) as error:
            raise NotConfigured(f"the ServiceAccount in {mounted} cannot be used: {error}") from error

    def authorization(self) -> dict[str, str]:
        """Read for each request: the kubelet replaces the token, and a request is made every ten seconds."""
        try:
            return {"Authorization": f"Bearer {self._read_token()}"}
        except OSError as error:
            raise NotConfigured(f"the ServiceAccount's token cannot be read: {error}") from error

    def _read_token(self) -> str:
        return self._token.read_text().strip()


def client_from_environment(timeout: float) -> Client:
    """By the ServiceAccount in a pod, else as all programs do; NotConfigured."""
    if not in_cluster():
        return Client.from_environment(timeout=timeout)
    port = os.environ.get("KUBERNETES_SERVICE_PORT") or "443"
    return Client(ServiceAccount(MOUNTED, os.environ["KUBERNETES_SERVICE_HOST"], port), timeout=timeout)
