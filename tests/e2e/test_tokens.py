"""The kubelet replaces the tokens of running pods, and programs send the new ones."""

from __future__ import annotations

import json
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from dev.lab.errors import LabError
from dev.lab.install import NAMESPACE, RELEASE
from dev.lab.waiting import at_most
from kube.resources import PODS
from tests.cluster.elasticity import await_account
from tests.cluster.workloads import namespace
from tests.e2e.calls import calls
from tests.e2e.cluster import FIRST
from tests.e2e.inside import kubelets, seen_in
from tests.e2e.real import Real

SECONDS = 180
KEEPER = "keeper"
KEEPS_ITS_TOKEN = """\
import threading
from kube.client import Client
from kube.connection import of_pod
account = of_pod()
first = account.authorization()
account.authorization = lambda: first
client = Client(account)
while True:
    client.request("GET", "/version", type=bytes)
    threading.Event().wait(1)
"""
Tokens = dict[str, str]
"""Identities of tokens, by pod."""


@pytest.fixture
def keeper(real_nodes: Real) -> Iterator[str]:
    """The namespace of a program that does not read its token again."""
    place = namespace(real_nodes.client, KEEPER)
    await_account(real_nodes, place)
    run = ("run", KEEPER, f"--image={FIRST}", "--", "python", "-c", KEEPS_ITS_TOKEN)
    real_nodes.kubectl("--namespace", place, *run)
    real_nodes.kubectl("--namespace", place, "wait", f"pod/{KEEPER}", "--for=condition=Ready", at_most(120))
    yield place
    real_nodes.kubectl("delete", "namespace", place, "--wait=false")


def test_a_new_token_is_used_by_all_but_a_program_that_keeps_its_first_one(
    real_nodes: Real, keeper: str
) -> None:
    """The control is that program."""
    places = {pod["metadata"]["name"]: NAMESPACE for pod in programs(real_nodes)} | {KEEPER: keeper}
    former = {pod: token_of(real_nodes, place, pod) for pod, place in places.items()}
    replace_tokens(real_nodes, places, former)
    new = {pod: token_of(real_nodes, place, pod) for pod, place in places.items()}
    begin = datetime.now(UTC).isoformat()

    def used() -> dict[str, set[str]]:
        return {pod: tokens for pod, tokens in tokens_since(real_nodes, begin).items() if pod in places}

    def enough() -> bool:
        components = {pod.removeprefix(f"{RELEASE}-").partition("-")[0] for pod in used()}
        return components == {"webhook", "controllers", KEEPER}

    with calls(real_nodes):
        real_nodes.wait(enough, SECONDS, "each program to request something")

    found = used()
    assert found.pop(KEEPER) == {former[KEEPER]}
    assert found == {pod: {new[pod]} for pod in found}


def programs(cluster: Real) -> list[dict[str, object]]:
    selector = f"app.kubernetes.io/component in (webhook,controllers),app.kubernetes.io/instance={RELEASE}"
    return cluster.client.list(PODS, NAMESPACE, label_selector=selector).items


def token_of(cluster: Real, place: str, pod: str) -> str:
    return str(seen_in(cluster, place, pod)["claims"]["jti"])


def replace_tokens(cluster: Real, places: dict[str, str], former: Tokens) -> None:
    """Hours before their time: a kubelet that starts remembers no token, and requests one for each pod."""
    for pid in kubelets():
        os.kill(pid, signal.SIGKILL)

    def replaced(pod: str, place: str) -> bool:
        try:
            return token_of(cluster, place, pod) != former[pod]
        except LabError:  # its kubelet does not answer yet
            return False

    for pod, place in places.items():
        cluster.wait(lambda: replaced(pod, place), SECONDS, f"another token of {pod}")  # noqa: B023


def tokens_since(cluster: Real, begin: str) -> dict[str, set[str]]:
    """What the requests that arrived after *begin* bore, by the names of their pods."""
    found: dict[str, set[str]] = defaultdict(set)
    whole, _, _in_writing = (cluster.logs / "audit.log").read_text().rpartition("\n")
    for line in whole.splitlines():
        event = json.loads(line)
        extra = event["user"].get("extra", {})
        for pod in extra.get("authentication.kubernetes.io/pod-name", ()):
            if event["requestReceivedTimestamp"] > begin:
                [token] = extra["authentication.kubernetes.io/credential-id"]
                found[pod].add(token.removeprefix("JTI="))
    return found
