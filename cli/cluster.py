"""The cluster as the user's kubeconfig shows it: many reads at the same time, each of no more than is needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeVar

from urllib3.exceptions import HTTPError

from kube.client import Client
from kube.connection import MOUNTED, Connection, Impersonation, connect, in_cluster, of_pod
from kube.errors import KubeError, NotConfigured, ServerError, TooManyRequests, Unreachable
from kube.resources import ALL, Resource, Selection
from runtime import futures, utc_now

T = TypeVar("T")
K = TypeVar("K")

TIMEOUT = 30.0
"""Seconds for one answer."""
PARALLEL = 16
"""Reads at the same time: an API server's fair queueing admits so many of one user."""
DEFAULT_KUBECONFIG = "~/.kube/config"
PASSING = (Unreachable, ServerError, TooManyRequests)
"""How the API server fails for a while: it is restarted, or has too much to do."""
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
FROM_MEMORY = {"resourceVersion": "0"}


def attempt(read: Callable[[], T]) -> T | KubeError:
    """What *read* returns, or the KubeError that it raises."""
    try:
        return read()
    except KubeError as error:
        return error


class Cluster:
    """*namespace* is that of the context; *client*, on the *connection*, has the permissions of the user.

    *now* is the time by which everything read of it is judged and shown.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        connection: Connection,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.client, self.namespace, self._connection, self.now = client, namespace, connection, now

    def read(self, reads: Mapping[K, Callable[[], Any]]) -> dict[K, Any]:
        """What each of *reads* returns, all at the same time; of one that fails, its KubeError."""
        executor = futures.ThreadPoolExecutor(max_workers=PARALLEL)
        try:
            calls = {name: executor.submit(attempt, read) for name, read in reads.items()}
            return {name: call.result() for name, call in calls.items()}
        finally:
            executor.shutdown(wait=False, cancel_futures=True)  # on Ctrl-C, some are still at it

    def together(self, *reads: Callable[[], Any]) -> Sequence[Any]:
        """The same in their order, where nothing can be shown without all of them. Raises KubeError."""
        found = [*self.read(dict(enumerate(reads))).values()]
        for each in found:
            if isinstance(each, KubeError):
                raise each
        return found

    def count(self, resource: Resource, selection: Selection = ALL) -> int:
        """By the rows that `kubectl get` prints: a fiftieth of the bytes."""
        query = selection.query | FROM_MEMORY | {"includeObject": "None"}
        path = resource.path(selection.namespace)
        return len(self.client.request("GET", path, query=query, accept=TABLE).get("rows") or ())

    def client_of(self, user: str) -> Client | None:
        """A client in the name of *user*, which takes a permission; None where a kubeconfig names one already."""
        if self._connection.impersonation:
            return None
        connection = copy(self._connection)
        connection.impersonation = Impersonation(user)
        return Client(connection, timeout=TIMEOUT)

    def server_time(self) -> datetime | None:
        """The Date of an answer, where there is one that can be read."""
        headers, url = self._connection.authorization(), f"{self._connection.host}/version"
        request = self._connection.pool.request
        try:
            answer = request("GET", url, body=None, headers=headers, timeout=TIMEOUT, retries=False)
            date = parsedate_to_datetime(answer.headers.get("Date", ""))
        except (HTTPError, ValueError):
            return None
        # HTTP has no other zone, but a proxy may leave it out.
        return date.replace(tzinfo=date.tzinfo or UTC)


def cluster_of(
    kubeconfig: str | None = None, context: str | None = None, impersonation: Impersonation | None = None
) -> Cluster:
    """By the kubeconfig, as kubectl finds it; in a pod that has none, by its ServiceAccount. NotConfigured.

    With *impersonation*, in the name of another user, whomever the kubeconfig itself impersonates.
    """
    path = kubeconfig or os.environ.get("KUBECONFIG")
    files = [Path(each).expanduser() for each in (path or DEFAULT_KUBECONFIG).split(os.pathsep) if each]
    is_there = any(each.is_file() for each in files)
    if is_there:
        connection = connect(path or DEFAULT_KUBECONFIG, PARALLEL, context)
    elif not path and context is None and in_cluster():
        connection = of_pod()
        connection.namespace = (MOUNTED / "namespace").read_text()
    else:
        raise NotConfigured(f"there is no kubeconfig at {path or DEFAULT_KUBECONFIG}")
    connection.impersonation = impersonation or connection.impersonation
    return Cluster(Client(connection, timeout=TIMEOUT), connection.namespace, connection)
