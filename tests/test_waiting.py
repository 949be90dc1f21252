"""Each wait of a review is for others to compute: its turn ends where it begins, and is asked for again after it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from calico.ledger import Ledger
from calico.segment import NotReserved
from kube.client import Client
from kube.errors import KubeError, Unreachable
from kube.resources import PODS
from kube.types import Namespace
from kube.waiting import taking, waiting
from tests.factories import record
from tests.fakes import FakeReservations
from tests.misbehaving_server import answers, in_turn, serving
from webhook.ingress_daemonset.cluster_lookup import PodTemplates
from webhook.ip_reservation.reads import Cluster, Shared


class Turn:
    """Notes what becomes of it."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def leave(self) -> None:
        self.seen.append("left")

    def resume(self) -> None:
        self.seen.append("resumed")


def turns_of(act: Callable[[], object]) -> list[str]:
    """What becomes of the turn of *act*, whether it succeeds or not."""
    turn = Turn()
    with taking(turn), suppress(KubeError, NotReserved):
        act()
    return turn.seen


@pytest.fixture
def client() -> Iterator[Client]:
    with serving(in_turn(answers({}))) as server:
        yield server.client()


def soon() -> float:
    return time.monotonic() + 0.2


def test_a_call_of_the_api_server_is_a_wait(client: Client) -> None:
    assert turns_of(lambda: client.get(PODS, "a", "b")) == ["left", "resumed"]


def test_a_wait_within_a_wait_leaves_nothing_more(client: Client) -> None:
    def nested() -> None:
        with waiting():
            client.get(PODS, "a", "b")

    assert turns_of(nested) == ["left", "resumed"]


@pytest.mark.parametrize("lock", ["a namespace", "a pod", "the schema"])
def test_the_wait_for_a_read_of_another_review_is_one(client: Client, lock: str) -> None:
    cluster, templates = Cluster(client), PodTemplates(client)
    cluster._reads = threading.BoundedSemaphore(1)
    namespace = cluster._namespaces["a"] = Shared(lambda _: Namespace())
    taken, act = {
        "a namespace": (namespace._turn, lambda: cluster.namespace("a", deadline=soon())),
        "a pod": (cluster._reads, lambda: cluster.pod("a", "b", deadline=soon())),
        "the schema": (templates._reading, lambda: templates.problems({}, soon())),
    }[lock]
    with taken:
        assert turns_of(act) == ["left", "resumed"]


def test_the_wait_for_a_write_of_others_is_one() -> None:
    begun, end = threading.Event(), threading.Event()

    def hang(verb: str, name: str) -> None:
        begun.set()
        assert end.wait(30)

    ledger = Ledger(FakeReservations(hang), "a")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(ledger.reserve, [record("10.0.0.1/32")], time.monotonic() + 30)
        assert begun.wait(10)
        assert turns_of(lambda: ledger.reserve([record("10.0.0.2/32")], soon())) == ["left", "resumed"]
        end.set()


def test_the_pause_of_a_write_that_failed_is_one() -> None:
    turn, before = Turn(), list[list[str]]()

    def fail(verb: str, name: str) -> None:
        if not before:
            raise Unreachable("busy")

    ledger = Ledger(FakeReservations(fail), "a", pause=lambda seconds: before.append([*turn.seen]))
    with taking(turn):
        ledger.reserve([record("10.0.0.1/32")], time.monotonic() + 10)
    assert before == [["left"]]
