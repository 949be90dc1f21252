"""Serve the pages: each whole, and as a stream of what has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from threading import Event

from flask import Flask, Response, abort, redirect, render_template, request
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response as Answer

from cli.errors import Failure, unreadable
from cli.output import age
from dashboard.feed import INTERVAL
from dashboard.guard import HEADERS, Guard
from dashboard.pages import Page, slug, until
from dashboard.writer import VERBS, Write
from kube.errors import Conflict, KubeError

CHANGED = Failure(
    "the rollout was changed in the meantime; nothing was changed by you", "go back, and repeat it"
)
DENIED = "open the address that drawbridge dashboard printed: it has the token without which this page is not shown"


Explain = Callable[[str, str], Page | None]
"""The page of an object by its kind and name."""


def create_app(
    pages: Sequence[Page], explain: Explain, guard: Guard, write: Write, stop: Event | None = None
) -> Flask:
    """Streams end when *stop* is set."""
    app = Flask(__name__)
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.jinja_env.filters |= {"age": age, "until": until, "slug": slug}
    app.jinja_env.globals |= {"pages": pages, "form": guard.form}
    _guard(app, guard)
    stop = stop or Event()
    for page in pages:
        _serve(app, page, stop)
    _serve_objects(app, explain, stop)
    _accept(app, guard, write, {page.name: page for page in pages})
    return app


def fragment(app: Flask, page: Page, layout: str = "fragment.html") -> str:
    """The page, in the *layout*, as it is now."""
    value = page.feed.latest()
    template = "trouble.html" if isinstance(value, Failure) else page.template
    shown = app.jinja_env.get_template(template)
    return shown.render(layout=layout, page=page, value=value, now=datetime.now(UTC))


def stream(app: Flask, page: Page, stop: Event, interval: float = INTERVAL) -> Iterator[str]:
    """The fragment at first, and again whenever it has changed."""
    before = ""
    while not stop.is_set():
        now = fragment(app, page)
        # A comment finds out whether the browser is still there.
        yield _event(now) if now != before else ":\n\n"
        before = now
        stop.wait(interval)


def _event(text: str) -> str:
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"retry: 2000\nevent: page\n{lines}\n"


def _guard(app: Flask, guard: Guard) -> None:
    @app.before_request
    def check() -> Response | None:
        if not guard.knows_host(request.headers.get("Host", "")):
            abort(421)
        if guard.knows_token(request.args.get("token", "")):
            return _entrance(guard)
        if not guard.knows_token(request.cookies.get(guard.cookie, "")):
            abort(403, DENIED)
        return None

    @app.after_request
    def add_headers(response: Response) -> Response:
        response.headers.update(HEADERS)
        return response

    @app.errorhandler(HTTPException)
    def fail(error: HTTPException) -> tuple[str, int]:
        return render_template("error.html", error=error), error.code or 500


def _entrance(guard: Guard) -> Response:
    """A page that leads on, not a redirect: a browser that comes from another site would not send the cookie."""
    response = Response(render_template("entrance.html"))
    response.set_cookie(guard.cookie, guard.token, httponly=True, samesite="Strict")
    return response


def _serve(app: Flask, page: Page, stop: Event) -> None:
    def show() -> str:
        return fragment(app, page, "page.html")

    def follow() -> Response:
        return Response(stream(app, page, stop), mimetype="text/event-stream")

    app.add_url_rule(page.path, page.name, show)
    app.add_url_rule(f"/live/{page.name}", f"live-{page.name}", follow)


def _serve_objects(app: Flask, explain: Explain, stop: Event) -> None:
    def known(kind: str, name: str) -> Page:
        page = explain(kind, name)
        return page if page else abort(404)

    @app.get("/explain/<kind>/<path:name>")
    def show_object(kind: str, name: str) -> str:
        return fragment(app, known(kind, name), "page.html")

    @app.get("/live/explain/<kind>/<path:name>")
    def follow_object(kind: str, name: str) -> Response:
        return Response(stream(app, known(kind, name), stop), mimetype="text/event-stream")


def _accept(app: Flask, guard: Guard, write: Write, pages: dict[str, Page]) -> None:
    def refused(failure: Failure) -> tuple[str, int]:
        return render_template("refused.html", failure=failure), 409

    @app.post("/rollouts/<namespace>/<name>/<verb>")
    def change(namespace: str, name: str, verb: str) -> Answer | tuple[str, int]:
        if verb not in VERBS:
            abort(404)
        if not guard.accepts_form(request.form.get("form", ""), request.headers.get("Origin")):
            abort(403, "this form is of another page: open the page of rollouts, and repeat it")
        try:
            write(namespace, name, verb)
        except KubeError as error:
            return refused(CHANGED if isinstance(error, Conflict) else unreadable(error))
        except Failure as failure:
            return refused(failure)
        for each in ("rollouts", "overview"):
            pages[each].feed.expire()
        return redirect(pages["rollouts"].path, 303)
