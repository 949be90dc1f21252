"""A connection to the API server: its address, a pool of sockets, and the headers of the moment that say who asks."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import urllib3
from urllib3 import HTTPHeaderDict
from urllib3.connection import HTTPSConnection
from urllib3.util.ssl_ import create_urllib3_context

from kube.errors import NotConfigured

POOL_SIZE = 80
"""Connections that are kept; more than a webhook server reads at once, so that it opens none under load."""
FILES = ("client-certificate", "client-key")


class Impersonation(msgspec.Struct, frozen=True):
    """As a kubeconfig has it."""

    user: str = msgspec.field(default="", name="as")
    groups: tuple[str, ...] = msgspec.field(default=(), name="as-groups")
    uid: str = msgspec.field(default="", name="as-uid")
    extra: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict, name="as-user-extra")

    @property
    def headers(self) -> HTTPHeaderDict:
        found = HTTPHeaderDict({"Impersonate-User": self.user})
        if self.uid:
            found.add("Impersonate-Uid", self.uid)
        for group in self.groups:
            found.add("Impersonate-Group", group)
        for key, values in self.extra.items():
            for value in values:
                found.add(f"Impersonate-Extra-{quote(key, safe='')}", value)
        return found


class Connection:
    """To *host* by *pool*; *token* is called for each request, since tokens are replaced.

    *namespace* is that of the context by which it was made; with *impersonation*, another user asks.
    """

    namespace = "default"
    impersonation: Impersonation | None = None

    def __init__(
        self, host: str, pool: urllib3.PoolManager, token: Callable[[], str | None] = lambda: None
    ) -> None:
        self.host, self.pool, self._token = host, pool, token

    def authorization(self) -> Mapping[str, str]:
        """The headers that say who asks, if any; NotConfigured."""
        try:
            token = self._token()
        except Exception as error:  # whatever an exec plugin raises
            raise NotConfigured(f"the credentials for {self.host} cannot be read: {error}") from error
        token = (token or "").strip()
        # Libraries quote a header that they refuse.
        if not (token.isascii() and token.isprintable()):
            raise NotConfigured(
                f"the token for {self.host} has a line break or a character that is not ASCII"
            )
        credentials = {"Authorization": token} if token else {}
        return self.impersonation.headers | credentials if self.impersonation else credentials


def _in_file(file: Path) -> Callable[[], str]:
    return lambda: f"Bearer {file.read_text()}"


def connect(kubeconfig: str, pool_size: int = POOL_SIZE, context: str | None = None) -> Connection:
    """By *kubeconfig*: one path, or several as in KUBECONFIG; by its current context when none is named."""
    # Imported here: a pod, which has a ServiceAccount, need not pay for it.
    from kubernetes.client import Configuration
    from kubernetes.client.rest import RESTClientObject
    from kubernetes.config import kube_config

    configuration = Configuration()
    configuration.connection_pool_maxsize = pool_size
    configuration.keep_alive = True
    configuration.retries = False  # callers have deadlines, and not every request may be sent twice
    try:
        merger = kube_config.KubeConfigMerger(kubeconfig)
        # As kubectl has it, that of the first file that names one: the official client takes the last.
        named = (merger.config_files[each].get("current-context") for each in merger.paths)
        chosen = context or next(filter(None, named), None)
        loader = kube_config.KubeConfigLoader(merger.config, chosen, config_base_path=None)
        entry = merger.config["contexts"].get_with_name(chosen)["context"]
        user, folder = _user(merger.config, entry.safe_get("user"))
        # The official client looks for these beside the file that names the cluster.
        user |= {name: str(folder / user[name]) for name in FILES if user.get(name)}
        loader.load_and_set(configuration)
        pool = RESTClientObject(configuration).pool_manager
        _read_files(pool.connection_pool_kw)
        # The official client runs exec plugins again when a token has expired.
        current = partial(configuration.get_api_key_with_prefix, "BearerToken", alias="authorization")
        token_file = user.get("tokenFile")
        token = _in_file(folder / token_file) if token_file else current
        connection = Connection(configuration.host.rstrip("/"), pool, token)
        connection.namespace = entry.safe_get("namespace") or "default"
        connection.impersonation = impersonation_of(user)
        return connection
    except Exception as error:
        raise NotConfigured(f"cannot connect to the API server by {kubeconfig}: {error}") from error
    finally:
        # It removes them at exit, but a program that is killed has none: there are private keys among them.
        kube_config._cleanup_temp_files()


def _read_files(options: dict[str, Any]) -> None:
    """Once, and not again for each connection of a pool with these *options*."""
    authority, certificate, key = (options.pop(name) for name in ("ca_certs", "cert_file", "key_file"))
    context = create_urllib3_context(cert_reqs=options["cert_reqs"])
    if authority:
        context.load_verify_locations(authority)
    else:
        context.load_default_certs()
    if certificate:
        context.load_cert_chain(certificate, key)
    options["ssl_context"] = context


def _user(merged: Any, name: str | None) -> tuple[dict[str, Any], Path]:
    """The entry of the user of this *name*, and the folder to which the paths in it are relative."""
    found = "users" in merged and merged["users"].get_with_name(name, safe=True)
    return (found.safe_get("user") or {}, Path(found.path).parent) if found else ({}, Path())


def impersonation_of(user: Mapping[str, Any]) -> Impersonation | None:
    """By the entry of a user in a kubeconfig, of which the official client reads no such field. ValueError."""
    given = msgspec.convert(user, Impersonation)
    if not given.user and given != Impersonation():
        raise ValueError("as-groups, as-uid and as-user-extra are nothing without as")
    return given if given.user else None


MOUNTED = Path("/var/run/secrets/kubernetes.io/serviceaccount")
IDLE = next(name for name in ("TCP_KEEPIDLE", "TCP_KEEPALIVE") if hasattr(socket, name))
"""The latter on macOS, where an operator's command connects."""
KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, getattr(socket, IDLE), 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 9),
)
"""As client-go: the kernel finds a connection whose other end is gone."""
OPTIONS = (*HTTPSConnection.default_socket_options, *KEEPALIVE)


def in_cluster() -> bool:
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


def of_pod() -> Connection:
    """By the ServiceAccount that the kubelet has mounted, with the token of the time, and no proxy. NotConfigured."""
    token = MOUNTED / "token"
    try:
        token.read_text()
        ca = str(MOUNTED / "ca.crt")
        pool = urllib3.PoolManager(maxsize=POOL_SIZE, ca_certs=ca, socket_options=OPTIONS)
    except (OSError, ValueError) as error:
        raise NotConfigured(f"the ServiceAccount in {MOUNTED} cannot be used: {error}") from error
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT") or "443"
    url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Connection(url, pool, _in_file(token))
