"""In a pod, all programs connect by the ServiceAccount that the kubelet has mounted."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dev.lab.waiting import stretch
from kube import connection
from kube.client import Client
from kube.connection import KEEPALIVE, of_pod
from kube.errors import NotConfigured, Unreachable
from tests import misbehaving_server
from tests.misbehaving_server import answers
from tests.server import BEGIN, CA, END, leaf, new_ca, write_pair

LONG = 20.0 * stretch()


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ca.crt").write_bytes(CA.certificate)
    (tmp_path / "token").write_text("one\n")
    monkeypatch.setattr(connection, "MOUNTED", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    return tmp_path


@pytest.fixture
def server(mounted: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[misbehaving_server.Server]:
    """Over TLS."""
    write_pair(mounted, leaf("kubernetes"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(mounted / "tls.crt", mounted / "tls.key")
    with misbehaving_server.serving(lambda _: answers({})) as running:
        running.socket = context.wrap_socket(running.socket, server_side=True)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(running.server_port))
        yield running


def test_a_pod_connects_by_the_token_of_the_moment_and_trusts_the_mounted_ca_and_no_proxy(
    mounted: Path, server: misbehaving_server.Server
) -> None:
    """Without a token, the call fails, and not the next one."""
    with closing(Client.from_environment(timeout=LONG)) as client:
        client.request("GET", "/version")
        (mounted / "token").unlink()
        with pytest.raises(NotConfigured, match=r"credentials for .* cannot be read"):
            client.request("GET", "/version")
        (mounted / "token").write_text("two")
        client.request("GET", "/version")
    assert [each.headers["authorization"] for each in server.asked] == ["Bearer one", "Bearer two"]


def test_a_server_that_another_ca_vouches_for_is_not_trusted(
    mounted: Path, server: misbehaving_server.Server
) -> None:
    (mounted / "ca.crt").write_bytes(new_ca("other", BEGIN, END).certificate)
    with closing(Client.from_environment(timeout=LONG)) as client:
        with pytest.raises(Unreachable, match="certificate"):
            client.request("GET", "/version")
        assert server.asked == []


def test_a_service_account_without_a_token_is_named(mounted: Path) -> None:
    (mounted / "token").unlink()
    with pytest.raises(NotConfigured, match=f"the ServiceAccount in {mounted} cannot be used"):
        of_pod()


@pytest.mark.usefixtures("mounted")
def test_the_kernel_probes_silent_connections() -> None:
    assert set(KEEPALIVE) < set(of_pod().pool.connection_pool_kw["socket_options"])
