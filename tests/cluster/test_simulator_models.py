"""The simulator's models play a history as the programs of Kubernetes do."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dev.lab import nodes
from dev.lab.session import Lab
from dev.lab.waiting import until
from kube.client import Client
from tests.model_histories import HISTORIES, Modelled, node_of

PATIENCE = 30.0


class Real:
    """A namespace of a lab, and nodes that kwok plays."""

    def __init__(self, lab: Lab, namespace: str) -> None:
        self.client: Client = lab.client
        self.namespace = namespace
        self.joined: list[str] = []

    def join(self, name: str, **spec: Any) -> None:
        self.client.create(nodes.NODES, node_of(name, self.namespace, **spec))
        self.joined.append(name)
        nodes.await_ready(self.client, name)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        until(condition, PATIENCE, what, every=0.1)


@pytest.fixture
def real(bare_lab: Lab) -> Iterator[Real]:
    name = f"t{secrets.token_hex(4)}"
    bare_lab.kubectl("create", "namespace", name)
    place = Real(bare_lab, name)
    yield place
    bare_lab.kubectl("delete", "namespace", name, "--wait=false")
    for each in place.joined:
        nodes.leave(bare_lab.client, each)


@pytest.mark.parametrize("history", HISTORIES)
def test_a_history_is_seen_alike(history: str, real: Real) -> None:
    play = HISTORIES[history]
    for model, cluster in zip(play(Modelled()), play(real), strict=True):
        assert model == cluster
