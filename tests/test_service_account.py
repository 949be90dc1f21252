"""In a pod, all programs connect by the ServiceAccount that the kubelet has mounted."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dev.lab.waiting import stretch
from kube import connection
from kube.client import Client
from kube.connection import KEEPALIVE, service_account
from kube.errors import NotConfigured, Unreachable
from tests import misbehaving_server
from tests.misbehaving_server import Answer, Asked, answers
from tests.server import BEGIN, CA, END, leaf, new_ca, write_pair

LONG = 20.0 * stretch()


@contextmanager
def serving_over_tls(
    directory: Path, answer: Callable[[Asked], Answer]
) -> Iterator[misbehaving_server.Server]:
    write_pair(directory, leaf("kubernetes"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    with misbehaving_server.serving(answer) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        yield server


def mounted(directory: Path, ca: bytes, token: str) -> Path:
    (directory / "ca.crt").write_bytes(ca)
    (directory / "token").write_text(f"{token}\n")
    return directory


@contextmanager
def connected(account: Path) -> Iterator[tuple[Client, list[Asked]]]:
    """By what is *mounted*, and all that the server is asked."""
    with serving_over_tls(account, lambda _: answers({})) as server:
        client = Client(service_account(account, "127.0.0.1", str(server.server_port)), timeout=LONG)
        with closing(client):
            yield client, server.asked


def tokens(asked: list[Asked]) -> list[str]:
    return [each.headers["authorization"] for each in asked]


def test_the_service_account_brings_the_token_of_the_moment_and_trusts_the_mounted_ca(tmp_path: Path) -> None:
    """Without one, the call fails, and not the next one."""
    with connected(mounted(tmp_path, CA.certificate, "one")) as (client, asked):
        client.request("GET", "/version")
        (tmp_path / "token").unlink()
        with pytest.raises(NotConfigured, match=r"credentials for .* cannot be read"):
            client.request("GET", "/version")
        (tmp_path / "token").write_text("two")
        client.request("GET", "/version")
        assert tokens(asked) == ["Bearer one", "Bearer two"]


def test_a_server_that_another_ca_vouches_for_is_not_trusted(tmp_path: Path) -> None:
    other = new_ca("other", BEGIN, END).certificate
    with connected(mounted(tmp_path, other, "secret")) as (client, asked):
        with pytest.raises(Unreachable, match="certificate"):
            client.request("GET", "/version")
        assert asked == []


def test_a_service_account_without_a_token_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured, match=f"the ServiceAccount in {tmp_path} cannot be used"):
        service_account(tmp_path, "fd00::1", "443")


def test_a_pod_connects_by_its_service_account_and_by_no_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MOUNTED", mounted(tmp_path, CA.certificate, "one"))
    with serving_over_tls(tmp_path, lambda _: answers({})) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.server_port))
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
        with closing(Client.from_environment(timeout=LONG)) as client:
            client.request("GET", "/version")

        assert tokens(server.asked) == ["Bearer one"]


def test_the_kernel_probes_silent_connections(tmp_path: Path) -> None:
    pool = service_account(mounted(tmp_path, CA.certificate, "one"), "127.0.0.1", "1").pool

    assert set(KEEPALIVE) < set(pool.connection_pool_kw["socket_options"])
