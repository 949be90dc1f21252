"""A kubeconfig whose user has a certificate or a token, read without the official client, which takes 0.1 s to load.

Anything else in it, and anything wrong with it, is the official client's: exec plugins, passwords, proxies, errors.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import urllib3
from urllib3.util.ssl_ import create_urllib3_context

from kube.connection import OPTIONS, Connection
from kube.errors import NotConfigured

T = TypeVar("T")
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
    """A connection by *kubeconfig* (one path, or several as in KUBECONFIG), and the namespace. NotPlain."""
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
