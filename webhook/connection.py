"""One client's connection: whole requests are taken in with no thread waiting, and in bounded memory."""

import random
import re
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gunicorn.http import get_parser

from certs.cert_watcher import ServingPair
from webhook.admission import MAX_BODY

# gunicorn's parser refuses a request line and headers long before this; it is then let to say so.
MAX_HEAD = 64 * 1024
RECV_SIZE = 64 * 1024
# Enough for nearly every review: senders of large bodies can crowd out each other, but not these.
OWN_SHARE = 128 * 1024
OPENED_FOR = 1.0
"""Seconds after its handshake in which a connection's first request is what it was opened for."""


@dataclass(frozen=True)
class Limits:
    """How long each step of a connection may take, in seconds."""

    first: float = 10.0
    """From being accepted to the end of the handshake."""
    request: float = 10.0
    """From a request's first byte to its last."""
    send: float = 5.0
    linger: float = 1.0
    """How long a closed connection's client may go on sending before it is cut off."""
    life: float = 300.0
    """An older connection is closed after its next response, so that calls spread to new replicas."""


class Refused(Exception):
    """What a client sends is not taken in."""

    def response(self) -> bytes:
        status, message, *headers = self.args
        known = ("Connection: close", "Content-Type: text/plain", f"Content-Length: {len(message) + 1}")
        return "\r\n".join([f"HTTP/1.1 {status}", *known, *headers, "", f"{message}\n"]).encode()


class Budget:
    """How many bytes of large requests all connections of a process may hold together."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Take *size* bytes, or give them back when it is negative; raises Refused when they are not there."""
        with self._lock:
            if size > self._left:
                why = "too many large bodies are being sent; try again"
                raise Refused("503 Service Unavailable", why, "Retry-After: 1")
            self._left -= size


class Connection:
    """What gunicorn's thread worker expects of a connection, and a buffer in front of its parser."""

    # The thread worker asks; we never speak HTTP/2, and a request has arrived before a thread sees it.
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
        self._inbox, self._budget, self._budgeted = bytearray(), budget, 0
        self._begin(limits.first)
        self.arrived = self.since
        """When its client began to wait for the answer that comes next: the client's own timeout runs from there."""
        self.used = False
        """Whether a request has been served."""
        # Jitter, so that connections opened together are not all opened again together.
        self._old_at = self.since + limits.life * random.uniform(0.8, 1.2)  # noqa: S311 - no secret

    def receive(self) -> bool:
        """Take in what has arrived; True when that is a request whole enough to be served.

        Raises OSError when the client has gone, does not speak TLS, or is late; Refused when it is to be told.
        """
        # After a request the socket is still a blocking one, and part of a next request may be here.
        self.sock.setblocking(False)
        try:
            if self.parser is None:
                self._shake_hands()
            while not is_whole(self._inbox):
                self._take()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if time.monotonic() > self.timeout:
                raise TimeoutError("the client is too slow") from None
            return False
        return True

    def refuse(self, refused: Refused) -> None:
        """Say why, without waiting for a client that does not listen."""
        with suppress(OSError):
            self.sock.send(refused.response())

    def init(self) -> None:
        """Called in a thread, after gunicorn made the socket a blocking one, before a request is parsed."""
        self.sock.settimeout(self.limits.send)

    def recv(self, size: int) -> bytes:
        """What the parser reads from: only what is here. Nothing more, to it, is a client that has left."""
        data = bytes(self._inbox[:size])
        del self._inbox[:size]
        return data

    def has_more(self) -> bool:
        """Whether part of a next request is here already, where the poller cannot see it."""
        self._inbox[:0] = self.parser.unreader.take_buffered()
        self._hold(len(self._inbox))
        return bool(self._inbox or self.sock.pending())

    def is_idle(self) -> bool:
        """Whether nothing of a request has come: a client may open a connection ahead of its need."""
        return self.parser is not None and not self._inbox

    def is_old(self) -> bool:
        return time.monotonic() > self._old_at

    def set_timeout(self) -> None:
        """Begin an idle time: before a request, or after one."""
        self._begin(float(self.cfg.keepalive))

    def note_arrival(self) -> None:
        """A request begins after an idle time; the connection may have been opened for it a moment ago."""
        now = time.monotonic()
        if self.used or now - self.since > OPENED_FOR:
            self.arrived = now

    def half_close(self) -> None:
        """Say that no more will be sent, and begin the time in which the client may notice.

        Closing at once while the client still sends would have the kernel reset the connection, and the
        client might never read the response.
        """
        self.sock.shutdown(socket.SHUT_WR)
        self.sock.setblocking(False)
        self._inbox.clear()
        self._hold(0)
        self._begin(self.limits.linger)

    def is_drained(self) -> bool:
        """Throw away what a client sends after `half_close`; True when it has closed its side, too."""
        try:
            return not self.sock.recv(RECV_SIZE)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self._hold(0)
        self.sock.close()

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
        # Go opens connections ahead of its need, and fails a POST on one that is being closed: it must close first.
        self.set_timeout()

    def _take(self) -> None:
        data = self.sock.recv(RECV_SIZE)
        if not data:
            raise ConnectionResetError("the client closed the connection")
        if not self._inbox:
            self._begin(self.limits.request)
        self._hold(len(self._inbox) + len(data))
        self._inbox += data

    def _hold(self, size: int) -> None:
        """Account for *size* bytes, from their arrival until their request has been answered."""
        budgeted = max(size - OWN_SHARE, 0)
        self._budget.take(budgeted - self._budgeted)
        self._budgeted = budgeted


def is_whole(data: bytearray) -> bool:
    """Whether a request can be served without waiting for its client.

    Only a hint for when to hand it to a thread: what the bytes mean is the parser's business, and so is a
    request that it will refuse. Raises Refused for what would keep a thread waiting in the midst of a request
    and the API server never sends.
    """
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return len(data) > MAX_HEAD
    head = bytes(data[:end]).lower()
    if b"\r\nexpect:" in head:
        raise Refused("417 Expectation Failed", "send the body at once, without an Expect header")
    if b"\r\ntransfer-encoding:" in head:
        raise Refused("411 Length Required", "send the body with a Content-Length, not in chunks")
    length = re.search(rb"\r\ncontent-length:[ \t]*(\d{1,18})", head)
    return length is None or int(length[1]) > MAX_BODY or len(data) >= end + 4 + int(length[1])
