"""A storm of admissions reads its namespace once, every evicted pod each time, and nothing beyond the deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from dev.fake_api import FakeAPI
from dev.lab.waiting import stretch, until
from kube.errors import NotFound, ServerError, Unreachable
from tests.factories import raw_pod
from tests.fakes import FakeClock
from tests.misbehaving_server import Handler, Server, hangs, refuses, serving
from webhook.ip_reservation import reads
from webhook.ip_reservation.reads import NAMESPACE_SECONDS, Cluster, Shared

NAMESPACES, PODS = "/api/v1/namespaces", "/api/v1/pods"


class World:
    """Namespaces redis and kafka, a pod redis-0, and a reader whose clock only a test moves."""

    def __init__(self, api: FakeAPI, server: Server) -> None:
        self.api, self.server, self.clock = api, server, FakeClock()
        self.cluster = Cluster(server.client(), self.clock)
        self.annotate("redis", "first")
        self.annotate("kafka", "first")
        api.put(PODS, raw_pod("redis-0"))

    def annotate(self, namespace: str, word: str) -> None:
        self.api.put(NAMESPACES, {"metadata": {"name": namespace, "annotations": {"word": word}}})

    def word(self, namespace: str = "redis") -> str:
        read = self.cluster.namespace(namespace, deadline=self.clock() + 30)
        return read.metadata.annotations["word"]

    def pod(self) -> object:
        return self.cluster.pod("redis", "redis-0", deadline=self.clock() + 2)

    def hold(self) -> threading.Event:
        """Answer requests when the event is set."""
        go_on = threading.Event()

        def when_released(handler: Handler) -> None:
            assert go_on.wait(30)
            self.api.answer(self.server.asked[0])(handler)

        self.api.fault = lambda asked: when_released
        return go_on


@contextmanager
def reading() -> Iterator[World]:
    api = FakeAPI()
    with serving(api) as server:
        yield World(api, server)


def test_a_namespace_is_read_once_in_five_seconds() -> None:
    with reading() as world:
        words = [world.word()]
        world.annotate("redis", "second")
        world.clock.advance(NAMESPACE_SECONDS - 0.1)
        words.append(world.word())
        assert (words, len(world.server.asked)) == (["first", "first"], 1)
        world.clock.advance(0.1)
        assert [world.word(), world.word()] == ["second", "second"]
        assert [asked.path for asked in world.server.asked] == [f"{NAMESPACES}/redis"] * 2
        world.annotate("kafka", "other")
        assert [world.word("redis"), world.word("kafka")] == ["second", "other"]


def test_a_namespace_that_cannot_be_read_is_neither_remembered_nor_guessed() -> None:
    with reading() as world:
        for _ in range(2):
            world.api.fault = lambda asked: refuses(500, "InternalError")
            with pytest.raises(ServerError):
                world.word()
            world.api.fault = lambda asked: None
            assert world.word() == "first"
            world.clock.advance(NAMESPACE_SECONDS + 0.1)


def test_of_many_that_ask_for_a_namespace_at_once_one_reads_it() -> None:
    with reading() as world, ThreadPoolExecutor(64) as pool:
        together, go_on = threading.Barrier(64), world.hold()

        def ask() -> str:
            together.wait(30)
            return world.word()

        asking = [pool.submit(ask) for _ in range(64)]
        until(lambda: world.server.asked)
        go_on.set()
        assert {each.result(30) for each in asking} == {"first"}
        assert len(world.server.asked) == 1


def test_when_a_read_fails_the_next_caller_reads() -> None:
    with reading() as world, ThreadPoolExecutor(2) as pool:
        go_on = threading.Event()

        def fail_when_told(handler: Handler) -> None:
            assert go_on.wait(30)
            world.api.fault = lambda asked: None
            refuses(500, "InternalError")(handler)

        world.api.fault = lambda asked: fail_when_told
        first = pool.submit(world.word)
        until(lambda: world.server.asked)
        second = pool.submit(world.word)
        go_on.set()
        with pytest.raises(ServerError):
            first.result(30)
        assert second.result(30) == "first"


def test_a_caller_waits_for_the_read_of_another_until_its_deadline() -> None:
    with reading() as world, ThreadPoolExecutor(1) as pool:
        go_on = world.hold()
        reader = pool.submit(world.word)
        until(lambda: world.server.asked)
        began = time.monotonic()
        with pytest.raises(Unreachable, match="namespace redis could not be read within the deadline"):
            world.cluster.namespace("redis", deadline=world.clock() + 0.2)
        assert time.monotonic() - began < 4 * stretch()
        go_on.set()
        assert reader.result(30) == "first"
        assert len(world.server.asked) == 1


def test_one_who_asked_while_a_value_was_known_reads_when_the_read_of_a_later_one_failed() -> None:
    """Which was faster to begin."""
    clock, answers = FakeClock(), iter(["first", Unreachable("no answer"), "third"])

    def read(_: float) -> str:
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    def asked_before_another() -> float:
        shared._clock, asked = clock, clock()
        clock.advance(0.2)
        with pytest.raises(Unreachable):
            shared.value(clock() + 1)
        return asked

    shared = Shared(read, max_age=NAMESPACE_SECONDS, clock=clock)
    shared.value(clock() + 1)
    clock.advance(NAMESPACE_SECONDS - 0.1)
    shared._clock = asked_before_another

    assert shared.value(clock() + 1) == "third"


def test_only_the_namespaces_of_the_last_seconds_are_remembered() -> None:
    with reading() as world:
        for number in range(10):
            world.annotate(f"passing-{number}", "word")
            world.word(f"passing-{number}")
        with pytest.raises(NotFound):
            world.word("missing")
        world.clock.advance(NAMESPACE_SECONDS + 0.1)
        world.word("redis")
        assert list(world.cluster._namespaces) == ["redis"]


def test_a_pod_is_read_each_time() -> None:
    with reading() as world:
        first = world.pod()
        world.api.put(PODS, raw_pod("redis-0", ip="10.0.0.9"))
        assert world.pod() != first
        assert len(world.server.asked) == 2


@pytest.mark.parametrize(
    ("left", "at_least", "at_most"),
    [
        pytest.param(0.4, 0.3, 0.8, id="until the deadline"),
        pytest.param(-5.0, 0.05, 0.4, id="a last try when it has passed"),
    ],
)
@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda cluster, deadline: cluster.pod("redis", "redis-0", deadline=deadline), id="pod"),
        pytest.param(lambda cluster, deadline: cluster.namespace("redis", deadline=deadline), id="namespace"),
    ],
)
def test_a_server_that_hangs_is_waited_for(
    read: Callable[[Cluster, float], object], left: float, at_least: float, at_most: float
) -> None:
    with reading() as world:
        world.api.fault = lambda asked: hangs
        began = time.monotonic()
        with pytest.raises(Unreachable):
            read(world.cluster, world.clock() + left)
        assert at_least < time.monotonic() - began < at_most * stretch()


def test_so_many_pods_are_read_at_once_and_the_others_wait_until_their_deadlines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reads, "READS", 2)
    with reading() as world, ThreadPoolExecutor(2) as pool:
        go_on = world.hold()
        readers = [
            pool.submit(world.cluster.pod, "redis", "redis-0", deadline=world.clock() + 30) for _ in range(2)
        ]
        until(lambda: len(world.server.asked) == 2)
        with pytest.raises(Unreachable, match="pod redis/redis-0 could not be read within the deadline"):
            world.cluster.pod("redis", "redis-0", deadline=world.clock() + 0.2)
        assert len(world.server.asked) == 2
        go_on.set()
        assert [each.result(30).metadata.name for each in readers] == ["redis-0"] * 2
        assert world.cluster.pod("redis", "redis-0", deadline=world.clock() + 30)
