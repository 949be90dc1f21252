"""Attack one webhook server on loopback, and say what a good client has of it.

Exits with 1 when a good request failed or was slower than allowed, or the server took more memory than it may.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from dev.hostile.attackers import attacking
from dev.hostile.attacks import ATTACKS, Tally, Target
from dev.hostile.good_client import Seen, calling
from dev.hostile.memory import Limited, limited
from dev.lab.bootstrap import running
from dev.lab.errors import LabError
from dev.lab.install import NAMESPACE
from dev.lab.processes import with_variable
from dev.lab.session import Lab
from kube.errors import KubeError

CLIENTS = 1000
"""At once, all attacks together."""
SECONDS = 10.0
"""Of each attack in a round."""
ROUNDS = 3
"""Of all attacks, each after a look without any."""
LIMIT = 512 * 1024 * 1024
"""The chart's memory limit of a webhook server."""
SLOWER = 3.0
"""The p99 of the good client may be so many times that without an attack."""
VALUES: dict[str, Any] = {
    "replicaCount": 1,
    "controllers": {"replicaCount": 1},
    "ipReservation": {"enabled": True},
    "elasticity": {"enabled": True},
    "ingressDaemonSet": {"enabled": True},
}
ALL = "all at once"
TITLE = (
    "Server, good client and attackers share this machine; the attackers get what the others leave of its cores,"
    " as if they had machines of their own"
)


@dataclass
class Row:
    """What a good client and the attackers of *names* got, *clients* of each, in all rounds so far."""

    attack: str
    names: Sequence[str]
    clients: int
    good: Seen = field(default_factory=Seen)
    memory: int = 0
    got: Tally = field(default_factory=Tally)

    def held(self, quiet: Seen, limit: Limited) -> bool:
        return not self.good.failures and self.good.p99() <= SLOWER * quiet.p99() and not limit.killed()


def main() -> int:
    try:
        with running(values=VALUES, calico="both", nodes=2, progress=_say) as lab:
            return _attack(lab)
    except (LabError, KubeError, OSError) as error:
        print(f"hostile: {error}", file=sys.stderr)
        return 1


def _attack(lab: Lab) -> int:
    target, pids = _target(lab)
    of_each = CLIENTS // len(ATTACKS)
    quiet, rows = Seen(), [Row(name, [name], of_each) for name in ATTACKS]
    together = Row(ALL, list(ATTACKS), of_each)
    with limited(pids, LIMIT) as limit:
        for turn in range(1, ROUNDS + 1):
            _say(f"round {turn} of {ROUNDS}: a good client alone")
            quiet.add(calling(target, SECONDS))
            for row in rows:
                _measure(row, target, SECONDS, limit)
            _measure(together, target, 2 * SECONDS, limit)
        rows.append(together)
    Console(width=None if sys.stdout.isatty() else 160).print(_table(rows, quiet, limit))
    held = all(row.held(quiet, limit) for row in rows)
    print("good requests were safe" if held else "good requests suffered")
    return 0 if held else 1


def _measure(row: Row, target: Target, seconds: float, limit: Limited) -> None:
    _say(row.attack)
    with attacking(row.names, row.clients, target, seconds) as tallies, _watching(limit) as peak:
        row.good.add(calling(target, seconds))
    row.memory = max(row.memory, peak[0])
    for tally in tallies.values():
        row.got.add(tally)


@contextmanager
def _watching(limit: Limited) -> Iterator[list[int]]:
    """The most memory that was seen, in bytes, after the block."""
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            peak[0] = max(peak[0], limit.resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def _target(lab: Lab) -> tuple[Target, list[int]]:
    selector = "app.kubernetes.io/component=webhook"
    found = lab.kubectl(
        "get", "pods", "--namespace", NAMESPACE, "--selector", selector, "--output=json"
    ).stdout
    [pod] = json.loads(found)["items"]
    pids = with_variable("POD_UID", pod["metadata"]["uid"])
    return Target(pod["status"]["podIP"], 9443, 8081, 8080), pids


def _table(rows: Sequence[Row], quiet: Seen, limit: Limited) -> Table:
    memory = f"MiB of {LIMIT // 2**20}" if limit.enforced else f"MiB of {LIMIT // 2**20} (not enforced)"
    shown = Table(
        "attack",
        "clients",
        "good requests",
        "failed",
        "p99, ms",
        "times quiet",
        memory,
        "they got",
        "",
        title=TITLE,
    )
    shown.add_row(
        "none", "0", str(len(quiet.latencies)), str(len(quiet.failures)), _ms(quiet), "1", "", "", ""
    )
    for row in rows:
        ratio = row.good.p99() / quiet.p99()
        verdict = "held" if row.held(quiet, limit) else "[bold red]did not hold"
        shown.add_row(
            row.attack,
            str(row.clients * len(row.names)),
            str(len(row.good.latencies)),
            str(len(row.good.failures)),
            _ms(row.good),
            f"{ratio:.2g}",
            f"{row.memory / 2**20:.0f}",
            _got(row.got),
            verdict,
        )
    return shown


def _ms(seen: Seen) -> str:
    return f"{1000 * seen.p99():.0f}"


def _got(tally: Tally) -> str:
    got = ", ".join(f"{count} x {name}" for name, count in sorted(tally.results.items()))
    return f"{got}; at most {tally.largest} bytes" if tally.largest else got


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
