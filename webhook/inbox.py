"""What has arrived on a connection: whether it is a whole request, and what it takes to decode it."""

import re
from collections.abc import Iterator

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
        self.cost = 0
        """Bytes of memory for what has arrived, when it is decoded, at most."""
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
        self.cost += len(data) + _cost_of_parts(data)

    def cost_of_whole(self) -> int:
        """As *cost*, without what strings contain: any of them may be text with many commas."""
        body = self._data[self._begin : self._whole]
        return len(self._data) + sum(map(_cost_of_parts, outside_strings(body)))

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


def _cost_of_parts(data: bytes) -> int:
    return sum(data.count(part) * size for part, size in PARTS.items())


def _size(head: bytes, begin: int) -> int:
    """The bytes to wait for, of a request whose body has its *begin* after this *head*."""
    if b"\r\nexpect:" in head:
        raise Refused("417 Expectation Failed", "send the body at once, without an Expect header")
    if b"\r\ntransfer-encoding:" in head:
        raise Refused("411 Length Required", "send the body with a Content-Length, not in chunks")
    length = re.search(rb"\r\ncontent-length:[ \t]*(\d{1,18})", head)
    return begin if length is None or int(length[1]) > MAX_BODY else begin + int(length[1])
