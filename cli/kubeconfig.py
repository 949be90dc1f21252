"""A kubeconfig whose user has a certificate or a token, read without the official client, which takes 0.1 s to load.

Anything else in it, and anything wrong with it, is the official client's: exec plugins, passwords, proxies, errors.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from base64 import b64decode
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec
import urllib3
from urllib3.util.ssl_ import create_urllib3_context

from kube.connection import OPTIONS, Connection
from kube.errors import NotConfigured

PROXIES = ("http_proxy", "https_proxy", "all_proxy")


class NotPlain(Exception):
    """It has what the official client has to read."""


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


class _Named(msgspec.Struct):
    """*source* is the file that it stands in."""

    name: str
    cluster: dict[str, Any] = {}
    user: dict[str, Any] = {}
    context: dict[str, Any] = {}
    source: Path = Path()

    def file(self, path: str) -> Path:
        """A path in a kubeconfig is relative to its file."""
        return self.source.parent / path


class _File(msgspec.Struct, rename="kebab"):
    clusters: list[_Named] | None = None
    users: list[_Named] | None = None
    contexts: list[_Named] | None = None
    current_context: str = ""


class PlainConnection(Connection):
    """All connections share one TLS context; a token file is read for each request, since others replace it."""

    def __init__(self, cluster: _Named, user: _Named, pool_size: int) -> None:
        there, who = msgspec.convert(cluster.cluster, ClusterEntry), msgspec.convert(user.user, UserEntry)
        if who.token and who.token_file:
            raise ValueError("which of them is meant is not for us to decide")
        self.host, self._token = there.server.rstrip("/"), who.token
        self._token_file = user.file(who.token_file) if who.token_file else None
        authority = _pem(cluster, there.certificate_authority_data, there.certificate_authority)
        certificate = _pem(user, who.client_certificate_data, who.client_certificate)
        key = _pem(user, who.client_key_data, who.client_key)
        context = _tls(authority, f"{certificate}\n{key}" if certificate and key else "")
        self.pool = urllib3.PoolManager(maxsize=pool_size, ssl_context=context, socket_options=OPTIONS)

    def authorization(self) -> dict[str, str]:
        try:
            token = self._token_file.read_text().strip() if self._token_file else self._token
        except OSError as error:
            raise NotConfigured(f"the token of the kubeconfig cannot be read: {error}") from error
        return {"Authorization": f"Bearer {token}"} if token else {}


def plain_connection(kubeconfig: str, context: str | None, pool_size: int) -> tuple[Connection, str]:
    """A connection by *kubeconfig* (one path, or several as in KUBECONFIG), and the namespace. NotPlain."""
    if any(os.environ.get(name) or os.environ.get(name.upper()) for name in PROXIES):
        raise NotPlain
    try:
        files = [_read(Path(each).expanduser()) for each in kubeconfig.split(os.pathsep) if each]
        chosen = context or next(each.current_context for each in files if each.current_context)
        found = _named(chosen, (each.contexts for each in files))
        entry = msgspec.convert(found.context, ContextEntry)
        cluster = _named(entry.cluster, (each.clusters for each in files))
        user = _named(entry.user, (each.users for each in files))
        return PlainConnection(cluster, user, pool_size), entry.namespace
    except (msgspec.MsgspecError, OSError, ValueError, StopIteration) as error:
        raise NotPlain from error


def _read(path: Path) -> _File:
    found = msgspec.yaml.decode(path.read_bytes(), type=_File)
    for each in (*(found.clusters or ()), *(found.users or ()), *(found.contexts or ())):
        each.source = path
    return found


def _named(name: str, lists: Iterable[list[_Named] | None]) -> _Named:
    """The first one wins."""
    return next(each for entries in lists for each in entries or () if each.name == name)


def _pem(entry: _Named, data: str, path: str) -> str:
    """Data win over a file."""
    if data:
        return b64decode(data).decode()
    return entry.file(path).read_text() if path else ""


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
