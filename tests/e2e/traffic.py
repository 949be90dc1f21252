"""HAProxy in front of the nodes, and a client that counts what fails."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dev.lab import processes
from dev.lab.errors import LabError
from dev.lab.waiting import until
from tests.e2e.client import Report, answer

MEASUREMENTS = 3
# No retries: what reaches a node without pods fails.
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
        f"    server {name} {at} check inter 500ms fall 4 rise 6 {check}" for name, at in servers.items()
    )
    configuration = home / f"haproxy-{port}.cfg"
    configuration.write_text(CONFIGURATION.format(port=port, servers="\n".join(lines)))
    with (
        (home / "logs" / f"haproxy-{port}.log").open("wb") as log,
        subprocess.Popen(
            ["haproxy", "-db", "-f", configuration],
            stdout=log,
            stderr=log,
            preexec_fn=_go_first,
        ) as process,
    ):
        try:
            until(lambda: asyncio.run(answer(port)) == "200", 60, "HAProxy to have a healthy node", every=0.2)
            yield
        finally:
            process.kill()


@contextmanager
def requests(port: int, host: str = "127.0.0.1", where: Sequence[str] = ()) -> Iterator[list[Report]]:
    """While the block runs, requests by a client; after it, the list has what became of them all.

    *where* is a command that runs it on another machine.
    """
    reports: list[Report] = []
    with subprocess.Popen(
        [*where, sys.executable, "-m", "tests.e2e.client", str(port), host],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=_go_first,
    ) as client:
        try:
            yield reports
            found = json.loads(client.communicate()[0])
            reports.append(Report(Counter(found.pop("answers")), **found))
            print(f"requests to port {port}: {reports[0]}")
        finally:
            client.kill()


def _go_first() -> None:
    """For ``preexec_fn``: what is another machine elsewhere does not wait here for processors that its nodes use."""
    processes.die_with_parent()
    # A lower niceness would count within one session only.
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def measured(measure: Callable[[int], Report]) -> Report:
    """Of the first measurement in which the client did its part; LabError when it did so in none of a few."""
    for attempt in range(MEASUREMENTS):
        report = measure(attempt)
        if not report.own_fault:
            return report
        print(f"measured again: {report.own_fault}")
    raise LabError(f"this machine is too busy to measure failures: {report.own_fault}")


def log_of(home: Path, port: int) -> str:
    """What HAProxy has logged of requests that failed, and of health checks that changed."""
    return (home / "logs" / f"haproxy-{port}.log").read_text()[-6000:]
