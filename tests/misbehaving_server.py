"""A real HTTP server on the loopback that answers as a test says: late, in part, wrongly or not at all."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from urllib3 import PoolManager

from dev.fake_api.calls import Request
from dev.lab.waiting import stretch
from kube.client import Client
from kube.connection import POOL_SIZE, Connection


@dataclass(frozen=True)
class Asked(Request):
    """A request as it arrived; *at* is on time.monotonic()."""

    port: int = 0
    at: float = field(default_factory=time.monotonic)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def _any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        content = self.rfile.read(length)
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        asked = Asked(
            self.command,
            url.path,
            query,
            {name.lower(): value for name, value in self.headers.items()},
            decoded(content),
            self.client_address[1],
        )
        self.server.asked.append(asked)
        self.server.answer(asked)(self)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any  # noqa: N815

    def do_CONNECT(self) -> None:
        """Refuse it: what a proxy is asked for is all that tests look at."""
        self.server.asked.append(Asked("CONNECT", self.path))
        self.send_error(502)

    def start_lines(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def line(self, content: bytes) -> None:
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")

    def log_message(self, *_: object) -> None:
        pass


def decoded(content: bytes) -> object:
    """As JSON, or as it is; nothing when there is nothing."""
    try:
        return json.loads(content)
    except ValueError:
        return content or None


Answer = Callable[[Handler], None]


class Server(ThreadingHTTPServer):
    """Answers with *answer*, a function of the request; replace it at any time."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, answer: Callable[[Asked], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.asked: list[Asked] = []
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def lists(self) -> list[Asked]:
        return [asked for asked in self.asked if not asked.watches]

    @property
    def watches(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.watches]

    def client(self, *, timeout: float | None = None) -> Client:
        return Client(
            Connection(self.url, PoolManager(maxsize=POOL_SIZE)), timeout=timeout or 2.0 * stretch()
        )

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # our clients hang up on purpose


@contextmanager
def serving(answer: Callable[[Asked], Answer]) -> Iterator[Server]:
    with Server(answer) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.closing.set()
        server.shutdown()


def in_turn(*answers: Answer) -> Callable[[Asked], Answer]:
    """Each once, then the last one for ever."""
    left = deque(answers)
    return lambda asked: left.popleft() if len(left) > 1 else left[0]


def lists_and_watches(
    lists: Callable[[Asked], Answer], watches: Callable[[Asked], Answer]
) -> Callable[[Asked], Answer]:
    return lambda asked: (watches if asked.watches else lists)(asked)


def answers(body: object, status: int = 200, **headers: str) -> Answer:
    """*body* as JSON, or as it is when bytes."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def send(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return send


def refuses(status: int, reason: str, message: str = "no", **headers: str) -> Answer:
    return answers(
        {"kind": "Status", "status": "Failure", "code": status, "reason": reason, "message": message},
        status,
        **headers,
    )


def hangs(handler: Handler) -> None:
    """Neither answers nor hangs up."""
    handler.server.closing.wait(30)
    handler.close_connection = True


def resets(handler: Handler) -> None:
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


def closes(handler: Handler) -> None:
    handler.close_connection = True


def sends(content: bytes, then: Answer = closes) -> Answer:
    """These very bytes, and then as *then* says."""

    def send(handler: Handler) -> None:
        handler.wfile.write(content)
        then(handler)

    return send


def drips(begin: bytes) -> Answer:
    """*begin* at once, then a byte at a time, for 20 s."""

    def send(handler: Handler) -> None:
        handler.wfile.write(begin)
        for _ in range(400):
            if handler.server.closing.wait(0.05):
                break
            handler.wfile.write(b"x")

    return send


def breaks_off(content: bytes) -> Answer:
    """Promises more than *content*, then hangs up."""

    def send(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content) + 100))
        handler.end_headers()
        handler.wfile.write(content)
        handler.close_connection = True

    return send


def ends(handler: Handler) -> None:
    """The proper end of a watch."""
    handler.line(b"")


def trickles(content: bytes, *, pause: float, then: Answer = ends) -> Answer:
    """A byte at a time."""

    def send(handler: Handler) -> None:
        handler.start_lines()
        for each in content:
            handler.line(bytes([each]))
            if handler.server.closing.wait(pause):
                break
        then(handler)

    return send


def streams(events: Iterable[object], then: Answer = hangs) -> Answer:
    """A watch that brings *events* (bytes as they are) and then does as *then* says."""

    def send(handler: Handler) -> None:
        handler.start_lines()
        for event in events:
            handler.line(event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n")
        then(handler)

    return send
