"""A gunicorn of our own making for a test, and clients that speak to it, well or badly."""

import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from pathlib import Path
from typing import TypeVar

from certs.issue import Pair, new_ca, new_leaf
from dev.lab.direct import urlopen
from dev.lab.waiting import stretch
from tests.sockets import free_ports

Opened = TypeVar("Opened", bound=socket.socket | http.client.HTTPConnection)

ROOT = Path(__file__).parent.parent
BEGIN, END = datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
CA = new_ca("test", BEGIN, END)


def leaf(*names: str) -> Pair:
    return new_leaf(CA, names or ("localhost",), ["127.0.0.1"], BEGIN, END)


def write_pair(directory: Path, pair: Pair) -> None:
    for name, content in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
        replace(directory / name, content)


def replace(file: Path, content: bytes) -> None:
    new = file.with_suffix(".new")
    new.write_bytes(content)
    new.replace(file)


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=CA.certificate.decode())


def review(nap: float = 0.0, *, stuck: float = 0.0) -> bytes:
    return (
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u-1",'
        b'"operation":"CREATE","object":{"nap":%f,"stuck":%f}}}' % (nap, stuck)
    )


def post(body: bytes, path: str = "/naps", *headers: str) -> bytes:
    """The bytes of a whole request."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    if not any(header.lower().startswith("transfer-encoding") for header in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Message
    body: bytes

    @property
    def connection(self) -> str | None:
        return self.headers["Connection"]


class Server:
    """A running gunicorn, and the lines that it has logged."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.lines = process, list[str]()
        self._opened: list[socket.socket | http.client.HTTPConnection] = []
        self._line = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for_line(self, pattern: str) -> re.Match[str]:
        with self._line:
            self._line.wait_for(lambda: any(re.search(pattern, each) for each in self.lines), 15 * stretch())
        found = re.search(pattern, "\n".join(self.lines))
        assert found, f"no line with {pattern} in:\n" + "\n".join(self.lines)
        return found

    def wait_until_up(self) -> None:
        self.port = int(self.wait_for_line(r"Listening at: https://[^ ]*:(\d+)")[1])
        self.wait_for_line("Booting worker")
        self.call().close()

    def raw(self) -> socket.socket:
        """A bare TCP connection, without delay, as Go has them: what is sent arrives in its order among others."""
        sock = self._to_close(socket.create_connection(("127.0.0.1", self.port), timeout=10))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def tls(self) -> ssl.SSLSocket:
        """A connection after its handshake."""
        return self._to_close(trusting().wrap_socket(self.raw(), server_hostname="localhost"))

    def call(self) -> http.client.HTTPSConnection:
        """A connection whose first call has been answered well."""
        connection = http.client.HTTPSConnection("localhost", self.port, context=trusting(), timeout=10)
        connection.sock = self.tls()
        ask(connection)
        return self._to_close(connection)

    def certificate(self) -> bytes:
        """What a new connection is shown, DER."""
        with self.tls() as connection:
            return connection.getpeercert(binary_form=True) or b""

    def close(self) -> None:
        """After the process has ended: read its last lines."""
        self._reader.join()
        if self.process.stderr:
            self.process.stderr.close()

    def close_clients(self) -> None:
        """Close all connections that this object has handed out."""
        while self._opened:
            self._opened.pop().close()

    def _to_close(self, opened: Opened) -> Opened:
        self._opened.append(opened)
        return opened

    def _read(self) -> None:
        for line in self.process.stderr or ():
            with self._line:
                self.lines.append(line.rstrip())
                self._line.notify_all()


def ask(connection: http.client.HTTPConnection) -> Answer:
    """A call on an open connection that must go well."""
    connection.request("POST", "/naps?timeout=5s", review(), {"Content-Type": "application/json"})
    with connection.getresponse() as response:
        answer = Answer(response.status, response.headers, response.read())
    assert answer.status == 200, answer
    assert b'"allowed":true' in answer.body
    return answer


def read_response(sock: socket.socket) -> Answer:
    """The next response on this connection."""
    with http.client.HTTPResponse(sock, method="POST") as response:
        response.begin()
        return Answer(response.status, response.headers, response.read())


def is_closed(sock: socket.socket, within: float) -> bool:
    """Whether the server closes this connection in time, whatever it says before."""
    end = time.monotonic() + within
    try:
        while (left := end - time.monotonic()) > 0:
            sock.settimeout(left)
            if not sock.recv(65536):
                return True
    except TimeoutError:
        return False
    except OSError:
        return True
    return False


@contextmanager
def gunicorn(*arguments: str, cwd: Path = ROOT, **environ: str) -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environ},
        stderr=subprocess.PIPE,
        text=True,
    )
    server = Server(process)
    try:
        yield server
    finally:
        server.close_clients()
        process.terminate()
        try:
            process.wait(20)
        finally:
            process.kill()
            server.close()


@dataclass(frozen=True)
class Configured:
    """The ports of a webhook server, and the *environ* by which it finds its configuration."""

    https: int
    health: int
    metrics: int
    environ: dict[str, str]


def configure(directory: Path, **webhook: object) -> Configured:
    """Write a certificate and a configuration for all on 127.0.0.1 into *directory*."""
    https, health, metrics = free_ports(3)
    write_pair(directory, leaf())
    file = directory / "config.yaml"
    config = {
        "apiVersion": "drawbridge.io/v1",
        "kind": "DrawbridgeConfig",
        "health": {"healthProbeBindAddress": f":{health}"},
        "metrics": {"bindAddress": f":{metrics}"},
        "webhook": {"port": https, "certDir": str(directory), **webhook},
    }
    file.write_text(json.dumps(config))
    return Configured(
        https, health, metrics, {"DRAWBRIDGE_CONFIG": str(file), "DRAWBRIDGE_BIND_HOST": "127.0.0.1"}
    )


def get(port: int, path: str) -> tuple[int, str]:
    """Status and text of a plain GET."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@contextmanager
def serving(directory: Path, **environ: str) -> Iterator[Server]:
    """Our worker with the application of tests/served.py; the certificate is in *directory*."""
    write_pair(directory, leaf())
    files = {"CERTFILE": str(directory / "tls.crt"), "KEYFILE": str(directory / "tls.key")}
    with gunicorn("-c", "python:tests.served", "tests.served:app", **files, **environ) as server:
        server.wait_until_up()
        yield server
