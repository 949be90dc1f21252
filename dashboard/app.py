"""Serve the pages, to those who may see them: each whole, and again what has changed."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hmac import compare_digest
from pathlib import Path

from flask import Flask, Response, abort, redirect, render_template, request
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response as Answer

from cli.cluster import Cluster
from cli.errors import Failure, unreadable
from cli.output import age, count_of, duration, until
from dashboard.pages import MOST, Page, explanation_of, line_of, matching, pages_of, words
from dashboard.rollouts import VERBS, carry_out
from features import FEATURES
from kube.errors import KubeError

DENIED = "open the address that drawbridge dashboard printed: it has the token without which this page is not shown"
UNKNOWN_HOST = "this page is not served under that name: add it to dashboard.allowedHosts of the chart"
HEALTH = "/healthz"
LONGEST_FORM = 16 * 1024
"""Bytes of a request's body; ours has one token."""
HELD = 64
"""Objects whose pages are kept."""
FILES = Path(__file__).parent / "static"
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
LOCAL = {
    "footer": "Read with your permissions; served to this machine only.",
    "lost": "is drawbridge dashboard running?",
}
PROXIED = {
    "footer": "Read only, with the permissions of the ServiceAccount of this page.",
    "lost": "load the page again if that lasts",
}
"""What a page says of itself."""


def create_app(cluster: Cluster, guard: Guard) -> Flask:
    """For the one browser that *guard* lets in."""
    pages = pages_of(cluster)
    app = _app(pages, guard.form, LOCAL)

    @app.before_request
    def check() -> Response | None:
        if not guard.knows_host(request.headers.get("Host", "")):
            abort(421)
        if guard.knows_token(request.args.get("token", "")):
            # A page that leads on, not a redirect: a browser that comes from another site would not send the cookie.
            response = Response(render_template("entrance.html"))
            response.set_cookie(guard.cookie, guard.token, httponly=True, samesite="Strict")
            return response
        if not guard.knows_token(request.cookies.get(guard.cookie, "")):
            abort(403, DENIED)
        return None

    _serve_pages(app, pages, cluster)
    _accept(app, guard, cluster, {page.name: page for page in pages})
    return app


def create_read_only_app(cluster: Cluster, hosts: Collection[str]) -> Flask:
    """For all that can connect, under the names *hosts*: a proxy before it must authenticate them."""
    pages = pages_of(cluster, read_only=True)
    app = _app(pages, "", PROXIED)

    @app.before_request
    def check() -> None:
        # But of probes, which have the address of the pod, and get nothing. It is no proof of who asks: a browser that
        # another site's name was made to lead here has another Host.
        host = request.headers.get("Host", "").lower().partition(":")[0]
        if request.path != HEALTH and host not in hosts:
            abort(421, UNKNOWN_HOST)

    @app.get(HEALTH)
    def health() -> str:
        return "ok"

    _serve_pages(app, pages, cluster)
    return app


def _app(pages: Sequence[Page], form: str, served: Mapping[str, str]) -> Flask:
    app = Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = LONGEST_FORM
    # From memory: Werkzeug's server leaves a file open when the browser is gone.
    files = {each.name: each.read_bytes() for each in FILES.iterdir() if each.suffix in TYPES}
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    filters = (age, until, duration, matching, words)
    app.jinja_env.filters |= {each.__name__: each for each in filters}
    app.jinja_env.filters |= {"count": count_of, "line": line_of}
    app.jinja_env.globals |= {
        "pages": pages,
        "features": FEATURES,
        "form": form,
        "served": served,
        "most": MOST,
    }

    @app.get("/static/<name>")
    def static(name: str) -> Response:
        if name not in files:
            abort(404)
        return Response(files[name], mimetype=TYPES[Path(name).suffix])

    @app.after_request
    def add_headers(response: Response) -> Response:
        response.headers.update(HEADERS)
        return response

    @app.errorhandler(HTTPException)
    def fail(error: HTTPException) -> tuple[str, int]:
        return render_template("error.html", error=error), error.code or 500

    return app


def _serve_pages(app: Flask, pages: Sequence[Page], cluster: Cluster) -> None:
    def show(page: Page, layout: str = "page.html") -> str:
        """As it is now, in the *layout*, with the rows that the filter leaves."""
        value, query = page.feed.latest(), request.args.get("q", "").strip()
        template = "trouble.html" if isinstance(value, Failure) else page.template
        return render_template(template, layout=layout, page=page, value=value, now=page.now(), q=query)

    def follow(page: Page) -> Answer:
        """304 for a browser that has it as it is now."""
        response = Response(show(page, "fragment.html"))
        response.add_etag()
        return response.make_conditional(request)

    for page in pages:
        app.add_url_rule(page.path, page.name, partial(show, page))
        app.add_url_rule(f"/live/{page.name}", f"live-{page.name}", partial(follow, page))

    # So that its feed is that of all who look at an object.
    page_of = lru_cache(HELD)(partial(explanation_of, cluster))

    def known(kind: str, name: str) -> Page:
        page = page_of(kind, name)
        return page if page else abort(404)

    @app.get("/explain/<kind>/<path:name>")
    def show_object(kind: str, name: str) -> str:
        return show(known(kind, name))

    @app.get("/live/explain/<kind>/<path:name>")
    def follow_object(kind: str, name: str) -> Answer:
        return follow(known(kind, name))


def _accept(app: Flask, guard: Guard, cluster: Cluster, pages: Mapping[str, Page]) -> None:
    @app.post("/rollouts/<namespace>/<name>/<verb>")
    def change(namespace: str, name: str, verb: str) -> Answer | tuple[str, int]:
        if verb not in VERBS:
            abort(404)
        if not guard.accepts_form(request.form.get("form", ""), request.headers.get("Origin")):
            abort(403, "this form is of another page: open the page of rollouts, and repeat it")
        try:
            carry_out(cluster.client, namespace, name, verb, request.form.get("shown", ""))
        except (KubeError, Failure) as error:
            return render_template("refused.html", failure=unreadable(error)), 409
        for each in ("rollouts", "overview"):
            pages[each].feed.expire()
        return redirect(pages["rollouts"].path, 303)


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
    """Lets in the browser that was given the printed address, under a name of this machine.

    *token* is the browser's permission to read; *form* proves that a write comes from a form of the page."""

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
        name, _, port = host.partition(":")
        return name in ("127.0.0.1", "localhost") and (port or "80") == str(self.port)

    def knows_token(self, token: str) -> bool:
        return compare_digest(token.encode(), self.token.encode())

    def accepts_form(self, form: str, origin: str | None) -> bool:
        is_own = origin is None or self.knows_host(origin.removeprefix("http://"))
        return is_own and compare_digest(form.encode(), self.form.encode())
