"""HAProxy in front of the nodes, and a client that counts what fails."""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lab import processes
from lab.waiting import until

RATE = 200
"""Requests a second."""
MOST_SECONDS = 400
ANSWER_SECONDS = 20
REQUEST = b"GET / HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n\r\n"
# No retries: what reaches a node without pods fails. A node is attached sooner than another is detached: a rollout
# goes on as soon as the health check of a node succeeds.
CONFIGURATION = """\
global
    log stdout format raw local0
defaults
    log global
    option httplog
    option dontlog-normal
    option log-health-checks
    mode http
    retries 0
    timeout connect 5s
    timeout client 30s
    timeout server 30s
    timeout check 5s
    option httpclose
listen edge
    bind 127.0.0.1:{port}
    option httpchk GET /healthz
    http-check expect status 200
{servers}
"""


@contextmanager
def balancing(home: Path, port: int, servers: Mapping[str, str], check: str) -> Iterator[None]:
    """HAProxy on *port* of the loopback, for *servers* by name (host and port), each with this health *check*."""
    lines = (
        f"    server {name} {at} check inter 500ms downinter 250ms fall 4 rise 1 {check}"
        for name, at in servers.items()
    )
    configuration = home / f"haproxy-{port}.cfg"
    configuration.write_text(CONFIGURATION.format(port=port, servers="\n".join(lines)))
    with (
        (home / "logs" / f"haproxy-{port}.log").open("wb") as log,
        subprocess.Popen(
            ["haproxy", "-db", "-f", configuration],
            stdout=log,
            stderr=log,
            preexec_fn=processes.die_with_parent,
        ) as process,
    ):
        try:
            until(lambda: asyncio.run(answer(port)) == "200", 60, "HAProxy to have a healthy node", every=0.2)
            yield
        finally:
            process.kill()


async def answer(port: int) -> str:
    """The status of one request on a new connection, or what went wrong."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(REQUEST)
                return (await reader.readline()).split()[1].decode()
            finally:
                writer.close()
    except (OSError, TimeoutError, IndexError) as error:
        return type(error).__name__


@contextmanager
def requests(port: int) -> Iterator[Counter[str]]:
    """While the block runs, RATE requests a second; after it, all answers are counted."""
    counted: Counter[str] = Counter()
    ended = threading.Event()
    client = threading.Thread(target=lambda: asyncio.run(_send(port, counted, ended)))
    client.start()
    try:
        yield counted
    finally:
        ended.set()
        client.join()
    print(f"answers: {dict(counted)}")


async def _send(port: int, counted: Counter[str], ended: threading.Event) -> None:
    async def one() -> None:
        counted[await answer(port)] += 1

    begin = time.monotonic()
    sent = 0
    async with asyncio.TaskGroup() as tasks:
        while not ended.is_set() and (passed := time.monotonic() - begin) < MOST_SECONDS:
            # A busy machine sends later what it owes.
            for _ in range(int(passed * RATE) - sent):
                tasks.create_task(one())
                sent += 1
            await asyncio.sleep(1 / RATE)


def log_of(home: Path, port: int) -> str:
    """What HAProxy has logged of requests that failed, and of health checks that changed."""
    return (home / "logs" / f"haproxy-{port}.log").read_text()[-6000:]


def failed(counted: Counter[str]) -> int:
    return counted.total() - counted["200"]
