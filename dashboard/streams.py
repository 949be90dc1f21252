"""Open pages: each is a response without an end, in which a page is sent again whenever it has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flask import Response, abort

from dashboard.feed import INTERVAL
from dashboard.pages import Page
from runtime import threading

FULL = "too many pages are open; this one is tried again, and can be read as it is"


class Streams:
    """*render* makes the fragment of a page. They end when *stop* is set; at *most* so many are open, if that is given.

    With a limit, the server must close each response: gunicorn does, Werkzeug's not when the browser is gone.
    """

    def __init__(self, render: Callable[[Page], str], stop: threading.Event, most: int | None = None) -> None:
        self._render, self._stop = render, stop
        self._free = None if most is None else threading.Semaphore(most)

    def open(self, page: Page) -> Response:
        """503 where as many as may be are open: each has a thread of the server."""
        if self._free and not self._free.acquire(blocking=False):
            abort(503, FULL)
        response = Response(self.events(page), mimetype="text/event-stream")
        # Proxies that collect an answer before they pass it on would never pass this one on.
        response.headers["X-Accel-Buffering"] = "no"
        if self._free:
            response.call_on_close(self._free.release)
        return response

    def events(self, page: Page, interval: float = INTERVAL) -> Iterator[str]:
        """The fragment at first, and again whenever it has changed."""
        before = ""
        while not self._stop.is_set():
            now = self._render(page)
            # A comment finds out whether the browser is still there.
            yield _event(now) if now != before else ":\n\n"
            before = now
            self._stop.wait(interval)


def _event(text: str) -> str:
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"retry: 2000\nevent: page\n{lines}\n"
