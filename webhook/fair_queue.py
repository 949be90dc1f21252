"""A few turns to compute at a time, so that a request does not share the interpreter with all that others ask for.

Python computes in one thread at a time, and changes threads without a look at what they do: of a hundred that compute,
each gets a hundredth. So only a few jobs run at once, and of those that wait, the first is one of the client that has
used the least CPU time. All of it belongs to the thread of the event loop; the jobs alone run in others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import TypeVar

from kube.waiting import taking
from runtime import futures, time

HALF_LIFE = 5.0
"""Seconds after which half of what a client has used is forgotten."""
FORGOTTEN = 0.0005
"""CPU seconds below which nothing of a client is remembered."""
LONGEST = 1.0
"""Seconds of a turn, after which the next one begins without its end: nothing that is stuck may stop all others."""

T = TypeVar("T")


class Usage:
    """CPU seconds that clients have used lately; it remembers no more clients than can be served in that time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._used: dict[Hashable, float] = {}
        self._halved_at = clock()

    def of(self, client: Hashable) -> float:
        return self._used.get(client, 0.0)

    def add(self, client: Hashable, seconds: float) -> None:
        if halvings := int((self._clock() - self._halved_at) / HALF_LIFE):
            self._halved_at += halvings * HALF_LIFE
            left = ((each, used * 0.5**halvings) for each, used in self._used.items())
            self._used = {each: used for each, used in left if used > FORGOTTEN}
        self._used[client] = self.of(client) + seconds


class Places:
    """So many may go on at once; the others line up by client."""

    def __init__(self, places: int, usage: Usage) -> None:
        self.free, self._usage = places, usage
        self._lines: dict[Hashable, deque[asyncio.Future[None]]] = {}

    async def take(self, client: Hashable) -> None:
        if self.free and not self._lines:
            self.free -= 1
            return
        place = asyncio.get_running_loop().create_future()
        self._lines.setdefault(client, deque()).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # it was given in the same moment
                self.release()
            raise

    def release(self) -> None:
        self.free += 1
        while self.free and self._lines:
            place = self._first()
            if not place.done():  # its connection was closed meanwhile
                place.set_result(None)
                self.free -= 1

    def _first(self) -> asyncio.Future[None]:
        client = min(self._lines, key=self._usage.of)
        line = self._lines[client]
        place = line.popleft()
        if not line:
            del self._lines[client]
        return place


class Entrance:
    """Lets so many steps through in each round of the event loop, so that a flood of them does not delay all else."""

    def __init__(self, each_round: int, usage: Usage) -> None:
        self._places, self._usage = Places(each_round, usage), usage

    async def run(self, client: Hashable, act: Callable[[], T], *, enters: bool = True) -> T:
        """The result of *act*, which is counted for *client*, and does not wait unless it *enters*."""
        if enters:
            await self._places.take(client)
            asyncio.get_running_loop().call_soon(self._places.release)
        begin = time.thread_time()
        try:
            return act()
        finally:
            self._usage.add(client, time.thread_time() - begin)


class Turns:
    """Jobs in threads of *pool*; at most *turns* of them compute at once.

    *cpu* is the time that the calling thread has computed.
    """

    def __init__(
        self,
        pool: futures.Executor,
        turns: int,
        usage: Usage,
        *,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._pool, self._usage, self._cpu = pool, usage, cpu
        self._places = Places(turns, usage)

    async def run(self, client: Hashable, job: Callable[[], T]) -> T:
        await self._places.take(client)
        loop, used, has_ended = asyncio.get_running_loop(), 0.0, False

        def end() -> None:
            nonlocal has_ended
            if not has_ended:
                has_ended = True
                self._places.release()

        def work() -> T:
            nonlocal used
            begin = self._cpu()
            try:
                with taking(lambda: loop.call_soon_threadsafe(end)):
                    return job()
            finally:
                used = self._cpu() - begin

        limit = loop.call_later(LONGEST, end)
        try:
            return await loop.run_in_executor(self._pool, work)
        finally:
            limit.cancel()
            self._usage.add(client, used)
            end()
