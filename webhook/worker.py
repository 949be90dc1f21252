"""A gunicorn worker in which no client delays another, and whose end costs no request.

An event loop has all connections, each with a deadline, and threads compute their answers. At the limit of connections
the one that has been idle for longest is closed. After SIGTERM the worker serves on for the drain period, and asks
clients to connect again.
"""

import asyncio
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import structlog
from gunicorn.workers.base import Worker

from certs.cert_watcher import ServingPair
from runtime import futures, threading, time
from telemetry.logs import SparingLogger
from webhook.connection import Connection, Limits, Lines, Response, Service
from webhook.fair_queue import Entrance, Turns, Usage
from webhook.inbox import Budget

log = structlog.stdlib.get_logger(__name__)
sparing = SparingLogger(log)

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

SWITCH = 0.0005
"""Seconds after which a thread that computes lets another one run: a small request changes threads a few times."""
GREEDY = 16
"""A client address with more than this part of all connections loses its own first."""
AT_ONCE = 1
"""Steps of handshakes and of unfinished requests in a round of the event loop: each waits for the interpreter, and an
answer to another client waits for the round."""
SERVED, NEWCOMERS, LARGE = 4, 2, 1
"""Requests that compute at a time: of connections that were served before, of others, and large ones of both."""
TICK = 0.2
"""Seconds between two looks at what is no event: deadlines, signals, the parent process, and files that are free."""
LAST = 2.0
"""Seconds for a request that a client may be sending while the server ends."""

_stopping = threading.Event()


def stopping() -> bool:
    """Whether the drain period is over: new requests must go to other replicas."""
    return _stopping.is_set()


class WebhookWorker(Worker):
    limits = Limits()
    budget = Budget(64 * 1024 * 1024)
    drain_period = 5.0
    """Seconds; set before the worker runs."""
    client_ca: Callable[[], str] = staticmethod(lambda: "")
    """As in `ServingPair`; set before the worker runs."""

    wsgi: Application
    drain_ends: float | None = None

    def init_process(self) -> None:
        self.pair = ServingPair(self.cfg.certfile, self.cfg.keyfile, lambda: self.client_ca())
        self.pair.context()  # fails without a certificate
        sys.setswitchinterval(SWITCH)
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        usage, pool = Usage(), futures.ThreadPoolExecutor(self.cfg.threads, "review")
        lines = Lines(*(Turns(pool, turns, usage) for turns in (SERVED, NEWCOMERS, LARGE)))
        self._service = Service(
            self.pair, self.limits, self.budget, Entrance(AT_ONCE, usage), lines, self._respond
        )
        self._connections: dict[asyncio.Task[None], Connection] = {}
        self._accepts = False
        super().init_process()

    def submit(self, job: Callable[[], None]) -> futures.Future[None]:
        """Do *job* as one of a client that was served before."""
        return asyncio.run_coroutine_threadsafe(self._service.lines.served.run("health", job), self._loop)

    def handle_exit(self, *_signal: object) -> None:
        """SIGTERM begins the drain. A signal handler must take no lock."""
        if self.drain_ends is None:
            self.drain_ends = time.monotonic() + self.drain_period

    def run(self) -> None:
        with self._runner:
            self._runner.run(self._serve())

    async def _serve(self) -> None:
        for listener in self.sockets:
            listener.setblocking(False)
        self._accept_again()
        while os.getppid() == self.ppid and time.monotonic() < (self.drain_ends or float("inf")):
            await self._tick()
        log.info("drained, finishing requests in flight")
        _stopping.set()
        self._end_accepting()
        for each in self._connections.values():
            each.hurry(LAST)
        end = time.monotonic() + self.cfg.graceful_timeout
        while self._connections and time.monotonic() < end:
            await self._tick()

    async def _tick(self) -> None:
        self.notify()
        now = time.monotonic()
        for task, each in self._connections.items():
            if each.deadline < now:
                task.cancel()
        await asyncio.sleep(TICK)

    def _accept_again(self) -> None:
        if not (self._accepts or stopping()):
            self._accepts = True
            for listener in self.sockets:
                self._loop.add_reader(listener, self._accept, listener)

    def _accept_no_more(self) -> None:
        if self._accepts:
            self._accepts = False
            for listener in self.sockets:
                self._loop.remove_reader(listener)

    def _end_accepting(self) -> None:
        """Accept the backlog, then close the listeners, so that clients are refused."""
        self._accept_no_more()
        for listener in self.sockets:
            while self._accept(listener):
                pass
            listener.close()

    def _accept(self, listener: socket.socket) -> bool:
        """Begin to serve a new connection; False when there is none."""
        try:
            sock, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return False
        except OSError as error:  # the process may open no more files
            sparing.warning("connection not accepted", error=str(error))
            if not self._make_room():
                self._accept_no_more()
                self._loop.call_later(TICK, self._accept_again)
            return False
        connection = Connection(sock, address[0], self._service)
        task = self._loop.create_task(connection.serve())
        self._connections[task] = connection
        task.add_done_callback(self._ended)
        if len(self._connections) > self.cfg.worker_connections and not self._make_room():
            self._accept_no_more()
        return True

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._connections[task]
        self._accept_again()

    def _make_room(self) -> bool:
        """Close the connection that has been idle for longest, first of clients that have many.

        When none is idle all are being answered; if they stay so this replica becomes unready.
        """
        idle = [(task, each) for task, each in self._connections.items() if each.is_idle]
        by_client = Counter(each.client for _, each in idle)
        many = self.cfg.worker_connections / GREEDY
        greedy = [(task, each) for task, each in idle if by_client[each.client] > many]
        if not idle:
            return False
        min(greedy or idle, key=lambda each: each[1].since)[0].cancel()
        return True

    def _respond(self, environ: dict[str, Any], keeps: bool) -> Response:
        started: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], _error: object = None) -> Callable[..., None]:
            started[:] = status, headers
            return lambda _data: None

        content = self.wsgi(environ, start)
        try:
            body = b"".join(content)
        finally:
            if close := getattr(content, "close", None):
                close()
        status, headers = started
        keeps = keeps and self.drain_ends is None and ("Connection", "close") not in headers
        fields = [f"{name}: {value}" for name, value in headers if name != "Connection"]
        fields.append(f"Connection: {'keep-alive' if keeps else 'close'}")
        head = "\r\n".join([f"HTTP/1.1 {status}", *fields, "", ""])
        return Response(head.encode("latin-1") + body, keeps)
