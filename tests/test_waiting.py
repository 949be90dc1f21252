"""Each wait of a review is for others to compute: its turn ends where the first one begins."""

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
from kube.waiting import acquired, give_up, taking
from tests.factories import record
from tests.fakes import FakeReservations
from tests.misbehaving_server import answers, in_turn, serving
from webhook.ip_reservation.reads import Cluster, Shared


def leaves(act: Callable[[], object]) -> int:
    """How often *act* leaves its turn, whether it succeeds or not."""
    seen: list[None] = []
    with taking(lambda: seen.append(None)), suppress(KubeError, NotReserved):
        act()
    return len(seen)


@pytest.fixture
def client() -> Iterator[Client]:
    with serving(in_turn(answers({}))) as server:
        yield server.client()


def soon() -> float:
    return time.monotonic() + 0.2


def test_a_call_of_the_api_server_is_a_wait(client: Client) -> None:
    assert leaves(lambda: client.get(PODS, "a", "b")) == 1


def test_a_turn_is_left_once(client: Client) -> None:
    def twice() -> None:
        client.get(PODS, "a", "b")
        client.get(PODS, "a", "b")

    assert leaves(twice) == 1


def test_a_lock_that_is_free_is_no_wait() -> None:
    assert leaves(lambda: acquired(threading.Lock(), 0.0)) == 0


def test_a_wait_outside_of_a_turn_is_only_a_wait() -> None:
    give_up()


@pytest.mark.parametrize("lock", ["a namespace", "a pod"])
def test_the_wait_for_a_read_of_another_review_is_one(client: Client, lock: str) -> None:
    cluster = Cluster(client)
    cluster._reads = threading.BoundedSemaphore(1)
    namespace = cluster._namespaces["a"] = Shared(lambda _: Namespace())
    taken, act = {
        "a namespace": (namespace._turn, lambda: cluster.namespace("a", deadline=soon())),
        "a pod": (cluster._reads, lambda: cluster.pod("a", "b", deadline=soon())),
    }[lock]
    with taken:
        assert leaves(act) == 1


def test_the_wait_for_a_write_of_others_is_one() -> None:
    begun, end = threading.Event(), threading.Event()

    def hang(verb: str, name: str) -> None:
        begun.set()
        assert end.wait(30)

    ledger = Ledger(FakeReservations(hang), "a")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(ledger.reserve, [record("10.0.0.1/32")], time.monotonic() + 30)
        assert begun.wait(10)
        assert leaves(lambda: ledger.reserve([record("10.0.0.2/32")], soon())) == 1
        end.set()


def test_the_pause_of_a_write_that_failed_is_one() -> None:
    left, before = list[None](), list[int]()

    def fail(verb: str, name: str) -> None:
        if not before:
            raise Unreachable("busy")

    ledger = Ledger(FakeReservations(fail), "a", pause=lambda seconds: before.append(len(left)))
    with taking(lambda: left.append(None)):
        ledger.reserve([record("10.0.0.1/32")], time.monotonic() + 10)
    assert before == [1]
