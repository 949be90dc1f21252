"""What a webhook server's worker does with a request before the application sees it: some are refused."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from webhook.connection import Budget, Connection, Limits, Next, Refused

MEMORY = 64 * 1024 * 1024
"""Bytes that large requests may take together, as in the worker."""


class Reception:
    """The product's connection in front of *application*, a test client."""

    def __init__(self, application: Any) -> None:
        self._application, self._budget = application, Budget(MEMORY)

    def post(self, url: str, body: bytes) -> tuple[int, bytes]:
        """Status and content of the answer."""
        head = f"POST {url} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        sock: Any = Socket(head + body)
        pair: Any = None
        connection = Connection(None, sock, (None, None), pair, Limits(), self._budget)
        connection.parser = self  # the handshake is over
        try:
            while connection.receive() is not Next.SERVE:
                pass
            response = self._application.post(url, data=body, content_type="application/json")
            return response.status_code, response.data
        except Refused as refused:
            return int(refused.status), refused.response()
        finally:
            connection.close()


class Socket:
    """One on which a request has arrived."""

    def __init__(self, data: bytes) -> None:
        self.recv = BytesIO(data).read

    def setblocking(self, flag: bool) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""
