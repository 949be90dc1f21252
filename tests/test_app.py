"""Whatever is posted to the webhook server, the answer is one that the API server understands."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs
from werkzeug.test import Client, TestResponse

from tests.metrics import sample
from webhook.admission import MAX_BODY, Decision, Request, ReviewError, allow, deny
from webhook.app import create_app
from webhook.deadline import in_time

REVIEW = (
    b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":'
    b'{"uid":"u-1","operation":"DELETE","namespace":"shop","name":"redis-0","dryRun":false}}'
)


@dataclass
class Scripted:
    """A feature that acts as scripted."""

    act: Callable[[Request, float], Decision] = lambda request, deadline: allow()
    open: bool = False
    name: str = "scripted"
    path: str = "/scripted"

    def fails_open(self) -> bool:
        return self.open

    def review(self, request: Request, deadline: float) -> Decision:
        return self.act(request, deadline)


def crash(request: Request, deadline: float) -> Decision:
    raise RuntimeError("secret detail")


def client(feature: Scripted, **options: object) -> Client:
    return Client(create_app([feature], **options))  # type: ignore[arg-type]


def post(to: Client, data: bytes = REVIEW, path: str = "/scripted", **options: str) -> TestResponse:
    return to.post(path, data=data, content_type=options.pop("content_type", "application/json"), **options)


def counted(what: str = "requests", **labels: str) -> float:
    return sample(f"drawbridge_admission_{what}_total", webhook="scripted", **labels)


def test_a_decision_is_sent_back_as_a_review() -> None:
    got = post(client(Scripted()), content_type="application/json; charset=utf-8")
    review = (
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",'
        b'"response":{"uid":"u-1","allowed":true}}'
    )
    assert (got.status_code, got.mimetype, got.data) == (200, "application/json", review)


JSON = "application/json"
NOT_JSON = b"the body is not JSON: Input data was truncated\n"
NO_PATH = b"no webhook is served at this path\n"
BAD = {
    "content type": (
        ("POST", "/scripted", "text/plain", REVIEW),
        (415, b"the content type is 'text/plain'; it must be application/json\n"),
    ),
    "not JSON": (("POST", "/scripted", JSON, b"{"), (400, NOT_JSON)),
    "too large": (
        ("POST", "/scripted", JSON, b" " * (MAX_BODY + 1)),
        (413, b"the body is over 7340032 bytes, more than an AdmissionReview can need\n"),
    ),
    "unknown path": (("POST", "/other", JSON, REVIEW), (404, NO_PATH)),
    "two slashes are no redirect": (("POST", "//scripted", JSON, REVIEW), (404, NO_PATH)),
    "wrong method": (("GET", "/scripted", JSON, b""), (405, b"webhooks are called by POST\n")),
    "options": (("OPTIONS", "/scripted", JSON, b""), (405, b"webhooks are called by POST\n")),
}


@pytest.mark.parametrize(("sent", "expected"), BAD.values(), ids=BAD)
def test_a_bad_request_gets_its_status_and_a_line_of_text(
    sent: tuple[str, str, str, bytes], expected: tuple[int, bytes]
) -> None:
    method, path, content_type, data = sent
    got = client(Scripted(crash)).open(path, method=method, data=data, content_type=content_type)
    assert (got.status_code, got.data, got.mimetype) == (*expected, "text/plain")
    assert got.headers.get("Allow") == ("POST" if got.status_code == 405 else None)


def unreadable(request: Request, deadline: float) -> Decision:
    raise ReviewError("request.oldObject is no pod")


def late(request: Request, deadline: float) -> Decision:
    return allow(warnings=tuple(in_time(["a"], time.monotonic() - 1)))


OVER = (504, "Timeout", "the time that the API server gives it was over; try again")
CAUSE = (500, "InternalError", "the webhook's log has the cause under this uid")
FAILING = {
    "that breaks": (crash, "", CAUSE),
    "of what it cannot read": (
        unreadable,
        "",
        (400, "BadRequest", "it cannot be decoded: request.oldObject is no pod"),
    ),
    "that sees its deadline pass": (late, "", OVER),
    "that is left out, as there is no time": (crash, "?timeout=100ms", OVER),
}
SKIPPED = "scripted failed and was skipped, uid u-1"
OPEN = {"allowed": True, "warnings": [SKIPPED], "auditAnnotations": {"failed-open": SKIPPED}}


@pytest.mark.parametrize("opens", [pytest.param(True, id="open"), pytest.param(False, id="closed")])
@pytest.mark.parametrize(("act", "query", "refusal"), FAILING.values(), ids=FAILING)
def test_by_the_fail_mode_is_answered_and_counted_a_review(
    act: Callable[[Request, float], Decision],
    query: str,
    refusal: tuple[int, str, str],
    opens: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    labels = {"operation": "DELETE", "result": "error", "dry_run": "true"}
    panics, errors = counted("panics"), counted(**labels)

    got = post(client(Scripted(act, open=opens)), REVIEW.replace(b"false", b"true"), path=f"/scripted{query}")

    code, reason, why = refusal
    denied = f"scripted failed to review this request, uid u-1, and may not be skipped; {why}"
    closed = {"allowed": False, "status": {"code": code, "reason": reason, "message": denied}}
    assert (got.status_code, got.get_json()["response"]) == (
        200,
        {"uid": "u-1"} | (OPEN if opens else closed),
    )
    assert (counted("panics"), counted(**labels)) == (panics + (refusal == CAUSE), errors + 1)
    assert refusal == CAUSE or "Traceback" not in caplog.text


def test_a_review_of_kube_system_that_breaks_is_allowed_whatever_the_fail_mode() -> None:
    got = post(client(Scripted(crash, open=False)), REVIEW.replace(b'"shop"', b'"kube-system"'))
    assert got.get_json()["response"] == {"uid": "u-1"} | OPEN


@pytest.mark.parametrize(
    ("feature", "counted_as"),
    [
        pytest.param(Scripted(crash, open=True), "open", id="failed open"),
        pytest.param(Scripted(crash), "closed", id="failed closed"),
        pytest.param(Scripted(lambda *_: allow(audit={"failed-open": "why"})), "open", id="not done"),
        pytest.param(Scripted(lambda *_: deny("no", code=503)), "closed", id="not done and refused"),
        pytest.param(Scripted(lambda *_: deny("no", code=429)), "closed", id="not done for an eviction"),
        pytest.param(Scripted(lambda *_: deny("no")), "", id="refused by the rules"),
        pytest.param(
            Scripted(lambda *_: deny("no", code=429), open=True), "", id="refused for now by the rules"
        ),
        pytest.param(Scripted(), "", id="allowed"),
    ],
)
def test_only_requests_whose_work_could_not_be_done_are_failures(feature: Scripted, counted_as: str) -> None:
    to = client(feature)
    before = {mode: counted("failures", mode=mode) for mode in ("open", "closed")}

    post(to)

    assert {mode for mode, count in before.items() if counted("failures", mode=mode) == count + 1} == {
        counted_as
    } - {""}


def test_failures_are_counted_from_zero_on() -> None:
    create_app([Scripted(name="fresh", path="/fresh")])

    for what, labels in (("failures", {"mode": "open"}), ("failures", {"mode": "closed"}), ("panics", {})):
        name = f"drawbridge_admission_{what}_total"
        assert REGISTRY.get_sample_value(name, {"webhook": "fresh", **labels}) == 0.0


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        pytest.param("?timeout=5s", 4.5, id="a tenth is kept back"),
        pytest.param("?timeout=1s", 0.8, id="but at least a fifth of a second"),
        pytest.param("?timeout=1m30s", 27.0, id="no more than the API server may wait"),
        pytest.param("?timeout=999999h", 27.0, id="a century"),
        pytest.param(f"?timeout={'9' * 400}h", 9.0, id="more than any duration"),
        pytest.param("", 9.0, id="the API server's default"),
        pytest.param("?timeout=soon", 9.0, id="not a duration"),
    ],
)
def test_the_deadline_is_the_callers_timeout_less_a_margin(query: str, seconds: float) -> None:
    left: list[float] = []

    def note(request: Request, deadline: float) -> Decision:
        left.append(deadline - time.monotonic())
        return allow()

    post(client(Scripted(note)), path=f"/scripted{query}")
    assert left == [pytest.approx(seconds, abs=0.2)]


def test_what_is_more_than_may_be_in_work_is_shed_at_once() -> None:
    entered, leave = threading.Event(), threading.Event()

    def block(request: Request, deadline: float) -> Decision:
        entered.set()
        assert leave.wait(10)
        return allow()

    app, statuses = client(Scripted(block), max_in_flight=1), list[int]()
    busy = threading.Thread(target=lambda: statuses.append(post(app).status_code))
    busy.start()
    assert entered.wait(10)
    assert sample("drawbridge_admission_in_flight", webhook="scripted") == 1
    before = counted(operation="", result="shed", dry_run="false")
    shed = post(app)
    leave.set()
    busy.join()
    assert (shed.status_code, shed.headers["Retry-After"], shed.headers["Connection"]) == (503, "1", "close")
    assert counted(operation="", result="shed", dry_run="false") == before + 1
    assert [*statuses, post(app).status_code] == [200, 200]


def test_a_server_that_is_leaving_sends_its_callers_elsewhere() -> None:
    got = post(client(Scripted(), draining=lambda: True))
    assert (got.status_code, got.headers["Retry-After"], got.headers["Connection"]) == (503, "1", "close")
    assert got.data == b"this replica is shutting down; try again\n"


class Unsettled(Scripted):
    def fails_open(self) -> bool:
        raise RuntimeError("secret detail")


def test_what_breaks_beside_a_review_tells_nothing_but_where_to_look() -> None:
    got = post(client(Unsettled(crash)))

    assert (got.status_code, got.mimetype) == (500, "text/plain")
    assert got.data == b"the webhook server failed; its log has the cause\n"


@pytest.mark.parametrize(
    ("decision", "level", "expected"),
    [
        pytest.param(deny("no"), logging.INFO, ["admission denied"], id="refused"),
        pytest.param(allow(), logging.INFO, [], id="allowed"),
        pytest.param(allow(), logging.DEBUG, ["admission allowed"], id="allowed, in detail"),
    ],
)
def test_answers_are_logged_as_far_as_they_matter(
    decision: Decision, level: int, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(level, "webhook.app")

    with capture_logs() as said:
        post(client(Scripted(lambda *_: decision)))
        post(client(Scripted(lambda *_: decision)), REVIEW.replace(b'"namespace":"shop",', b""))

    assert [(each["event"], each["key"]) for each in said] == [
        (words, key) for key in ("shop/redis-0", "redis-0") for words in expected
    ]
