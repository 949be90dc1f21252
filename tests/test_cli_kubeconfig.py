"""A kubeconfig with certificates or tokens is read without the official client, which reads all others."""

from __future__ import annotations

from base64 import b64encode
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest

from cli.cluster import NotPlain, cluster_of, plain_connection
from cli.session import Options, connect
from kube.client import Client
from kube.errors import NotConfigured
from kube.resources import NODES
from tests import kubeconfigs
from tests.misbehaving_server import Handler, answers, serving
from tests.server import leaf

HOST = "https://127.0.0.1:6443"
written = partial(kubeconfigs.written, server=HOST)


@pytest.fixture(autouse=True)
def _without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def encoded(content: bytes) -> str:
    return b64encode(content).decode()


def test_certificates_and_tokens_are_used(tmp_path: Path) -> None:
    pair = leaf()
    user = {"client-certificate-data": encoded(pair.certificate), "client-key-data": encoded(pair.key)}
    path = written(tmp_path / "config", user={**user, "token": "secret"}, context={"namespace": "team"})

    connection, namespace = plain_connection(path, None, 4)
    assert (connection.host, namespace) == (HOST, "team")
    assert connection.authorization() == {"Authorization": "Bearer secret"}


def test_files_are_found_beside_the_kubeconfig_that_names_them(tmp_path: Path) -> None:
    pair = leaf()
    path = written(
        tmp_path / "there" / "config",
        user={"client-certificate": "user.crt", "client-key": "user.key", "tokenFile": "token"},
    )
    for name, content in (("user.crt", pair.certificate), ("user.key", pair.key), ("token", b"first\n")):
        (tmp_path / "there" / name).write_bytes(content)

    connection, _ = plain_connection(path, None, 4)
    assert connection.authorization() == {"Authorization": "Bearer first"}
    (tmp_path / "there" / "token").write_text("second\n")
    assert connection.authorization() == {"Authorization": "Bearer second"}
    (tmp_path / "there" / "token").unlink()
    with pytest.raises(NotConfigured, match="token of the kubeconfig"):
        connection.authorization()


def test_of_several_files_the_first_wins_and_contexts_can_be_chosen(tmp_path: Path) -> None:
    first = written(tmp_path / "first", user={"token": "1"})
    second = written(tmp_path / "second", user={"token": "2"})
    third = written(tmp_path / "third", user={"token": "3"}, name="b")
    files = ":".join([first, second, third])

    tokens = [plain_connection(files, name, 4)[0].authorization() for name in (None, "b")]
    assert tokens == [{"Authorization": "Bearer 1"}, {"Authorization": "Bearer 3"}]
    assert plain_connection(files, "b", 4)[1] == "default"


@pytest.mark.parametrize(
    ("user", "cluster"),
    [
        pytest.param({"exec": {"command": "login"}}, {}, id="a plugin"),
        pytest.param({"username": "a", "password": "b"}, {}, id="a password"),
        pytest.param({"as": "jane"}, {}, id="impersonation"),
        pytest.param({"token": "a", "tokenFile": "b"}, {}, id="two tokens"),
        pytest.param({}, {"insecure-skip-tls-verify": True}, id="no verification"),
        pytest.param({}, {"proxy-url": "http://127.0.0.1:1"}, id="a proxy"),
        pytest.param({}, {"tls-server-name": "other"}, id="another name"),
        pytest.param({}, {"certificate-authority": "missing"}, id="a file that is not there"),
        pytest.param({}, {"certificate-authority-data": encoded(b"x")}, id="no certificate"),
    ],
)
def test_the_rest_is_left_to_the_official_client(tmp_path: Path, user: Any, cluster: Any) -> None:
    with pytest.raises(NotPlain):
        plain_connection(written(tmp_path / "config", user=user, cluster=cluster), None, 4)


def test_so_are_an_unknown_context_and_a_proxy_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "config")
    assert plain_connection(path, "a", 4)
    with pytest.raises(NotPlain):
        plain_connection(path, "other", 4)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    with pytest.raises(NotPlain):
        plain_connection(path, "a", 4)


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
        for client in (cluster_of(path).client, Client.from_kubeconfig(path)):
            client.list(NODES)

    for each in found:
        assert {name: value for name, value in each.items() if name.startswith("imperson")} == ASKED
        assert each["authorization"] == ["Bearer x"]
    assert len(found) == 2


def test_options_impersonate_in_place_of_the_kubeconfig(tmp_path: Path) -> None:
    config = written(tmp_path / "config", user={"token": "x"} | EVERYTHING)
    cluster = connect(Options(kubeconfig=config, as_user="joe", as_group=("a", "b")))
    assert cluster._connection is not None

    headers = cluster._connection.authorization()
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

    for connected in (cluster_of, Client.from_kubeconfig):
        with pytest.raises(NotConfigured, match="cannot connect to the API server by"):
            connected(path)
