"""One client's connection: reads whole requests without a waiting thread, in bounded memory."""

import enum
import errno
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import structlog
from gunicorn.http import get_parser
from prometheus_client import Counter

from certs.cert_watcher import ServingPair
from kube.waiting import give_up
from runtime import random, threading, time
from telemetry.logs import SparingLogger
from webhook.admission import MAX_BODY

MAX_HEAD = 64 * 1024
"""gunicorn's parser refuses a request line and headers long before this, with an answer."""
HEAD_END = b"\r\n\r\n"
PARTS = {b"{": 384, b"[": 128, b",": 112}
"""Bytes of memory that each of these takes in a body, at most and with the copies of a decision, beside its own."""
CHUNK = 64 * 1024
FREE_PIECES, LEAST_PIECE = 64, 256
"""A request may come in so many pieces of any size; more of them must have so many bytes on average."""


class Refused(Exception):
    """The request is refused before it is parsed; the arguments are status, message and headers."""

    @property
    def status(self) -> str:
        """The number alone."""
        return str(self.args[0])[:3]

    def response(self) -> bytes:
        status, message, *headers = self.args
        known = ("Connection: close", "Content-Type: text/plain", f"Content-Length: {len(message) + 1}")
        return "\r\n".join([f"HTTP/1.1 {status}", *known, *headers, "", f"{message}\n"]).encode()


class Inbox:
    """The bytes of one request, and of what follows it; each of them is looked at once."""

    def __init__(self, data: bytes = b"") -> None:
        self._data = bytearray()
        self._pieces = self._arrived = self._searched = 0
        self._begin = 0
        self._whole: int | None = None
        if data:
            self.add(data)

    def __len__(self) -> int:
        return len(self._data)

    def add(self, data: bytes) -> None:
        """Refused for what comes in too many pieces: each of them costs as much as a large one."""
        self._data += data
        self._arrived += len(data)
        self._pieces += 1
        if self._pieces > FREE_PIECES + self._arrived // LEAST_PIECE:
            raise Refused("400 Bad Request", "send the request in larger TLS records")

    def cost(self) -> int:
        """Bytes of memory for what has arrived, when it is decoded, at most.

        Of a large one without what strings contain: any of them may be text with many commas.
        """
        parts = _cost_of_parts(self._data)
        if len(self._data) + parts > OWN_COST:
            parts = sum(map(_cost_of_parts, outside_strings(self._data[self._begin : self._whole])))
        return len(self._data) + parts

    def take(self, size: int | None = None) -> bytes:
        """The first *size* bytes, or all."""
        data = bytes(self._data[:size])
        del self._data[:size]
        return data

    def is_whole(self) -> bool:
        """Whether the request can be served without waiting for its client.

        A hint for when to hand it to a thread; parsing and refusing are the parser's. Refused for what would make a
        thread wait within a request and the API server never sends.
        """
        if self._whole is None and (end := self._data.find(HEAD_END, self._searched)) >= 0:
            self._begin = end + len(HEAD_END)
            self._whole = _size(bytes(self._data[:end]).lower(), self._begin)
        self._searched = max(len(self._data) - len(HEAD_END) + 1, 0)
        return len(self._data) > MAX_HEAD if self._whole is None else len(self._data) >= self._whole


def outside_strings(body: bytes | bytearray) -> Iterator[bytes]:
    """What of *body*, as long as it is JSON, is in no string; in chunks."""
    inside, cut = False, b""
    for begin in range(0, len(body), CHUNK):
        chunk = (cut + body[begin : begin + CHUNK]).replace(b"\\\\", b"")
        cut = b"\\" if chunk.endswith(b"\\") else b""
        pieces = chunk.replace(b'\\"', b"").split(b'"')
        yield b"".join(pieces[inside::2])
        inside ^= len(pieces) % 2 == 0


def _cost_of_parts(data: bytes | bytearray) -> int:
    return sum(data.count(part) * size for part, size in PARTS.items())


def _size(head: bytes, begin: int) -> int:
    """The bytes to wait for, of a request whose body has its *begin* after this *head*."""
    if b"\r\nexpect:" in head:
        raise Refused("417 Expectation Failed", "send the body at once, without an Expect header")
    if b"\r\ntransfer-encoding:" in head:
        raise Refused("411 Length Required", "send the body with a Content-Length, not in chunks")
    length = re.search(rb"\r\ncontent-length:[ \t]*(\d{1,18})", head)
    return begin if length is None or int(length[1]) > MAX_BODY else begin + int(length[1])


log = structlog.stdlib.get_logger(__name__)
sparing = SparingLogger(log)

REFUSED = Counter(
    "drawbridge_refused_connections",
    "Connections refused before a review, by reason: tls, or the HTTP status.",
    ["reason"],
)
TLS = "tls"
for _reason in (TLS, "400", "411", "413", "417", "503"):
    REFUSED.labels(_reason)  # from zero on: a scraper cannot tell a first one from a new series


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


class Socket(Protocol):
    def sendall(self, data: bytes, /) -> None: ...


class Joined:
    """The socket of a response that has a body: gunicorn sends the head first, in a separate TLS record.

    Each is a system call, for which the thread gives up the interpreter, and wakes the client.
    """

    def __init__(self, sock: Socket) -> None:
        self._sock = sock
        self._head: bytes | None = None

    def sendall(self, data: bytes) -> None:
        if self._head is None:
            self._head = data
        else:
            give_up()
            self._sock.sendall(self._head + data)
            self._head = b""


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


class Next(enum.Enum):
    """What follows for a connection after a turn."""

    SERVE = enum.auto()
    """Its request is whole."""
    WAIT = enum.auto()
    AGAIN = enum.auto()
    """More of its request may be here already, where the poller cannot see it."""
    KEEP = enum.auto()
    LINGER = enum.auto()
    CLOSE = enum.auto()


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

    def receive(self) -> Next:
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
            return Next.WAIT
        self._check_time()
        return self._whole() if self._inbox.is_whole() else Next.AGAIN

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
        self._hold(len(self._inbox) - OWN_BYTES)
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

    def _whole(self) -> Next:
        """Account for what decoding makes of the request, until it has been answered."""
        self._hold(min(self._inbox.cost(), MOST_COST) - OWN_COST)
        return Next.SERVE

    def _check_time(self) -> None:
        if time.monotonic() > self.timeout:
            raise TimeoutError("the client is too slow")

    def _hold(self, size: int) -> None:
        budgeted = max(size, 0)
        self._budget.take(budgeted - self._budgeted)
        self._budgeted = budgeted
