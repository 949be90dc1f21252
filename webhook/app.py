"""Answer every POST to a webhook's path: an AdmissionReview, or a line that says what was wrong."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import flask
import structlog
from prometheus_client import Counter, Gauge, Histogram
from werkzeug.exceptions import BadRequest, HTTPException, UnsupportedMediaType

from runtime import threading, time
from settings.values import seconds
from telemetry.logs import SparingLogger
from webhook.admission import (
    ARRIVED,
    MAX_BODY,
    Decision,
    Request,
    ReviewError,
    Webhook,
    parse,
    render,
    unreviewed,
)
from webhook.deadline import DeadlineExceeded, check_time

DEFAULT_TIMEOUT, LONGEST_TIMEOUT = 10.0, 30.0
"""Of the API server, in seconds."""
MARGIN, LEAST_MARGIN = 0.1, 0.2
"""For the answer to travel: a share of the caller's timeout, and seconds at least."""

log = structlog.stdlib.get_logger(__name__)
sparing = SparingLogger(log)
_logger = logging.getLogger(__name__)

REQUESTS = Counter(
    "drawbridge_admission_requests_total",
    "Admission requests by result: allowed, denied, error or shed.",
    ["webhook", "operation", "result", "dry_run"],
)
DURATION = Histogram(
    "drawbridge_admission_duration_seconds",
    "Time from a request's arrival to its answer.",
    ["webhook", "operation"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
IN_FLIGHT = Gauge("drawbridge_admission_in_flight", "Admission requests being answered now.", ["webhook"])
PANICS = Counter(
    "drawbridge_admission_panics_total",
    "Reviews that raised and were answered by the fail mode.",
    ["webhook"],
)
FAILURES = Counter(
    "drawbridge_admission_failures_total",
    "Requests whose work could not be done: let through (open) or refused (closed).",
    ["webhook", "mode"],
)
REASONS = {
    404: "no webhook is served at this path",
    405: "webhooks are called by POST",
    413: f"the body is over {MAX_BODY} bytes, more than an AdmissionReview can need",
}
BUSY = (429, 503)
"""A denial with one of these means that the webhook could not do its work, unless it fails open."""


def create_app(
    webhooks: Sequence[Webhook],
    *,
    max_in_flight: int = 64,
    draining: Callable[[], bool] = lambda: False,
) -> flask.Flask:
    """The WSGI application of *webhooks*; starts nothing.

    Requests beyond *max_in_flight*, and all while *draining*, are answered 503 with Retry-After, which the API
    server follows within the webhook's timeout.
    """
    app = flask.Flask("drawbridge", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY
    app.url_map.merge_slashes = False
    slots = threading.BoundedSemaphore(max_in_flight)
    for webhook in webhooks:
        # From zero on: a scraper cannot tell a first failure from a new series.
        PANICS.labels(webhook.name)
        for mode in ("open", "closed"):
            FAILURES.labels(webhook.name, mode)
        view = Endpoint(webhook, slots, draining)
        app.add_url_rule(webhook.path, webhook.name, view, methods=["POST"], provide_automatic_options=False)
    app.register_error_handler(HTTPException, _explain)
    app.register_error_handler(Exception, _internal_error)
    return app


@dataclass(frozen=True)
class Endpoint:
    """One webhook behind its path."""

    webhook: Webhook
    slots: threading.BoundedSemaphore
    draining: Callable[[], bool]

    def __call__(self) -> flask.Response:
        if self.draining():
            return self._shed("this replica is shutting down")
        if not self.slots.acquire(blocking=False):
            return self._shed("this replica has too many requests in flight")
        try:
            with IN_FLIGHT.labels(self.webhook.name).track_inprogress():
                return self._answer(flask.request.environ.get(ARRIVED, time.monotonic()))
        finally:
            self.slots.release()

    def _answer(self, begin: float) -> flask.Response:
        try:
            request = _request()
        except HTTPException as error:
            self._count("error")
            sparing.warning("bad request", webhook=self.webhook.name, error=_reason(error))
            raise
        decision, result = self._decide(request, begin + _budget(flask.request.args.get("timeout", "")))
        self._count(result, request)
        if mode := self._failure(decision, result):
            FAILURES.labels(self.webhook.name, mode).inc()
        _log(self.webhook.name, request, decision)
        DURATION.labels(self.webhook.name, request.operation).observe(time.monotonic() - begin)
        return flask.Response(render(request, decision), mimetype="application/json")

    def _decide(self, request: Request, deadline: float) -> tuple[Decision, str]:
        about = {"webhook": self.webhook.name, "uid": request.uid, "key": _key(request)}
        try:
            check_time(deadline)  # it may have waited for a thread for too long
            decision = self.webhook.review(request, deadline)
            return decision, "allowed" if decision.allowed else "denied"
        except DeadlineExceeded:
            log.warning("no time left", **about)
            why, code = "the time that the API server gives it was over; try again", 504
        except ReviewError as error:
            sparing.warning("object not decoded", error=str(error), **about)
            why, code = f"it cannot be decoded: {error}", 400
        except Exception:
            PANICS.labels(self.webhook.name).inc()
            log.exception("admission review failed", **about)
            why, code = "the webhook's log has the cause under this uid", 500
        return unreviewed(self.webhook, request, why, code), "error"

    def _failure(self, decision: Decision, result: str) -> str:
        """The fail mode by which a request was answered whose work could not be done; "" for others."""
        if "failed-open" in decision.audit:
            return "open"
        is_undone = result == "error" or decision.code in BUSY
        return "closed" if is_undone and not self.webhook.fails_open() else ""

    def _shed(self, why: str) -> flask.Response:
        self._count("shed")
        response = _text(503, f"{why}; try again")
        response.headers["Retry-After"] = "1"
        # A new connection may reach another replica; the worker closes this one.
        response.headers["Connection"] = "close"
        return response

    def _count(self, result: str, request: Request | None = None) -> None:
        operation = request.operation if request else ""
        dry_run = "true" if request and request.dry_run else "false"
        REQUESTS.labels(self.webhook.name, operation, result, dry_run).inc()


def _request() -> Request:
    """The request of the API server; HTTPException with a description for the sender."""
    if flask.request.mimetype != "application/json":
        raise UnsupportedMediaType(
            f"the content type is {flask.request.mimetype!r}; it must be application/json"
        )
    try:
        return parse(flask.request.get_data(cache=False))
    except ReviewError as error:
        raise BadRequest(str(error)) from None


def _budget(timeout: str) -> float:
    """Seconds to decide in, when the API server waits for *timeout*."""
    try:
        limit = min(seconds(timeout), LONGEST_TIMEOUT)
    except ValueError:
        limit = DEFAULT_TIMEOUT
    return max(limit - max(limit * MARGIN, LEAST_MARGIN), 0.0)


def _log(name: str, request: Request, decision: Decision) -> None:
    level = logging.DEBUG if decision.allowed else logging.INFO
    # The standard library's logger decides, and asking it costs next to nothing.
    if _logger.isEnabledFor(level):
        log.log(
            level,
            "admission allowed" if decision.allowed else "admission denied",
            webhook=name,
            uid=request.uid,
            key=_key(request),
            operation=request.operation,
            user=request.user_info.username,
            message=decision.message,
            audit=dict(decision.audit),
        )


def _key(request: Request) -> str:
    return f"{request.namespace}/{request.name}" if request.namespace else request.name


def _explain(error: HTTPException) -> flask.Response:
    """The same response with a line of text instead of a page."""
    response = _text(error.code or 500, _reason(error))
    # The body may not have been read.
    response.headers["Connection"] = "close"
    if allow_header := error.get_response().headers.get("Allow"):
        response.headers["Allow"] = allow_header
    return response


def _reason(error: HTTPException) -> str:
    return REASONS.get(error.code or 0) or error.description or error.name


def _internal_error(_error: Exception) -> flask.Response:
    log.exception("request failed", path=flask.request.path)
    return _text(500, "the webhook server failed; its log has the cause")


def _text(status: int, message: str) -> flask.Response:
    return flask.Response(f"{message}\n", status, mimetype="text/plain")
