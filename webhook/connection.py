"""One client's connection: handshake, whole requests and their answers, each with a deadline and in bounded memory.

It waits in the event loop, never in a thread: threads only compute.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, NamedTuple, TypeVar

import structlog
from prometheus_client import Counter

from certs.cert_watcher import ServingPair
from runtime import random, time
from telemetry.logs import SparingLogger
from webhook.admission import ARRIVED
from webhook.fair_queue import Entrance, Turns
from webhook.inbox import OWN_COST, Budget, Inbox, Refused

T = TypeVar("T")

log = structlog.stdlib.get_logger(__name__)
sparing = SparingLogger(log)

REFUSED = Counter(
    "drawbridge_refused_connections",
    "Connections refused before a review, by reason: tls, or the HTTP status.",
    ["reason"],
)
TLS = "tls"
for _reason in (TLS, "400", "411", "413", "414", "417", "431", "503"):
    REFUSED.labels(_reason)  # from zero on: a scraper cannot tell a first one from a new series

PIECE = 64 * 1024
"""Bytes that are received, sent or counted in one step of the event loop."""
OWN_BYTES = 128 * 1024
"""Bytes outside the budget, of a request that arrives."""
MOST_COST = 32 * 1024 * 1024
"""Bytes of the budget that any one request takes: what is longer than it needs to be is not decoded."""
DISCARDED = bytearray(1024 * 1024)
"""Never read, and with MSG_TRUNC never written: for what a refused client still sends."""
OPENED_FOR = 1.0
"""Seconds after a handshake in which a first request has waited since the connection was opened."""


@dataclass(frozen=True)
class Limits:
    """How long each step of a connection may take, in seconds."""

    first: float = 10.0
    """From being accepted to the end of the handshake."""
    idle: float = 95.0
    """Between requests. The API server keeps idle connections for 90 s, and must be the side that closes them."""
    request: float = 10.0
    """From a request's first byte to its last."""
    send: float = 5.0
    linger: float = 1.0
    """How long the client of a closed connection may go on sending."""
    life: float = 300.0
    """An older connection is closed after its next response, so that calls spread to new replicas."""


class Response(NamedTuple):
    data: bytes
    keeps: bool
    """Whether it announces that the connection stays open."""


class Lines(NamedTuple):
    """Turns to compute: of clients that were served before, of others, and for the large requests of both."""

    served: Turns
    newcomers: Turns
    large: Turns


@dataclass(frozen=True)
class Service:
    """What the connections of a server share."""

    pair: ServingPair
    limits: Limits
    budget: Budget
    entrance: Entrance
    lines: Lines
    respond: Callable[[dict[str, Any], bool], Response]
    """In a thread: answer a WSGI request; with False, announce that the connection is closed."""


