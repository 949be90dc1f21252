"""With metrics.authentication, the API server says who may read metrics, once a minute for each token."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

import kube.metrics_access
from dev.lab.waiting import until
from kube.metrics_access import KEPT, MetricsAccess, metrics_access
from settings.models import Metrics
from telemetry.http import serve_metrics
from tests.fakes import FakeClock
from tests.misbehaving_server import Answer, Asked, Handler, Server, answers, refuses, serving
from tests.server import get

KNOWN = {"uid": "u-1", "groups": ["system:authenticated"], "extra": {"a": ["b"]}}
USERS = {"good": {"username": "prometheus", **KNOWN}, "weak": {"username": "other"}}
ASKED = {"user": "prometheus", **KNOWN, "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}


def reviews(asked: Asked) -> Answer:
    """Both APIs: of the USERS, one may."""
    spec: dict[str, Any] = asked.body["spec"]
    if asked.path == "/apis/authorization.k8s.io/v1/subjectaccessreviews":
        return answers({"status": {"allowed": spec == ASKED}})
    user = USERS.get(spec["token"])
    return answers({"status": {"authenticated": True, "user": user} if user else {"error": "no such token"}})


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(reviews) as running:
        yield running


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def access(server: Server, clock: FakeClock) -> Iterator[MetricsAccess]:
    with closing(server.client()) as client:
        yield MetricsAccess(client, clock)


def status(access: MetricsAccess, authorization: str) -> int:
    refusal = access(authorization)
    return refusal.status if refusal else 200


@pytest.mark.parametrize(
    ("authorization", "expected", "calls"),
    [
        pytest.param("", 401, 0, id="no token"),
        pytest.param("Basic dTpw", 401, 0, id="a password"),
        pytest.param("Bearer ", 401, 0, id="an empty token"),
        pytest.param("Bearer forged", 401, 1, id="a token of another cluster"),
        pytest.param("Bearer weak", 403, 2, id="a user without permission"),
        pytest.param("Bearer good", 200, 2, id="a user with permission"),
        pytest.param("bearer good", 200, 2, id="in lower case"),
    ],
)
def test_a_client_reads_metrics_by_the_permission_of_its_user(
    server: Server, access: MetricsAccess, authorization: str, expected: int, calls: int
) -> None:
    assert status(access, authorization) == expected
    assert status(access, authorization) == expected
    assert len(server.asked) == calls


def test_a_verdict_holds_for_a_minute(server: Server, access: MetricsAccess, clock: FakeClock) -> None:
    assert status(access, "Bearer good") == 200
    server.answer = lambda _: answers({"status": {}})
    clock.advance(KEPT - 1)
    assert status(access, "Bearer good") == 200
    clock.advance(1)
    assert status(access, "Bearer good") == 401


def test_the_verdicts_of_many_tokens_take_no_more_memory(
    access: MetricsAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube.metrics_access, "MOST", 8)
    for number in range(20):
        assert status(access, f"Bearer {number}") == 401
    assert status(access, "Bearer good") == 200
    assert len(access._verdicts) <= 8


def test_forged_tokens_are_reviewed_one_at_a_time(server: Server, access: MetricsAccess) -> None:
    go_on = threading.Event()

    def waits(handler: Handler) -> None:
        go_on.wait(60)
        answers({"status": {}})(handler)

    server.answer = lambda _: waits
    clients = [threading.Thread(target=access, args=(f"Bearer forged-{number}",)) for number in range(4)]
    for each in clients:
        each.start()
    until(lambda: server.asked)
    assert len(server.asked) == 1
    go_on.set()
    for each in clients:
        each.join(60)
    assert len(server.asked) == 4


def test_without_an_answer_of_the_api_server_nothing_is_shown_and_nothing_is_kept(
    server: Server, access: MetricsAccess
) -> None:
    server.answer = lambda _: refuses(403, "forbidden")
    assert status(access, "Bearer good") == 503
    server.answer = reviews
    assert status(access, "Bearer good") == 200


@pytest.mark.parametrize(("authentication", "expected"), [(True, 401), (False, 200)])
def test_the_setting_decides(server: Server, authentication: bool, expected: int) -> None:
    with closing(server.client()) as client:
        access = metrics_access(client, Metrics(authentication=authentication))
        with closing(serve_metrics("127.0.0.1:0", access)) as metrics:
            assert get(metrics.server_address[1], "/metrics")[0] == expected
            assert get(metrics.server_address[1], "/other")[0] == 404
