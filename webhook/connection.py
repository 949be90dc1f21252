"""One client's connection: TLS and whole requests are taken in without a thread waiting for a slow client."""

import random
import re
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any

from gunicorn.http import get_parser

from certs.serve import ServingPair
from webhook.admission import MAX_BODY

# gunicorn's parser refuses a request line and headers long before this; it is then let to say so.
MAX_HEAD = 64 * 1024
RECV_SIZE = 64 * 1024


@dataclass(frozen=True)
class Limits:
    """How long each step of a connection may take, in seconds."""

    handshake: float = 5.0
    request: float = 10.0
    """From a request's first byte to its last."""
    send: float = 5.0
    linger: float = 1.0
    """How long a closed connection's client may go on sending before it is cut off."""
    life: float = 300.0
    """An older connection is closed after its next response, so that calls spread to new replicas."""


class Connection:
    """What gunicorn's thread worker expects of a connection, and a buffer in front of its parser."""

    # The thread worker asks; we never speak HTTP/2, and a request has arrived before a thread sees it.
    is_http2 = False
    data_ready = True
    initialized = True

    def __init__(
        self, cfg: Any, sock: socket.socket, addresses: tuple[Any, Any], pair: ServingPair, limits: Limits
    ) -> None:
        self.cfg = cfg
        self.sock: Any = sock  # an ssl.SSLSocket from the handshake on
        self.client, self.server = addresses
        self.limits = limits
        self.parser: Any = None
        self._pair = pair
        self._inbox = bytearray()
        now = time.monotonic()
        self.timeout = now + limits.handshake
        # Jitter, so that connections opened together are not all opened again together.
        self._old_at = now + limits.life * random.uniform(0.8, 1.2)  # noqa: S311 - no secret
        sock.setblocking(False)

    def receive(self) -> bool:
        """Take in what has arrived; True when that is a request whole enough to be served.

        Raises OSError when the client has gone, does not speak TLS, or is late.
        """
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

    def init(self) -> None:
        """Called in a thread, after gunicorn made the socket a blocking one, before a request is parsed."""
        self.sock.settimeout(self.limits.send)

    def recv(self, size: int) -> bytes:
        """What the parser reads from: the buffer, then for the odd chunked body the client itself."""
        if not self._inbox:
            self.sock.settimeout(max(self.timeout - time.monotonic(), 0.001))
            try:
                self._inbox += self.sock.recv(RECV_SIZE)
            except TimeoutError:
                # To the thread worker this is a client that left, and not worth a traceback.
                raise ConnectionResetError("the client is too slow") from None
            finally:
                self.sock.settimeout(self.limits.send)
        data = bytes(self._inbox[:size])
        del self._inbox[:size]
        return data

    def has_more(self) -> bool:
        """Whether part of a next request is here already, where the poller cannot see it."""
        self._inbox[:0] = self.parser.unreader.take_buffered()
        return bool(self._inbox or self.sock.pending())

    def is_idle(self) -> bool:
        """Whether nothing of a request has come: a client may open a connection ahead of its need."""
        return self.parser is not None and not self._inbox

    def is_old(self) -> bool:
        return time.monotonic() > self._old_at

    def set_timeout(self) -> None:
        """Begin an idle time."""
        self.sock.setblocking(False)
        self.timeout = time.monotonic() + float(self.cfg.keepalive)

    def half_close(self) -> None:
        """Say that no more will be sent, and begin the time in which the client may notice.

        Closing at once while the client still sends would have the kernel reset the connection, and the
        client might never read the response.
        """
        self.sock.shutdown(socket.SHUT_WR)
        self.sock.setblocking(False)
        self.timeout = time.monotonic() + self.limits.linger

    def is_drained(self) -> bool:
        """Throw away what a client sends after `half_close`; True when it has closed its side, too."""
        try:
            return not self.sock.recv(RECV_SIZE)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self.sock.close()

    def _shake_hands(self) -> None:
        if not isinstance(self.sock, ssl.SSLSocket):
            self.sock = self._pair.context().wrap_socket(
                self.sock, server_side=True, do_handshake_on_connect=False
            )
        self.sock.do_handshake()
        self.parser = get_parser(self.cfg, self, self.client)
        self.set_timeout()

    def _take(self) -> None:
        data = self.sock.recv(RECV_SIZE)
        if not data:
            raise ConnectionResetError("the client closed the connection")
        if not self._inbox:
            self.timeout = time.monotonic() + self.limits.request
        self._inbox += data


def is_whole(data: bytearray) -> bool:
    """Whether a request can be served without waiting for its client.

    Only a hint for when to hand it to a thread: what the bytes mean is the parser's business, and so is a
    request that it will refuse.
    """
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return len(data) > MAX_HEAD
    head = bytes(data[:end]).lower()
    if b"\r\nexpect:" in head:
        return True  # the client sends its body only after it was asked for it
    if b"\r\ntransfer-encoding:" in head:
        return data.endswith(b"0\r\n\r\n") or len(data) > MAX_BODY
    length = re.search(rb"\r\ncontent-length:[ \t]*(\d{1,18})", head)
    return length is None or int(length[1]) > MAX_BODY or len(data) >= end + 4 + int(length[1])
