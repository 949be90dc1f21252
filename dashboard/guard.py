"""Who may see the page: only the browser that was given the printed address, under a name of this machine; in the
cluster all that can connect, under the names that are allowed.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from hmac import compare_digest

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not no-referrer: a browser would then send forms with the Origin null.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Guard:
    """*token* is the browser's permission to read; *form* proves that a write comes from a form of the page."""

    port: int
    token: str = field(default_factory=secrets.token_urlsafe)
    form: str = field(default_factory=secrets.token_urlsafe)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    @property
    def cookie(self) -> str:
        """With the port in its name: browsers send the cookies of one port to all others."""
        return f"drawbridge-{self.port}"

    def knows_host(self, host: str) -> bool:
        """A page of another site whose name was made to resolve to this machine has another Host."""
        return host in (f"127.0.0.1:{self.port}", f"localhost:{self.port}")

    def knows_token(self, token: str) -> bool:
        return compare_digest(token.encode(), self.token.encode())

    def accepts_form(self, form: str, origin: str | None) -> bool:
        is_own = origin is None or self.knows_host(origin.removeprefix("http://"))
        return is_own and compare_digest(form.encode(), self.form.encode())
