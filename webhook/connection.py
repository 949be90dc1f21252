"""One client's connection: reads whole requests without a waiting thread, in bounded memory."""

import enum
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gunicorn.http import get_parser

from certs.cert_watcher import ServingPair
from runtime import random, threading, time
from webhook.inbox import Inbox, Refused

RECV_SIZE = 64 * 1024
READS = 16
"""Of one turn; each is a TLS record. A client that sends more lines up again behind the others."""
OWN_BYTES, OWN_COST = 128 * 1024, 512 * 1024
"""Bytes outside the budget, of a request that arrives and of one that is served: enough for nearly every review, so
that large ones crowd out only each other."""
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
    request: float = 10.0
    """From a request's first byte to its last."""
    send: float = 5.0
    linger: float = 1.0
    """How long the client of a closed connection may go on sending."""
    life: float = 300.0
    """An older connection is closed after its next response, so that calls spread to new replicas."""


class Budget:
    """Bytes of memory that large requests of all connections of a process may take together."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Take *size* bytes, or return them when it is negative; Refused when there are too few."""
        with self._lock:
            if size > self._left:
                why = "too many large requests are being served; try again"
                raise Refused("503 Service Unavailable", why, "Retry-After: 1")
            self._left -= size


class Arrival(enum.Enum):
    """Of a request, after a turn of reading."""

    WHOLE = enum.auto()
    PART = enum.auto()
    MORE = enum.auto()
    """Part of it, and more may be here already, where the poller cannot see it."""


class Connection:
    """A connection as gunicorn's thread worker expects it, with a buffer in front of the parser."""

    # Read by the thread worker: no HTTP/2, and a request has arrived before a thread handles it.
    is_http2 = False
    data_ready = True
    initialized = True

    def __init__(
        self,
        cfg: Any,
        sock: socket.socket,
        addresses: tuple[Any, Any],
        pair: ServingPair,
        limits: Limits,
        budget: Budget,
    ) -> None:
        self.cfg = cfg
        self.sock: Any = sock  # an ssl.SSLSocket from the handshake on
        self.client, self.server = addresses
        self.limits = limits
        self.parser: Any = None
        self._pair = pair
        self._inbox, self._budget, self._budgeted = Inbox(), budget, 0
        self._begin(limits.first)
        self.arrived = self.since
        """When its client began to wait for the next answer: the client's timeout counts from there."""
        self.used = False
        """Whether a request has been served."""
        # Jitter, so that connections opened together are not closed together.
        self._old_at = self.since + limits.life * random.uniform(0.8, 1.2)

    def receive(self) -> Arrival:
        """Read a limited part of what has arrived.

        OSError when the client has gone, does not speak TLS, or is late; Refused when it gets an answer.
        """
        # After a request the socket is still blocking, and part of a next request may be here.
        self.sock.setblocking(False)
        try:
            if self.parser is None:
                self._shake_hands()
            for _ in range(READS):
                if self._inbox.is_whole():
                    return self._whole()
                self._take()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._check_time()
            return Arrival.PART
        self._check_time()
        return self._whole() if self._inbox.is_whole() else Arrival.MORE

    def refuse(self, refused: Refused) -> None:
        """Answer without waiting for the client.

        Its memory is free at once: until the main loop comes to it, others would be refused in its place.
        """
        self._drop()
        with suppress(OSError):
            self.sock.send(refused.response())

    def init(self) -> None:
        """Called in a thread, after gunicorn made the socket blocking, before a request is parsed."""
        self.sock.settimeout(self.limits.send)

    def recv(self, size: int) -> bytes:
        """The parser reads from here, what has arrived only; an empty answer means a client that has left."""
        return self._inbox.take(size)

    def has_more(self) -> bool:
        """Whether part of a next request is buffered, where the poller cannot see it."""
        self._inbox = Inbox(self.parser.unreader.take_buffered() + self._inbox.take())
        self._hold(self._inbox.cost)
        return bool(self._inbox or self.sock.pending())

    def is_idle(self) -> bool:
        """Whether no part of a request has come: clients open connections ahead of need."""
        return self.parser is not None and not self._inbox

    def is_partial(self) -> bool:
        return bool(self._inbox)

    def is_large(self) -> bool:
        """Whether its request takes a part of the budget."""
        return self._budgeted > 0

    def is_old(self) -> bool:
        return time.monotonic() > self._old_at

    def set_timeout(self) -> None:
        """Begin an idle time, before or after a request."""
        self._begin(float(self.cfg.keepalive))

    def note_arrival(self) -> None:
        """A request begins; the connection may have been opened for it a moment ago."""
        now = time.monotonic()
        if self.used or now - self.since > OPENED_FOR:
            self.arrived = now

    def half_close(self) -> None:
        """Close our side, and give the client time to read the response.

        Closing both sides while the client still sends makes the kernel reset the connection, and the response may
        be lost.
        """
        self.sock.shutdown(socket.SHUT_WR)
        self.sock.setblocking(False)
        # The end of the stream is always an event; of what is thrown away, one in so many bytes is enough.
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(DISCARDED) // 4)
        self._drop()
        self._begin(self.limits.linger)

    def is_drained(self) -> bool:
        """Discard what the client sends after `half_close`; True when it has closed its side, too.

        Nothing is deciphered for it, nor copied from the kernel: of a large body, the most may be still to come.
        """
        try:
            return not socket.socket.recv_into(self.sock, DISCARDED, 0, socket.MSG_TRUNC)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self._hold(0)
        self.sock.close()

    def _drop(self) -> None:
        self._inbox = Inbox()
        self._hold(0)

    def _begin(self, limit: float) -> None:
        """Begin a step that may take *limit* seconds."""
        self.since = time.monotonic()
        self.timeout = self.since + limit

    def _shake_hands(self) -> None:
        if not isinstance(self.sock, ssl.SSLSocket):
            self.sock = self._pair.context().wrap_socket(
                self.sock, server_side=True, do_handshake_on_connect=False
            )
        self.sock.do_handshake()
        self.parser = get_parser(self.cfg, self, self.client)
        # Go opens connections ahead of need, and a POST fails on one that is being closed: Go must close first.
        self.set_timeout()

    def _take(self) -> None:
        data = self.sock.recv(RECV_SIZE)
        if not data:
            raise ConnectionResetError("the client closed the connection")
        if not self._inbox:
            self._begin(self.limits.request)
        self._inbox.add(data)
        self._hold(len(self._inbox) - OWN_BYTES)

    def _whole(self) -> Arrival:
        """Account for what decoding makes of the request, until it has been answered."""
        cost = self._inbox.cost
        if cost > OWN_COST:
            cost = min(self._inbox.cost_of_whole(), MOST_COST)
        self._hold(cost - OWN_COST)
        return Arrival.WHOLE

    def _check_time(self) -> None:
        if time.monotonic() > self.timeout:
            raise TimeoutError("the client is too slow")

    def _hold(self, size: int) -> None:
        budgeted = max(size, 0)
        self._budget.take(budgeted - self._budgeted)
        self._budgeted = budgeted
