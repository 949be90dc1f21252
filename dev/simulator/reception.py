"""What a webhook server's worker does with a request before the application sees it: some are refused."""

from __future__ import annotations

from typing import Any

from webhook.connection import MOST_COST
from webhook.inbox import OWN_COST, Budget, Inbox, Refused

MEMORY = 64 * 1024 * 1024
"""Bytes that large requests may take together, as in the worker."""


class Reception:
    """What the worker has in front of *application*, a test client."""

    def __init__(self, application: Any) -> None:
        self._application, self._budget = application, Budget(MEMORY)

    def post(self, url: str, body: bytes) -> tuple[int, bytes]:
        """Status and content of the answer."""
        inbox = Inbox(f"POST {url} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        held = 0
        try:
            inbox.is_whole()
            cost = max(min(inbox.cost(), MOST_COST) - OWN_COST, 0)
            self._budget.take(cost)
            held = cost
            response = self._application.post(url, data=body, content_type="application/json")
            return response.status_code, response.data
        except Refused as refused:
            return int(refused.status), refused.response()
        finally:
            self._budget.take(-held)
