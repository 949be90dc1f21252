"""The lab's Services: where each leads as a function of values, and connections carried on real sockets."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

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
DOOR = ("127.64.0.9", 443)
PORTS = (ServicePort(port=443, target_port="https"),)
SECONDS = 5.0


def service(name: str = "hook", **spec: object) -> Service:
    given = {"cluster_ip": DOOR[0], "selector": {"app": "hook"}, "ports": PORTS, **spec}
    return Service(metadata=ObjectMeta(name=name, namespace="shop"), spec=ServiceSpec(**given))  # type: ignore[arg-type]


def pod(
    *,
    ip: str = "127.128.0.4",
    ready: str = "True",
    namespace: str = "shop",
    app: str = "hook",
    deleted: bool = False,
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


@pytest.mark.parametrize(
    ("given", "pods", "expected"),
    [
        pytest.param(service(), [pod()], {DOOR: (("127.128.0.4", 9443),)}, id="a port by name"),
        pytest.param(
            service(ports=(ServicePort(port=443, target_port=8443),)),
            [pod()],
            {DOOR: (("127.128.0.4", 8443),)},
            id="a port by number",
        ),
        pytest.param(
            service(ports=(ServicePort(port=443),)),
            [pod()],
            {DOOR: (("127.128.0.4", 443),)},
            id="the same port",
        ),
        pytest.param(
            service(ports=(ServicePort(port=443, target_port="gone"),)),
            [pod()],
            {DOOR: ()},
            id="a name nobody has",
        ),
        pytest.param(
            service(),
            [pod(), pod(ip="127.128.0.5")],
            {DOOR: (("127.128.0.4", 9443), ("127.128.0.5", 9443))},
            id="all ready pods",
        ),
        pytest.param(service(), [pod(ready="False")], {DOOR: ()}, id="not one that is not ready"),
        pytest.param(service(), [pod(deleted=True)], {DOOR: ()}, id="not one that is being deleted"),
        pytest.param(service(), [pod(namespace="other")], {DOOR: ()}, id="not one of another namespace"),
        pytest.param(service(), [pod(app="other")], {DOOR: ()}, id="not one of other labels"),
        pytest.param(service(), [pod(ip="10.0.0.1")], {DOOR: ()}, id="not one that only seems to run"),
        pytest.param(service(selector={}), [pod()], {DOOR: ()}, id="none without a selector"),
        pytest.param(
            service(publish_not_ready_addresses=True),
            [pod(ready="False")],
            {DOOR: (("127.128.0.4", 9443),)},
            id="one that is not ready, when that is asked for",
        ),
        pytest.param(service(cluster_ip="None"), [pod()], {}, id="a headless Service has no door"),
        pytest.param(service(cluster_ip="10.0.0.9"), [pod()], {}, id="nothing outside of the loopback"),
        pytest.param(
            service(ports=(ServicePort(port=53, protocol="UDP"),)), [pod()], {}, id="nothing but TCP"
        ),
    ],
)
def test_a_service_leads_to_its_ready_pods(
    given: Service, pods: list[Pod], expected: dict[Address, tuple[Address, ...]]
) -> None:
    assert table([given], pods, API) == expected


def test_the_service_kubernetes_leads_to_the_api_server() -> None:
    kubernetes = Service(
        ObjectMeta(name="kubernetes", namespace="default"),
        ServiceSpec(cluster_ip="127.64.0.1", ports=(ServicePort(port=443, target_port=6443),)),
    )

    assert table([kubernetes], [pod()], API) == {("127.64.0.1", 443): (API,)}


class Running:
    """A relay in a thread of its own, told from the test's."""

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
            await asyncio.sleep(0.02)  # the loop drops its transports in its next round

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
    """A server that treats each connection as told, in a thread of its own."""
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


def test_connections_go_to_the_targets_in_turn(running: Running, door: Address) -> None:
    with backend(named(b"a")) as first, backend(named(b"b")) as second:
        assert running.follow({door: (first, second)}) == []
        heard = []
        for _ in range(4):
            with call(door) as connection:
                heard.append(connection.recv(1))

    assert sorted(heard) == [b"a", b"a", b"b", b"b"]


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


def test_where_nobody_is_ready_a_caller_is_refused_at_once(running: Running, door: Address) -> None:
    with backend(named(b"a")) as first:
        running.follow({door: (first,)})
        with call(door) as connection:
            assert connection.recv(1) == b"a"
        running.follow({door: ()})

        with pytest.raises(ConnectionRefusedError):
            call(door)


def test_a_caller_of_a_target_that_is_gone_is_reset_at_once(running: Running, door: Address) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        gone = unused.getsockname()
    running.follow({door: (gone,)})

    with pytest.raises(ConnectionResetError), call(door) as connection:
        connection.recv(1)


def test_an_address_that_is_taken_is_named_and_tried_again(running: Running, door: Address) -> None:
    with backend(named(b"a")) as first:
        with socket.create_server(door):
            assert running.follow({door: (first,)}) == [door]
        assert running.follow({door: (first,)}) == []


def test_the_end_of_one_direction_leaves_the_other_open(running: Running, door: Address) -> None:
    def answer_at_the_end(connection: socket.socket) -> None:
        heard = b"".join(iter(lambda: connection.recv(65536), b""))
        connection.sendall(b"heard %d" % len(heard))

    with backend(answer_at_the_end) as target:
        running.follow({door: (target,)})
        with call(door) as connection:
            connection.sendall(b"x" * 1000)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(100) == b"heard 1000"
            assert connection.recv(1) == b""


def test_a_reset_by_the_target_reaches_the_caller(running: Running, door: Address) -> None:
    def reset(connection: socket.socket) -> None:
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with backend(reset) as target:
        running.follow({door: (target,)})
        with call(door) as connection:
            connection.sendall(b"x")
            with pytest.raises(ConnectionResetError):
                connection.recv(1)


def test_megabytes_arrive_whole(running: Running, door: Address) -> None:
    sent = bytes(range(256)) * 40_000
    with backend(named(b"")) as target:
        running.follow({door: (target,)})
        with call(door) as connection:
            threading.Thread(target=connection.sendall, args=(sent,)).start()
            heard = bytearray()
            while len(heard) < len(sent):
                heard += connection.recv(1 << 20)

    assert bytes(heard) == sent


def test_a_target_that_does_not_read_holds_the_caller_back(running: Running, door: Address) -> None:
    done = threading.Event()

    def deaf(connection: socket.socket) -> None:
        done.wait(SECONDS)

    with backend(deaf) as target:
        running.follow({door: (target,)})
        with call(door) as connection:
            connection.settimeout(0.3)
            with pytest.raises(TimeoutError):
                send(connection, 64 << 20)
        done.set()


def send(connection: socket.socket, amount: int) -> None:
    for _ in range(amount >> 16):
        connection.sendall(bytes(1 << 16))
