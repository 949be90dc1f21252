"""`python -m tests.e2e.client PORT [HOST]` sends requests there until its input ends, and says what became of them.

It is a process by itself: a client that shares an interpreter with the scene would wait for it, and take that for
a late answer. What it cannot send in time it does not send later in a burst, but counts.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import msgspec

RATE = 200
"""Requests a second."""
ANSWER_SECONDS = 20.0
STALLED_SECONDS = 2.0
LEAST_SHARE = 0.9
"""Of what it should send."""
REQUEST = b"GET / HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n\r\n"


@dataclass
class Report:
    """What was answered, by status or error; how often the client was late itself, and how late."""

    answers: Counter[str] = field(default_factory=Counter)
    omitted: int = 0
    stalled: float = 0

    @property
    def failed(self) -> int:
        return self.answers.total() - self.answers["200"]

    @property
    def own_fault(self) -> str:
        """Why this is no measurement; empty when it is one."""
        if self.stalled > STALLED_SECONDS:
            return f"the client did not run for {self.stalled:.1f} s"
        sent = self.answers.total()
        if sent < LEAST_SHARE * (sent + self.omitted):
            return (
                f"the client sent {sent} of {sent + self.omitted} requests: the machine is too busy for more"
            )
        return ""


class Sender:
    """Owes a request each 1/RATE seconds, and sends those that became due since the last look.

    After a pause of more than a tenth of a second it sends those of a tenth: others come too late to be a steady load.
    """

    MOST = RATE // 10

    def __init__(self, now: float) -> None:
        self._begin = self._last = now
        self._owed = 0
        self.report = Report()

    def due(self, now: float) -> int:
        """How many to send now."""
        self.report.stalled = max(self.report.stalled, now - self._last)
        self._last = now
        owed = int((now - self._begin) * RATE)
        missing, self._owed = owed - self._owed, owed
        self.report.omitted += max(0, missing - self.MOST)
        return min(missing, self.MOST)


async def answer(port: int, host: str = "127.0.0.1") -> str:
    """The status of one request on a new connection, or what went wrong."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(REQUEST)
                return (await reader.readline()).split()[1].decode()
            finally:
                writer.close()
    except (OSError, TimeoutError, IndexError) as error:
        return type(error).__name__


async def send(ended: asyncio.Event, port: int, host: str = "127.0.0.1") -> Report:
    """Until *ended*; then all answers are awaited."""
    sender = Sender(time.monotonic())

    async def one() -> None:
        sender.report.answers[await answer(port, host)] += 1

    async with asyncio.TaskGroup() as tasks:
        while not ended.is_set():
            for _ in range(sender.due(time.monotonic())):
                tasks.create_task(one())
            await asyncio.sleep(1 / RATE)
    return sender.report


async def _main(port: int, *host: str) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
    print(msgspec.json.encode(await send(ended, port, *host)).decode())


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), *sys.argv[2:]))
