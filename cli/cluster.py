"""The cluster as the user's kubeconfig shows it: many reads at the same time, each of no more than is needed."""

from __future__ import annotations

import os
import ssl
import tempfile
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import urllib3
from urllib3.util.ssl_ import create_urllib3_context

from kube.client import Client
from kube.connection import (
    MOUNTED,
    OPTIONS,
    Connection,
    Impersonating,
    Impersonation,
    connect,
    in_cluster,
    of_pod,
)
from kube.errors import KubeError, NotConfigured
from kube.resources import ALL, Resource, Selection
from runtime import futures, utc_now

T = TypeVar("T")
K = TypeVar("K")

TIMEOUT = 30.0
"""Seconds for one answer."""
PARALLEL = 16
"""Reads at the same time: an API server's fair queueing admits so many of one user."""
DEFAULT_KUBECONFIG = "~/.kube/config"
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
FROM_MEMORY = {"resourceVersion": "0"}


def attempt(read: Callable[[], T]) -> T | KubeError:
    """What *read* returns, or the KubeError that it raises."""
    try:
        return read()
    except KubeError as error:
        return error


class Cluster:
    """*namespace* is that of the context; *client* is the API server, with the permissions of the user.

    *now* is the time by which everything read of it is judged and shown.
    """

    def __init__(
        self,
        client: Client,
        namespace: str = "default",
        connection: Connection | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.client, self.namespace, self._connection, self.now = client, namespace, connection, now

    def read(self, reads: Mapping[K, Callable[[], Any]]) -> dict[K, Any]:
        """What each of *reads* returns, all at the same time; of one that fails, its KubeError."""
        with futures.ThreadPoolExecutor(max_workers=PARALLEL) as executor:
            calls = {name: executor.submit(attempt, read) for name, read in reads.items()}
            return {name: call.result() for name, call in calls.items()}

    def read_all(self, reads: Mapping[K, Callable[[], Any]]) -> dict[K, Any]:
        """The same, where nothing can be shown without all of them. Raises KubeError."""
        found = self.read(reads)
        for each in found.values():
            if isinstance(each, KubeError):
                raise each
        return found

    def together(self, *reads: Callable[[], Any]) -> Sequence[Any]:
        """What they return, in their order, as `read_all`."""
        return [*self.read_all(dict(enumerate(reads))).values()]

    def without_specs(self, resource: Resource, selection: Selection = ALL) -> bytes:
        """The list with the metadata of each object alone, as JSON; the API server has it in half the time."""
        path, query = resource.path(selection.namespace), selection.query | FROM_MEMORY
        return self.client.get_as(METADATA, path, query=query, type=bytes)

    def column(self, resource: Resource, name: str, selection: Selection = ALL) -> dict[str, str]:
        """The cell of each object, by its name, as `kubectl get -o wide` prints it: a fiftieth of the bytes."""
        query = selection.query | FROM_MEMORY | {"includeObject": "None"}
        found = self.client.get_as(TABLE, resource.path(selection.namespace), query=query)
        columns = [each["name"] for each in found["columnDefinitions"]]
        at, of_name = columns.index(name), columns.index("Name")
        return {str(row["cells"][of_name]): str(row["cells"][at]) for row in found.get("rows") or ()}

    def client_of(self, user: str) -> Client | None:
        """A client in the name of *user*, which takes a permission; None where a kubeconfig names one already."""
        if self._connection is None or isinstance(self._connection, Impersonating):
            return None
        return Client(Impersonating(self._connection, Impersonation(user)), timeout=TIMEOUT)

    def server_time(self) -> datetime | None:
        """The Date of an answer, where there is a connection of which to ask, and one that can be read."""
        if self._connection is None:
            return None
        headers = self._connection.authorization()
        url = f"{self._connection.host}/version"
        answer = self._connection.pool.request("GET", url, body=None, headers=headers, timeout=TIMEOUT)
        try:
            date = parsedate_to_datetime(answer.headers.get("Date", ""))
        except ValueError:
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
    if not path and context is None and in_cluster() and not is_there:
        return _cluster(of_pod(), (MOUNTED / "namespace").read_text(), impersonation)
    path = path or DEFAULT_KUBECONFIG
    if not is_there:
        raise NotConfigured(f"there is no kubeconfig at {path}")
    try:
        connection, namespace = plain_connection(path, context, PARALLEL)
    except NotPlain:
        connection, namespace = connect(path, PARALLEL, context), _namespace(path, context)
    return _cluster(connection, namespace, impersonation)


def _cluster(connection: Connection, namespace: str, impersonation: Impersonation | None) -> Cluster:
    if impersonation:
        connection = Impersonating(connection, impersonation)
    return Cluster(Client(connection, timeout=TIMEOUT), namespace, connection)


def _namespace(path: str, context: str | None) -> str:
    from kubernetes import config

    contexts, active = config.list_kube_config_contexts(path)
    chosen = next((each for each in contexts if each["name"] == context), active)
    return str(chosen["context"].get("namespace") or "default")


PROXIES = ("http_proxy", "https_proxy", "all_proxy")


class NotPlain(Exception):
    """The kubeconfig has what the official client has to read: exec plugins, passwords, proxies, errors."""


class Strict(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    """A field that is not here means something that is not done here."""


class ClusterEntry(Strict):
    server: str
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: Literal[False] = False
    disable_compression: bool = False
    extensions: Any = None


class UserEntry(Strict):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    extensions: Any = None


class ContextEntry(Strict):
    cluster: str
    user: str
    namespace: str = "default"
    extensions: Any = None


Files = Sequence[tuple[Path, dict[str, Any]]]
"""Each with the folder to which the paths in it are relative."""


class PlainConnection(Connection):
    """All connections share one TLS context; a token file is read for each request, since others replace it."""

    def __init__(
        self, cluster: tuple[Path, ClusterEntry], user: tuple[Path, UserEntry], pool_size: int
    ) -> None:
        (at_cluster, there), (at_user, who) = cluster, user
        if who.token and who.token_file:
            raise ValueError("which of them is meant is not for us to decide")
        self.host, self._token = there.server.rstrip("/"), who.token
        self._token_file = at_user / who.token_file if who.token_file else None
        authority = _pem(there.certificate_authority_data, at_cluster, there.certificate_authority)
        certificate = _pem(who.client_certificate_data, at_user, who.client_certificate)
        key = _pem(who.client_key_data, at_user, who.client_key)
        context = _tls(authority, f"{certificate}\n{key}" if certificate and key else "")
        self.pool = urllib3.PoolManager(maxsize=pool_size, ssl_context=context, socket_options=OPTIONS)

    def authorization(self) -> dict[str, str]:
        try:
            token = self._token_file.read_text().strip() if self._token_file else self._token
        except OSError as error:
            raise NotConfigured(f"the token of the kubeconfig cannot be read: {error}") from error
        return {"Authorization": f"Bearer {token}"} if token else {}


def plain_connection(kubeconfig: str, context: str | None, pool_size: int) -> tuple[Connection, str]:
    """A connection by *kubeconfig* (one path, or several as in KUBECONFIG), and the namespace. NotPlain.

    For a user with a certificate or a token, without the official client, which takes 0.1 s to load.
    """
    if any(os.environ.get(name) or os.environ.get(name.upper()) for name in PROXIES):
        raise NotPlain
    try:
        paths = [Path(each).expanduser() for each in kubeconfig.split(os.pathsep) if each]
        files = [(path.parent, msgspec.yaml.decode(path.read_bytes(), type=dict[str, Any])) for path in paths]
        current = (file["current-context"] for _, file in files if file.get("current-context"))
        _, chosen = _entry(files, "context", context or next(current), ContextEntry)
        cluster = _entry(files, "cluster", chosen.cluster, ClusterEntry)
        user = _entry(files, "user", chosen.user, UserEntry)
        return PlainConnection(cluster, user, pool_size), chosen.namespace
    except (msgspec.MsgspecError, OSError, ValueError, LookupError, StopIteration) as error:
        raise NotPlain from error


def _entry(files: Files, kind: str, name: str, type: type[T]) -> tuple[Path, T]:  # noqa: A002
    """The first one of that name wins."""
    for folder, file in files:
        for each in msgspec.convert(file.get(f"{kind}s") or (), Sequence[dict[str, Any]]):
            if each.get("name") == name:
                return folder, msgspec.convert(each[kind], type)
    raise LookupError(name)


def _pem(data: str, folder: Path, path: str) -> str:
    """Data win over a file."""
    if data:
        return b64decode(data).decode()
    return (folder / path).read_text() if path else ""


def _tls(authority: str, certificate: str) -> ssl.SSLContext:
    """As urllib3 makes it for each connection; both are PEM, and *certificate* has its key."""
    context = create_urllib3_context()
    if authority:
        context.load_verify_locations(cadata=authority)
    else:
        context.load_default_certs()
    if certificate:
        # Python reads keys from files alone.
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(certificate)
            file.flush()
            context.load_cert_chain(file.name)
    return context
