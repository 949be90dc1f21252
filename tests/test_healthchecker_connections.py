"""Open connections are counted where they can be, and only when the controllers ask."""

from __future__ import annotations

import socket
import threading
import tracemalloc
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from healthchecker import connections
from healthchecker.config import Endpoint
from healthchecker.connections import PERIOD, Counter, count_sockets, established, read_metric, total
from tests.fakes import FakeClock
from tests.misbehaving_server import Answer, answers, hangs, resets, serving
from tests.tables import table

TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:A000 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0 20 4 30 10 -1
   2: 0100007F:1F90 0100007F:A001 06 00000000:00000000 00:00000000 00000000     0        0 3 1 0 20 4 30 10 -1
   3: 0100007F:0050 0100007F:A002 01 00000000:00000000 00:00000000 00000000     0        0 4 1 0 20 4 30 10 -1
"""
METRICS = """# TYPE nginx_connections_active gauge
nginx_connections_active{worker="1"} 3
nginx_connections_active{worker="2"} 4
nginx_other 9
"""


@table("ports, count", {"one port": ({8080}, 1), "two ports": ({8080, 80}, 2), "another": ({443}, 0)})
def test_only_established_connections_to_the_ports_count(ports: set[int], count: int) -> None:
    assert established(TABLE.splitlines(), ports) == count


def test_the_sockets_of_this_machine_are_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert count_sockets([port]) == 0
        with socket.create_connection(("127.0.0.1", port)), closing(listener.accept()[0]):
            assert count_sockets([port]) == 1


def test_a_table_of_many_sockets_is_never_in_memory_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 100_000
    head, row = TABLE.splitlines()[0], TABLE.splitlines()[2]
    table = tmp_path / "tcp"
    table.write_text("\n".join([head, *[row] * rows]) + "\n")
    monkeypatch.setattr(connections, "TABLES", (table, tmp_path / "tcp6"))
    tracemalloc.start()
    try:
        assert count_sockets({8080}) == rows
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_metric_is_the_sum_of_its_samples() -> None:
    assert total(METRICS, "nginx_connections_active") == 7

    with pytest.raises(ValueError, match="there is no metric nginx_connections"):
        total(METRICS, "nginx_connections")


def test_the_other_metrics_of_a_busy_proxy_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take seconds, and controllers that get no answer would never see the detachment confirmed."""
    parsed = list[str]()

    def parse(text: str) -> Iterable[Metric]:
        parsed.append(text)
        return text_string_to_metric_families(text)

    monkeypatch.setattr(connections, "text_string_to_metric_families", parse)
    others = (
        'nginx_connections_active_total 5\nseconds_bucket{of="\u2028nginx_connections_active 1"} 1\n' * 1000
    )
    assert total(others + METRICS + others, "nginx_connections_active") == 7
    assert parsed == ["".join(METRICS.splitlines(keepends=True)[1:3])]


def test_a_metric_is_read_from_the_node() -> None:
    with serving(lambda asked: answers(METRICS.encode())) as server:
        endpoint = Endpoint(server.server_port, "/metrics", "nginx_connections_active")

        assert read_metric(endpoint) == 7
        assert [each.path for each in server.asked] == ["/metrics"]


@table(
    "answer",
    {
        "not found": answers(b"no", 404),
        "another page": answers(b"no metrics here"),
        "infinite": answers(b"up +Inf"),
        "no number": answers(b"up NaN"),
        "a text that the parser fails at": answers(b'{x="",\t=34'),
        "silent": hangs,
        "reset": resets,
        "endless": answers(b"# nothing\n" * 500_000),
    },
)
def test_an_endpoint_that_says_nothing_useful_is_an_error_that_is_caught(answer: Answer) -> None:
    with serving(lambda asked: answer) as server:
        endpoint = Endpoint(server.server_port, "/metrics", "up")
        counter = Counter(lambda: read_metric(endpoint))

        assert counter.latest().connections is None
        assert counter.latest().error


def test_a_count_serves_all_who_ask_within_a_second() -> None:
    clock, counts = FakeClock(), iter([5, 3])
    counter = Counter(lambda: next(counts), clock)
    assert [counter.latest().connections, counter.latest().connections] == [5, 5]
    clock.advance(PERIOD)
    assert counter.latest().connections == 3


def test_none_waits_for_a_count_of_another() -> None:
    """Of few threads, some are left for load balancers while the pod's endpoint is silent."""
    begun, ends = threading.Event(), threading.Event()

    def count() -> int:
        begun.set()
        assert ends.wait(10)
        return 1

    counter = Counter(count)
    with ThreadPoolExecutor() as threads:
        counting = threads.submit(counter.latest)
        assert begun.wait(10)
        assert counter.latest().error == "they have not been counted yet"
        ends.set()
        assert counting.result(10).connections == 1
