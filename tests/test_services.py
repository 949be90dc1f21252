"""The lab's Services: where each leads as a function of values, and connections carried on real sockets."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from kube.types import Condition, ObjectMeta
from lab.relay import Address, Relay
from lab.services import (
    Container,
    ContainerPort,
    Pod,
    PodSpec,
    PodStatus,
    Service,
    ServicePort,
    ServiceSpec,
    table,
)

API = ("127.0.0.1", 6443)
DOOR, IP = ("127.64.0.9", 443), "127.128.0.4"
PORTS = (ServicePort(port=443, target_port="https"),)
SECONDS = 5.0


def service(**spec: object) -> Service:
    given = {"cluster_ip": DOOR[0], "selector": {"app": "hook"}, "ports": PORTS, **spec}
    return Service(metadata=ObjectMeta(name="hook", namespace="shop"), spec=ServiceSpec(**given))  # type: ignore[arg-type]


def pod(
    *, ip: str = IP, ready: str = "True", namespace: str = "shop", app: str = "hook", deleted: bool = False
) -> Pod:
    containers = (Container(ports=(ContainerPort(name="https", container_port=9443),)),)
    metadata = ObjectMeta(
        name="p",
        namespace=namespace,
        labels={"app": app, "more": "x"},
        deletion_timestamp=datetime(2027, 1, 1, tzinfo=UTC) if deleted else None,
    )
    conditions = (Condition(type="Ready", status=ready),)
    return Pod(metadata, PodSpec(containers), PodStatus(pod_ip=ip, phase="Running", conditions=conditions))


TARGET, OTHER = ("127.128.0.4", 9443), ("127.128.0.5", 9443)
TABLES: dict[str, tuple[dict[str, Any], list[Pod], dict[Address, tuple[Address, ...]]]] = {
    "a port by name": ({}, [pod()], {DOOR: (TARGET,)}),
    "a port by number": (
        {"ports": (ServicePort(port=443, target_port=8443),)},
        [pod()],
        {DOOR: ((IP, 8443),)},
    ),
    "all ready pods": ({}, [pod(), pod(ip=OTHER[0])], {DOOR: (TARGET, OTHER)}),
    "not one that is not ready": ({}, [pod(ready="False")], {DOOR: ()}),
    "not one that is being deleted": ({}, [pod(deleted=True)], {DOOR: ()}),
    "not one of another namespace": ({}, [pod(namespace="other")], {DOOR: ()}),
    "not one that only seems to run": ({}, [pod(ip="10.0.0.1")], {DOOR: ()}),
    "one that is not ready, if published": (
        {"publish_not_ready_addresses": True},
        [pod(ready="False")],
        {DOOR: (TARGET,)},
    ),
}


@pytest.mark.parametrize(("spec", "pods", "expected"), TABLES.values(), ids=TABLES)
def test_a_service_leads_to_its_ready_pods(
    spec: dict[str, Any], pods: list[Pod], expected: dict[Address, tuple[Address, ...]]
) -> None:
    assert table([service(**spec)], pods, API) == expected


class Running:
    """A relay in a separate thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.relay = Relay()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def follow(self, given: Mapping[Address, tuple[Address, ...]]) -> list[Address]:
        return list(asyncio.run_coroutine_threadsafe(self.relay.follow(given), self._loop).result(SECONDS))

    def stop(self) -> None:
        async def end() -> None:
            self.relay.close()
            for _ in range(3):  # a transport is dropped in the next round, and its peer in the one after
                await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()


@pytest.fixture
def running() -> Iterator[Running]:
    one = Running()
    yield one
    one.stop()


@contextmanager
def backend(serve: Callable[[socket.socket], None]) -> Iterator[Address]:
    """A server that handles each connection by *serve* in a separate thread."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=treat, args=(connection,), daemon=True).start()

    def treat(connection: socket.socket) -> None:
        with connection:
            serve(connection)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(SECONDS)


def named(name: bytes) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        connection.sendall(name)
        while data := connection.recv(65536):
            connection.sendall(data)

    return serve


@pytest.fixture
def door() -> Address:
    with socket.create_server(("127.99.0.7", 0)) as taken:
        return taken.getsockname()  # type: ignore[no-any-return]


def call(door: Address) -> socket.socket:
    return socket.create_connection(door, SECONDS)


def test_a_connection_stays_with_its_target_when_that_is_no_longer_in_the_table(
    running: Running, door: Address
) -> None:
    with backend(named(b"a")) as first, backend(named(b"b")) as second:
        running.follow({door: (first,)})
        with call(door) as old:
            assert old.recv(1) == b"a"
            running.follow({door: (second,)})
            old.sendall(b"still")
            assert old.recv(5) == b"still"
            with call(door) as new:
                assert new.recv(1) == b"b"


def test_a_caller_is_refused_at_once_when_no_pod_is_ready(running: Running, door: Address) -> None:
    with backend(named(b"a")) as first:
        running.follow({door: (first,)})
        with call(door) as connection:
            assert connection.recv(1) == b"a"
        running.follow({door: ()})

        with pytest.raises(ConnectionRefusedError):
            call(door)
