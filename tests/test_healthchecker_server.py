"""A load balancer asks over real sockets, and the health checker asks a server that behaves, or does not."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from api.health_checks import FAIL, State
from dev.fake_api import FakeAPI
from dev.lab.waiting import until
from healthchecker import watcher
from healthchecker.__main__ import serve
from healthchecker.checker import Checker
from healthchecker.config import Config
from healthchecker.watcher import follow
from kube.client import Client
from kube.errors import Backoff
from tests import kubeconfigs, misbehaving_server
from tests.metrics import sample
from tests.misbehaving_server import (
    Answer,
    answers,
    breaks_off,
    ends,
    hangs,
    in_turn,
    lists_and_watches,
    refuses,
    resets,
    serving,
    streams,
)
from tests.sockets import free_ports
from tests.tables import table

ROOT = Path(__file__).parent.parent
DEPLOYMENTS = "/apis/apps/v1/deployments"
CONFIG = Config("edge", "node-1", "nginx", 10080, bound=120, on_outage=FAIL)
"""Its bound leaves a busy machine the time to answer."""
SOON = Backoff(base=0.01, cap=0.02)
SILENT = streams([])
LONG = 30.0
"""Seconds; what is waited for takes far less."""
FOLLOWER = "follower"


def deployment(*, available: int = 2, name: str = "nginx-node-1", **annotations: str) -> dict[str, Any]:
    owner = {"kind": "IngressDaemonSet", "name": "nginx", "uid": "u", "controller": True}
    metadata = {"name": name, "namespace": "edge", "uid": f"uid-{name}", "resourceVersion": "7"}
    return {
        "metadata": {**metadata, "ownerReferences": [owner], "annotations": annotations},
        "spec": {"replicas": 2},
        "status": {"availableReplicas": available},
    }


def listed(*deployments: dict[str, Any]) -> Answer:
    return answers({"metadata": {"resourceVersion": "10"}, "items": list(deployments)})


class ShiftedClock:
    """The real one, and as much later as is said."""

    def __init__(self) -> None:
        self.shift = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.shift


@pytest.fixture(autouse=True)
def ended_followers() -> Iterator[None]:
    """A thread that outlives its test, and so its server, logs into a stream that is closed."""
    yield
    for thread in threading.enumerate():
        if thread.name == FOLLOWER:
            thread.join(LONG)
            assert not thread.is_alive()


@contextmanager
def watching(client: Client, config: Config = CONFIG) -> Iterator[tuple[Checker, ShiftedClock]]:
    """A checker that a thread keeps up to date until the block ends."""
    clock, stop = ShiftedClock(), threading.Event()
    checker = Checker(config, clock)
    arguments = (client, config, checker, stop)
    threading.Thread(
        target=follow, args=arguments, kwargs={"pauses": SOON}, name=FOLLOWER, daemon=True
    ).start()
    try:
        yield checker, clock
    finally:
        stop.set()
        client.close()


def asked(port: int, path: str = "/healthz") -> tuple[int, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_without_sight_for_longer_than_the_bound_the_node_gets_no_traffic_until_it_is_back() -> None:
    release = threading.Event()

    def breaks(handler: misbehaving_server.Handler) -> None:
        release.wait(LONG)
        resets(handler)

    first = lists_and_watches(
        in_turn(listed(deployment()), refuses(500, "down")), lambda _: streams([], breaks)
    )
    with serving(first) as server, watching(server.client()) as (checker, clock):
        until(lambda: checker.problem() is None, LONG)
        clock.shift = CONFIG.bound + 1
        assert "Deployment nginx-node-1 was last seen" in str(checker.problem())

        release.set()
        until(lambda: "500" in str(checker.problem()), LONG)
        server.answer = lists_and_watches(lambda _: listed(deployment()), lambda _: SILENT)
        until(lambda: checker.problem() is None, LONG)


def lasts(handler: misbehaving_server.Handler) -> None:
    """Ends as a watch should, and not at once."""
    handler.server.closing.wait(watcher.SHORT + 0.1)
    ends(handler)


def test_a_quiet_watch_that_ends_properly_proves_the_sight_and_costs_no_list_and_no_connection() -> None:
    answer = lists_and_watches(lambda _: listed(deployment()), lambda _: streams([], lasts))
    with serving(answer) as server, watching(server.client()) as (checker, clock):
        until(lambda: checker.problem() is None, LONG)
        clock.shift = CONFIG.bound + 1
        until(lambda: checker.problem() is None and len(server.watches) > 2, LONG)

        assert len(server.lists) == 1
        assert len({each.port for each in server.asked}) == 1


def test_a_watch_goes_on_from_the_last_event_or_bookmark() -> None:
    def brings(kind: str, version: str) -> Answer:
        metadata = {**deployment()["metadata"], "resourceVersion": version}
        return streams([{"type": kind, "object": {**deployment(), "metadata": metadata}}], lasts)

    watches = in_turn(brings("MODIFIED", "11"), brings("BOOKMARK", "12"), SILENT)
    with serving(lists_and_watches(lambda _: listed(), watches)) as server, watching(server.client()):
        until(lambda: len(server.watches) >= 3, LONG)

        assert [each.query["resourceVersion"] for each in server.watches[:3]] == ["10", "11", "12"]


BOOKMARK = {"type": "BOOKMARK", "object": {"metadata": {"name": "nginx-node-1", "resourceVersion": "12"}}}
OTHER = {"type": "MODIFIED", "object": deployment(name="nginx-node-2", available=0)}


@table("event", {"a bookmark": BOOKMARK, "another Deployment": OTHER})
def test_what_is_not_the_deployment_changes_nothing(event: dict[str, Any]) -> None:
    watches = in_turn(streams([event], lasts), SILENT)
    answer = lists_and_watches(lambda _: listed(deployment()), watches)
    with serving(answer) as server, watching(server.client()) as (checker, _):
        until(lambda: len(server.watches) >= 2, LONG)

        assert checker.problem() is None


GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}


@table(
    "trouble",
    {
        "refused": refuses(500, "InternalError"),
        "reset in the middle": streams([], resets),
        "broken off": breaks_off(b"{"),
        "not JSON": streams([b"no json\n"]),
        "version forgotten": streams([GONE]),
        "over at once": streams([], ends),
    },
)
def test_after_any_trouble_with_the_watch_the_deployment_is_read_again(trouble: Answer) -> None:
    answer = lists_and_watches(
        in_turn(listed(deployment(available=0)), listed(deployment())), in_turn(trouble, SILENT)
    )
    with serving(answer) as server, watching(server.client()) as (checker, _):
        until(lambda: checker.problem() is None, LONG)

        assert len(server.lists) >= 2


@table(
    "trouble",
    {"refused": refuses(500, "InternalError"), "reset": resets, "hangs": hangs, "not a list": answers(b"[]")},
)
def test_a_deployment_that_cannot_be_read_is_read_again(trouble: Answer) -> None:
    answer = lists_and_watches(in_turn(trouble, listed(deployment())), lambda _: SILENT)
    with (
        serving(answer) as server,
        watching(server.client(), Config("edge", "node-1", "nginx", 10080, bound=6)) as (checker, _),
    ):
        until(lambda: checker.problem() is None, LONG)


def test_a_server_that_hangs_within_a_watch_is_noticed() -> None:
    config = Config("edge", "node-1", "nginx", 10080, bound=3)
    answer = lists_and_watches(lambda _: listed(deployment()), lambda _: SILENT)
    with serving(answer) as server, watching(server.client(), config):
        until(lambda: server.watches and server.lists[-1].at > server.watches[0].at, LONG)


def test_a_bug_in_following_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = in_turn(listed(deployment(available=0)), listed(deployment()))
    seen = watcher.look

    def breaks_once(client: Client, config: Config, checker: Checker) -> str:
        monkeypatch.setattr(watcher, "look", seen)
        raise ZeroDivisionError

    monkeypatch.setattr(watcher, "look", breaks_once)
    with (
        serving(lists_and_watches(looks, lambda _: SILENT)) as server,
        watching(server.client()) as (checker, _),
    ):
        until(lambda: "0 of 2 replicas" in str(checker.problem()), LONG)


def test_an_answer_is_counted_before_it_is_sent() -> None:
    def counted() -> float:
        return sample("drawbridge_healthchecker_answers_total", status="200")

    with closing(serve(lambda: None, State, ("127.0.0.1", 0))) as server:
        port = server.server_address[1]
        for expected in range(1 + int(counted()), 51 + int(counted())):
            assert asked(port) == (200, "ok\n")
            assert counted() == expected


@contextmanager
def program(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    surroundings = {name: value for name, value in os.environ.items() if name != "KUBERNETES_SERVICE_HOST"}
    process = subprocess.Popen(
        [sys.executable, "-m", "healthchecker"],
        cwd=ROOT,
        env={**surroundings, "DRAWBRIDGE_BIND_HOST": "127.0.0.1", **environment},
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def environment_for(kubeconfig: Path, url: str, port: int) -> dict[str, str]:
    place = {"POD_NAMESPACE": "edge", "NODE_NAME": "node-1", "INGRESS_DAEMONSET": "nginx"}
    return {**place, "KUBECONFIG": kubeconfigs.written(kubeconfig, url), "HEALTH_CHECK_PORT": str(port)}


def test_the_program_answers_until_it_is_told_to_end(tmp_path: Path) -> None:
    api = FakeAPI()
    api.put(DEPLOYMENTS, deployment())

    [port] = free_ports(1)

    def is_healthy(process: subprocess.Popen[str]) -> bool:
        assert process.poll() is None
        try:
            return asked(port)[0] == 200
        except ConnectionError:
            return False

    with (
        serving(api) as server,
        program(environment_for(tmp_path / "kubeconfig", server.url, port)) as process,
    ):
        until(lambda: is_healthy(process), 2 * LONG)
        metrics = asked(port, "/metrics")[1]
        process.send_signal(signal.SIGTERM)

        assert process.wait(LONG) == 0
    assert "drawbridge_healthchecker_healthy 1.0" in metrics
    assert 'drawbridge_healthchecker_answers_total{status="200"}' in metrics
    assert "drawbridge_healthchecker_sight_age_seconds" in metrics


def test_a_task_that_is_not_said_ends_the_program_with_the_reason() -> None:
    with program({"POD_NAMESPACE": "edge", "NODE_NAME": "", "INGRESS_DAEMONSET": "nginx"}) as process:
        assert process.wait(2 * LONG) == 2
        assert process.stderr
        assert process.stderr.read().startswith(
            "the health checker cannot start: Object missing required field `NODE_NAME`"
        )


def test_only_the_one_deployment_is_asked_for() -> None:
    with serving(lists_and_watches(lambda _: listed(deployment()), lambda _: SILENT)) as server:
        with watching(server.client()):
            until(lambda: server.watches, LONG)

        assert {each.path for each in server.asked} == {"/apis/apps/v1/namespaces/edge/deployments"}
        assert {each.query["fieldSelector"] for each in server.asked} == {"metadata.name=nginx-node-1"}
        assert server.watches[0].query["resourceVersion"] == "10"
        assert 40 <= int(server.watches[0].query["timeoutSeconds"]) <= 60


def test_a_port_that_is_taken_ends_the_program_with_the_reason(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        environment = environment_for(tmp_path / "kubeconfig", "http://127.0.0.1:1", taken.getsockname()[1])
        with program(environment) as process:
            assert process.wait(2 * LONG) == 2
            assert process.stderr
            assert "the health checker cannot start: " in process.stderr.read()
