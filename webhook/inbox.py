"""The bytes of a client until they are a whole request: read strictly, and priced in memory before they are decoded."""

import re
import sys
from collections.abc import Iterator
from io import BytesIO
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from webhook.admission import MAX_BODY

MAX_HEAD, MAX_LINE, MAX_FIELDS = 16 * 1024, 4094, 50
HEAD_END = b"\r\n\r\n"
TOKEN = rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+)"
LINE = re.compile(TOKEN + rb" ([!-~]+) HTTP/1\.([01])")
FIELD = re.compile(TOKEN + rb":[ \t]*([\t -~\x80-\xff]*)")
PARTS = {b"{": 384, b"[": 128, b",": 112}
"""Bytes of memory that each of these takes in a body, at most and with the copies of a decision, beside its own."""
CHUNK = 64 * 1024
FREE_PIECES, LEAST_PIECE = 64, 256
"""A request may come in so many pieces of any size; more of them must have so many bytes on average."""
OWN_COST = 512 * 1024
"""Bytes outside the budget for a request that is served: enough for nearly every review, so that large ones crowd
out only each other."""

ENVIRON = {
    "SCRIPT_NAME": "",
    "SERVER_NAME": "localhost",
    "SERVER_PORT": "443",
    "SERVER_PROTOCOL": "HTTP/1.1",
    "wsgi.version": (1, 0),
    "wsgi.url_scheme": "https",
    "wsgi.errors": sys.stderr,
    "wsgi.input_terminated": True,
    "wsgi.multithread": True,
    "wsgi.multiprocess": False,
    "wsgi.run_once": False,
}
"""What an application may ask for, and every request has."""


class Refused(Exception):
    """The request is refused before it is served; the arguments are status, message and headers."""

    @property
    def status(self) -> str:
        """The number alone."""
        return str(self.args[0])[:3]

    def response(self) -> bytes:
        status, message, *headers = self.args
        known = ("Connection: close", "Content-Type: text/plain", f"Content-Length: {len(message) + 1}")
        return "\r\n".join([f"HTTP/1.1 {status}", *known, *headers, "", f"{message}\n"]).encode()


class Budget:
    """Bytes of memory that large requests of all connections of a process may take together."""

    def __init__(self, size: int) -> None:
        self._left = size

    def take(self, size: int) -> None:
        """Take *size* bytes, or return them when it is negative; Refused when there are too few."""
        if size > self._left:
            why = "too many large requests are being served; try again"
            raise Refused("503 Service Unavailable", why, "Retry-After: 1")
        self._left -= size


class Head(NamedTuple):
    """What stands before a body."""

    method: str
    target: str
    fields: dict[str, str]
    """By their names in lower case; those of one name joined."""
    keeps: bool
    """Whether the client may send another request on the connection."""

    def length(self) -> int:
        """Bytes of the body; Refused for what would make us wait within a request and the API server never sends."""
        if "expect" in self.fields:
            raise Refused("417 Expectation Failed", "send the body at once, without an Expect header")
        if "transfer-encoding" in self.fields:
            raise Refused("411 Length Required", "send the body with a Content-Length, not in chunks")
        length = self.fields.get("content-length", "0")
        if not re.fullmatch("[0-9]{1,18}", length):
            raise Refused("400 Bad Request", "the Content-Length is not one number")
        return int(length)


def head_of(data: bytes) -> Head:
    """Refused unless it is a request of HTTP/1.0 or 1.1 to the letter."""
    line, *lines = data.split(b"\r\n")
    if len(line) > MAX_LINE:
        raise Refused("414 URI Too Long", f"the request line is over {MAX_LINE} bytes")
    if len(lines) > MAX_FIELDS:
        raise Refused("431 Request Header Fields Too Large", f"there are over {MAX_FIELDS} headers")
    found, fields = LINE.fullmatch(line), dict[str, str]()
    for each in lines:
        field = FIELD.fullmatch(each)
        if field is None:
            raise Refused("400 Bad Request", "a header is malformed")
        name, value = field[1].decode().lower(), field[2].decode("latin-1").rstrip(" \t")
        fields[name] = f"{fields[name]},{value}" if name in fields else value
    if found is None:
        raise Refused("400 Bad Request", "this is not a request of HTTP/1.1")
    keeps = found[3] == b"1" and "close" not in fields.get("connection", "").lower()
    return Head(found[1].decode(), found[2].decode(), fields, keeps)


class Inbox:
    """The bytes of one request, and of what follows it; each of them is looked at once."""

    def __init__(self, data: bytes = b"") -> None:
        self._data = bytearray()
        self._pieces = self._searched = self._begin = self._end = 0
        self.head = Head("", "", {}, keeps=False)
        """Once the request is whole."""
        if data:
            self.add(data)

    def __len__(self) -> int:
        return len(self._data)

    def add(self, data: bytes) -> None:
        """Refused for what comes in too many pieces: each of them costs as much as a large one."""
        self._data += data
        self._pieces += 1
        if self._pieces > FREE_PIECES + len(self._data) // LEAST_PIECE:
            raise Refused("400 Bad Request", "send the request in larger TLS records")

    def is_whole(self) -> bool:
        """Whether the request can be served without waiting for its client; Refused when it must not be.

        A body that is too large is not waited for: the application refuses it by its length.
        """
        if not self._end:
            end = self._data.find(HEAD_END, self._searched, MAX_HEAD)
            self._searched = max(len(self._data) - len(HEAD_END) + 1, 0)
            if end < 0:
                self._check_size()
                return False
            self.head = head_of(bytes(self._data[:end]))
            length = self.head.length()
            self._begin = end + len(HEAD_END)
            self._end = self._begin + (length if length <= MAX_BODY else 0)
        return len(self._data) >= self._end

    def _check_size(self) -> None:
        if len(self._data) > MAX_LINE and b"\r\n" not in self._data[: MAX_LINE + 2]:
            raise Refused("414 URI Too Long", f"the request line is over {MAX_LINE} bytes")
        if len(self._data) >= MAX_HEAD:
            raise Refused("431 Request Header Fields Too Large", f"the headers are over {MAX_HEAD} bytes")

    def cost(self) -> int:
        """Bytes of memory for what has arrived, when it is decoded, at most.

        Of a large one without what strings contain: any of them may be text with many commas.
        """
        parts = _cost_of_parts(self._data)
        if len(self._data) + parts > OWN_COST:
            parts = sum(map(_cost_of_parts, outside_strings(self._data[self._begin : self._end])))
        return len(self._data) + parts

    def environ(self, client: str) -> dict[str, Any]:
        """Of the request, once it is whole, as WSGI has it; of its headers those of the body only."""
        path, _, query = self.head.target.partition("?")
        return {
            **ENVIRON,
            "REQUEST_METHOD": self.head.method,
            "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.head.fields.get("content-type", ""),
            "CONTENT_LENGTH": self.head.fields.get("content-length", ""),
            "REMOTE_ADDR": client,
            "wsgi.input": BytesIO(memoryview(self._data)[self._begin : self._end]),
        }

    def rest(self) -> "Inbox":
        """What follows the request."""
        return Inbox(bytes(self._data[self._end :]))


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
