"""A connection to the API server: its address, a pool of sockets, and the headers of the moment that say who asks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kube.errors import NotConfigured

if TYPE_CHECKING:
    from kubernetes.client import Configuration
    from urllib3 import PoolManager

POOL_SIZE = 80
"""Connections that are kept; more than a webhook server reads at once, so that it opens none under load."""


class Connection(ABC):
    host: str
    pool: PoolManager

    @abstractmethod
    def authorization(self) -> Mapping[str, str]:
        """The headers that say who asks, if any; NotConfigured."""


class Configured(Connection):
    """By a configuration of the official client."""

    def __init__(self, configuration: Configuration, pool_size: int = POOL_SIZE) -> None:
        # Imported here: a pod, which has a ServiceAccount, need not pay for it.
        from kubernetes.client.rest import RESTClientObject

        self._configuration = configuration
        configuration.connection_pool_maxsize = pool_size
        configuration.keep_alive = True
        configuration.retries = False  # callers have deadlines, and not every request may be sent twice
        self.host = configuration.host.rstrip("/")
        self.pool = RESTClientObject(configuration).pool_manager

    def authorization(self) -> dict[str, str]:
        """Token files are read again, and exec plugins run, when a token has expired."""
        try:
            token = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except Exception as error:
            raise NotConfigured(f"the credentials for {self.host} cannot be refreshed: {error}") from error
        # The loader keeps the newline that a token file may end with.
        return {"Authorization": token.strip()} if token else {}


def connect(kubeconfig: str, pool_size: int = POOL_SIZE, context: str | None = None) -> Connection:
    """By *kubeconfig*: one path, or several as in KUBECONFIG; by its current context when none is named."""
    from kubernetes import config
    from kubernetes.client import Configuration

    configuration = Configuration()
    try:
        config.load_kube_config(kubeconfig, context, configuration, persist_config=False)
        return Configured(configuration, pool_size)
    except Exception as error:
        raise NotConfigured(f"cannot connect to the API server by {kubeconfig}: {error}") from error
