"""The HTTP session below the SDK: what is sent is sent once, and the head of an answer has its time and no more.

A redirect that is followed sends a call again, perhaps to someone who is not meant to have its token. And the
timeout of a socket starts again with every byte, so that an answer that comes in drips would take any time.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import requests
import requests.adapters
import urllib3.connection


@contextlib.contextmanager
def hung_up(after: float, hang_up: Callable[[], object]) -> Iterator[None]:
    """Unless the block ends within *after* seconds, *hang_up* is called, which must end it.

    Never once the block has ended: its connection may be in use for another call by then.
    """
    over, ending = False, threading.Lock()

    def act() -> None:
        # What is over just now cannot be hung up any more, and says so in many ways.
        with ending, contextlib.suppress(Exception):
            if not over:
                hang_up()

    timer = threading.Timer(after, act)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with ending:
            over = True


class Session(requests.Session):
    def __init__(self) -> None:
        super().__init__()
        for scheme in ("https://", "http://"):
            self.mount(scheme, _Adapter())

    def get_redirect_target(self, resp: object) -> None:
        """None: a redirect is an answer like others."""


class _Bounded(urllib3.connection.HTTPConnection):
    """Hangs up when the head has not come within the timeout."""

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]
        # Below TLS, whose own shutdown is not for another thread than the one that reads.
        hang_up = functools.partial(socket.socket.shutdown, self.sock, socket.SHUT_RDWR)
        with hung_up(self.timeout or 0.0, hang_up):
            return super().getresponse()


class _BoundedOverTls(_Bounded, urllib3.connection.HTTPSConnection):
    pass


class _Adapter(requests.adapters.HTTPAdapter):
    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        pool = super().get_connection_with_tls_context(*args, **kwargs)
        pool.ConnectionCls = _BoundedOverTls if pool.scheme == "https" else _Bounded
        return pool