class Connection:
    """Serves *sock* of *client*, an address."""

    def __init__(self, sock: socket.socket, client: str, service: Service) -> None:
        sock.setblocking(False)
        self.sock, self.client = sock, client
        self.is_idle = True
        """Whether it waits for its client, and no request is being answered."""
        self.deadline: float
        """When the worker cancels it; it has none while a request is being answered."""
        self._begin(service.limits.first)
        self._arrived = self.since
        self._service, self._limits = service, service.limits
        self._inbox, self._held = Inbox(), 0
        self._is_used = False
        # Jitter, so that connections opened together are not closed together.
        self._old_at = self.since + self._limits.life * random.uniform(0.8, 1.2)

    async def serve(self) -> None:
        """Until its end, which it reports if it is worth it."""
        try:
            await self._shake_hands()
            while await self._serve_request():
                pass
        except Refused as refused:
            await self._refuse(refused)
        except OSError as error:
            report_failure(self.client, error)
            if isinstance(error, ssl.SSLError):
                # A reset would take away the alert that says why the handshake failed.
                await self._linger()
        except Exception:
            log.exception("serving a connection failed", client=self.client)
        finally:
            self._hold(0)
            self.sock.close()

    def hurry(self, within: float) -> None:
        """The server is about to end: wait no longer than this for a next request."""
        if self.is_idle and not self._inbox:
            self.deadline = min(self.deadline, time.monotonic() + within)

    def _begin(self, limit: float) -> None:
        """Begin a step that may take *limit* seconds."""
        self.since = time.monotonic()
        self.deadline = self.since + limit

    async def _shake_hands(self) -> None:
        await ready(self.sock)  # those that only connect cost no more than that
        await self._step(self._continue_handshake)

    def _continue_handshake(self) -> None:
        if not isinstance(self.sock, ssl.SSLSocket):
            context = self._service.pair.context()
            self.sock = context.wrap_socket(self.sock, server_side=True, do_handshake_on_connect=False)
        self.sock.do_handshake()

    async def _serve_request(self) -> bool:
        """Receive a request and answer it; False when the connection is to be closed."""
        await self._receive()
        self.is_idle, self.deadline = False, inf
        response = await self._answer()
        self._begin(self._limits.send)
        await self._send(response.data)
        self._hold(len(self._inbox) - OWN_BYTES)
        self._is_used = self.is_idle = True
        if not response.keeps:
            await self._linger()
        return response.keeps

    async def _receive(self) -> None:
        if not self._inbox:
            # Go opens connections ahead of need, and a POST fails on one that is being closed: Go must close first.
            self._begin(self._limits.idle)
            data = await self._piece()
            if self._is_used or time.monotonic() - self.since > OPENED_FOR:
                self._arrived = time.monotonic()
            self._inbox.add(data)
        else:
            self._arrived = time.monotonic()
        self._begin(self._limits.request)
        while not self._inbox.is_whole():
            self._inbox.add(await self._piece())
            self._hold(len(self._inbox) - OWN_BYTES)

    async def _answer(self) -> Response:
        await self._account()
        keeps = self._inbox.head.keeps and time.monotonic() < self._old_at
        environ = self._inbox.environ(self.client) | {ARRIVED: self._arrived}
        self._inbox = self._inbox.rest()
        lines = self._service.lines
        line = lines.large if self._held else lines.served if self._is_used else lines.newcomers
        return await line.run(self.client, partial(self._service.respond, environ, keeps))

    async def _account(self) -> None:
        """For what decoding makes of the request, until it has been answered."""
        count = self._inbox.cost
        is_short = len(self._inbox) <= PIECE
        cost = count() if is_short else await self._service.lines.large.run(self.client, count)
        self._hold(min(cost, MOST_COST) - OWN_COST)

    async def _refuse(self, refused: Refused) -> None:
        """Answer without waiting for the client.

        Its memory is free before anything else: others would be refused in its place.
        """
        self._drop()
        report_refusal(self.client, refused)
        with suppress(OSError):
            self.sock.send(refused.response())
        await self._linger()

    async def _linger(self) -> None:
        """Close our side, and give the client time to read the response.

        Closing both sides while the client still sends makes the kernel reset the connection, and the response may
        be lost.
        """
        self._drop()
        self._begin(self._limits.linger)
        with suppress(OSError):
            half_close(self.sock)
            while not is_drained(self.sock):
                await ready(self.sock)

    async def _piece(self) -> bytes:
        # The first one of a client that was served before waits for no others.
        act, enters = partial(self.sock.recv, PIECE), bool(self._inbox) or not self._is_used
        data = await self._step(act, enters=enters)
        if not data:
            raise ConnectionResetError("the client closed the connection")
        return data

    async def _send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[await self._step(partial(self.sock.send, left[:PIECE]), enters=False) :]

    async def _step(self, act: Callable[[], T], *, enters: bool = True) -> T:
        """The result of *act*, which is tried as often as the socket is ready for it."""
        while True:
            try:
                return await self._service.entrance.run(self.client, act, enters=enters)
            except ssl.SSLWantReadError:
                await ready(self.sock)
            except ssl.SSLWantWriteError:
                await ready(self.sock, to_write=True)

    def _drop(self) -> None:
        self._inbox = Inbox()
        self._hold(0)

    def _hold(self, size: int) -> None:
        held = max(size, 0)
        self._service.budget.take(held - self._held)
        self._held = held


async def ready(sock: socket.socket, *, to_write: bool = False) -> None:
    """Wait until *sock* can be read from, or written to."""
    loop = asyncio.get_running_loop()
    number = sock.fileno()  # asyncio would ask the kernel for a socket's addresses
    event = loop.create_future()
    watch = loop.add_writer if to_write else loop.add_reader

    def happened() -> None:
        if not event.done():
            event.set_result(None)

    watch(number, happened)
    try:
        await event
    finally:
        (loop.remove_writer if to_write else loop.remove_reader)(number)


def half_close(sock: socket.socket) -> None:
    """Close our side; from now on, *sock* is readable when the client has closed its own, or has sent very much."""
    sock.shutdown(socket.SHUT_WR)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(DISCARDED) // 4)


def is_drained(sock: socket.socket) -> bool:
    """Discard what the client sends after `half_close`; True when it has closed its side, too.

    Nothing is deciphered for it, nor copied from the kernel: of a large body, the most may be still to come.
    """
    try:
        return not socket.socket.recv_into(sock, DISCARDED, 0, socket.MSG_TRUNC)
    except BlockingIOError:
        return False


def report_refusal(client: str, refused: Refused) -> None:
    REFUSED.labels(refused.status).inc()
    sparing.warning("request refused", client=client, status=refused.args[0])


def report_failure(client: str, error: OSError) -> None:
    """A client that refuses our certificate is worth a warning; one that leaves is not."""
    # ENOTCONN: Python found the connection reset, with part of a handshake in it.
    has_left = isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)) or error.errno == errno.ENOTCONN
    if isinstance(error, ssl.SSLError) and not has_left:
        REFUSED.labels(TLS).inc()
        sparing.warning("TLS failed", client=client, error=str(error))
    else:
        log.debug("connection dropped", client=client, error=str(error))
