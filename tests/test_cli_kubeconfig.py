"""Which kubeconfig is used, and what of it reaches the API server."""

from __future__ import annotations

import ssl
import tempfile
from base64 import b64encode
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.issue import new_leaf
from cli.cluster import Cluster, cluster_of
from cli.session import Options, connect
from dev.lab.kubeconfig import client_of
from kube.errors import NotConfigured, Unreachable
from kube.resources import NODES
from tests import kubeconfigs
from tests.misbehaving_server import Handler, answers, serving
from tests.server import BEGIN, CA, END, leaf, write_pair

HOST = "https://127.0.0.1:6443"
written = partial(kubeconfigs.written, server=HOST)


def headers_of(cluster: Cluster) -> Mapping[str, str]:
    assert cluster._connection is not None
    return cluster._connection.authorization()


def test_a_token_file_is_found_beside_the_kubeconfig_and_read_for_each_request(tmp_path: Path) -> None:
    path = written(tmp_path / "there" / "config", user={"token": "old", "tokenFile": "token"})
    token = tmp_path / "there" / "token"
    token.write_text("first\n")

    cluster = cluster_of(path)
    assert headers_of(cluster) == {"Authorization": "Bearer first"}
    token.write_text("second\n")
    assert headers_of(cluster) == {"Authorization": "Bearer second"}
    token.write_text("hidden\nlines")
    with pytest.raises(NotConfigured, match="has a line break") as caught:
        headers_of(cluster)
    assert "hidden" not in str(caught.value)
    token.unlink()
    with pytest.raises(NotConfigured, match=r"credentials for .* cannot be read"):
        headers_of(cluster)


@pytest.mark.parametrize("form", ["files", "data"])
def test_a_certificate_is_used_and_its_key_left_nowhere(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are found beside the one of several kubeconfigs that names them."""
    temporary = tmp_path / "temporary"
    pair = new_leaf(CA, ["jane"], [], BEGIN, END, ExtendedKeyUsageOID.CLIENT_AUTH)
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with serving(lambda _asked: answers({"items": []})) as server:
        server.socket = demanding(tmp_path).wrap_socket(server.socket, server_side=True)
        content = {"client-certificate": pair.certificate, "client-key": pair.key}
        for name, each in content.items():
            (tmp_path / name).write_bytes(each)
        as_data = {f"{name}-data": b64encode(each).decode() for name, each in content.items()}
        user = {name: name for name in content} if form == "files" else as_data
        trust = {"certificate-authority-data": b64encode(CA.certificate).decode()}
        url = server.url.replace("http:", "https:")
        there = kubeconfigs.written(
            tmp_path / "there" / "config", url, cluster=trust, context={"user": "who"}
        )
        who = kubeconfigs.written(tmp_path / "who", url, user=user, name="who")

        for client in (cluster_of(f"{there}:{who}").client, client_of(f"{there}:{who}")):
            assert client.list(NODES).items == []
            assert [*temporary.iterdir()] == []

        with pytest.raises(Unreachable):
            cluster_of(kubeconfigs.written(tmp_path / "without", url, cluster=trust)).client.list(NODES)


def demanding(directory: Path) -> ssl.SSLContext:
    """A server's context that lets those in who have a certificate of our CA."""
    write_pair(directory, leaf())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=CA.certificate.decode())
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_of_several_files_the_first_wins_and_contexts_can_be_chosen(tmp_path: Path) -> None:
    first = written(tmp_path / "first", user={"token": "1"}, context={"namespace": "team"})
    second = written(tmp_path / "second", user={"token": "2"})
    third = written(tmp_path / "third", user={"token": "3"}, name="b")
    files = ":".join([first, second, third])

    found = [cluster_of(files, name) for name in (None, "b")]
    assert [each.namespace for each in found] == ["team", "default"]
    assert [*map(headers_of, found)] == [{"Authorization": "Bearer 1"}, {"Authorization": "Bearer 3"}]


def test_an_unknown_context_and_a_missing_kubeconfig_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured, match="three"):
        cluster_of(written(tmp_path / "config"), "three")
    with pytest.raises(NotConfigured, match="there is no kubeconfig at /nowhere"):
        cluster_of("/nowhere")


PLUGIN = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "interactiveMode": "Never",
    "command": "echo",
    "args": [
        '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "x"}}'
    ],
}
EVERYTHING = {
    "as": "jane",
    "as-groups": ["dev", "ops"],
    "as-uid": "u-1",
    "as-user-extra": {"example.com/Scopes%": ["view", "edit"]},
}
ASKED = {
    "impersonate-user": ["jane"],
    "impersonate-group": ["dev", "ops"],
    "impersonate-uid": ["u-1"],
    "impersonate-extra-example.com%2fscopes%25": ["view", "edit"],
}


@pytest.mark.parametrize(
    "credentials", [pytest.param({"token": "x"}, id="token"), pytest.param({"exec": PLUGIN}, id="plugin")]
)
def test_whom_a_kubeconfig_impersonates_the_api_server_is_told(tmp_path: Path, credentials: Any) -> None:
    found: list[dict[str, list[str]]] = []

    def answer(handler: Handler) -> None:
        names = {name.lower() for name in handler.headers}
        found.append({name: handler.headers.get_all(name) or [] for name in names})
        answers({"items": []})(handler)

    with serving(lambda _asked: answer) as server:
        path = kubeconfigs.written(tmp_path / "config", server.url, user=credentials | EVERYTHING)
        for client in (cluster_of(path).client, client_of(path)):
            client.list(NODES)

    for each in found:
        assert {name: value for name, value in each.items() if name.startswith("imperson")} == ASKED
        assert each["authorization"] == ["Bearer x"]
    assert len(found) == 2


def test_options_impersonate_in_place_of_the_kubeconfig(tmp_path: Path) -> None:
    config = written(tmp_path / "config", user={"token": "x"} | EVERYTHING)
    headers = headers_of(connect(Options(kubeconfig=config, as_user="joe", as_group=("a", "b"))))

    assert headers["Authorization"] == "Bearer x"
    assert headers["Impersonate-User"] == "joe"
    assert headers["Impersonate-Group"] == "a, b"
    assert "Impersonate-Uid" not in headers


def test_a_group_without_a_user_impersonates_nobody() -> None:
    with pytest.raises(click.UsageError, match="--as-group needs --as"):
        connect(Options(as_group=("ops",)))


@pytest.mark.parametrize(
    "user",
    [
        pytest.param({"as-groups": ["system:masters"]}, id="groups of no user"),
        pytest.param({"as": ["jane"]}, id="several users"),
        pytest.param({"as": "jane", "as-groups": "dev"}, id="no list"),
    ],
)
def test_an_impersonation_that_is_not_understood_is_refused(tmp_path: Path, user: Any) -> None:
    path = written(tmp_path / "config", user={"token": "x", **user})

    for connected in (cluster_of, client_of):
        with pytest.raises(NotConfigured, match="cannot connect to the API server by"):
            connected(path)
