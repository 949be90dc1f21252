"""Address and credentials of the API server, as the official client reads them from the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kube.errors import NotConfigured

if TYPE_CHECKING:
    from kubernetes.client import Configuration
    from urllib3 import PoolManager

POOL_SIZE = 80
"""Connections that are kept; more than a webhook server reads at once, so that it opens none under load."""


class Connection:
    """An address, a pool of connections to it, and the Authorization header of the moment."""

    def __init__(self, configuration: Configuration, pool_size: int = POOL_SIZE) -> None:
        # Imported here: it costs 0.2 s and 22 MiB that users of this package's values and errors need not pay.
        from kubernetes.client.rest import RESTClientObject

        self._configuration = configuration
        configuration.connection_pool_maxsize = pool_size
        configuration.keep_alive = True
        configuration.retries = False  # callers have deadlines, and not every request may be sent twice
        self.host: str = configuration.host.rstrip("/")
        self.pool: PoolManager = RESTClientObject(configuration).pool_manager

    def authorization(self) -> dict[str, str]:
        """The header, if any; token files are read again every minute, exec plugins run when expired."""
        try:
            token = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except Exception as error:
            raise NotConfigured(f"the credentials for {self.host} cannot be refreshed: {error}") from error
        # The in-cluster loader keeps the newline that a token file may end with.
        return {"Authorization": token.strip()} if token else {}


def in_cluster() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def connect(kubeconfig: str | None, pool_size: int = POOL_SIZE) -> Connection:
    """By *kubeconfig* (one path, or several as in KUBECONFIG), or by the pod's ServiceAccount when None."""
    from kubernetes import config
    from kubernetes.client import Configuration

    configuration = Configuration()
    try:
        if kubeconfig is None:
            config.load_incluster_config(client_configuration=configuration)
        else:
            config.load_kube_config(kubeconfig, client_configuration=configuration, persist_config=False)
        return Connection(configuration, pool_size)
    except Exception as error:
        means = kubeconfig or "the pod's ServiceAccount"
        raise NotConfigured(f"cannot connect to the API server by {means}: {error}") from error
