"""Every call ends in time, with a value or with an error of our own tree."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from dev.lab.waiting import stretch
from kube import errors
from kube.client import Client, Resource
from kube.errors import ApiError, Expired, Unauthorized, Unreachable
from kube.leader_election import LeadershipLost
from kube.resources import LEASES, NODES, PODS, Selection
from kube.transport import JSON_PATCH, MERGE_PATCH, Typed
from kube.types import Pod
from tests.factories import BEYOND_ALL_TIMES
from tests.misbehaving_server import (
    Answer,
    Asked,
    Handler,
    answers,
    breaks_off,
    ends,
    hangs,
    in_turn,
    refuses,
    resets,
    serving,
    streams,
    trickles,
)

PATHS = {
    "all namespaces": (PODS.path(), "/api/v1/pods"),
    "one namespace": (PODS.path("shop"), "/api/v1/namespaces/shop/pods"),
    "subresource": (PODS.sub("eviction").path("shop", "a"), "/api/v1/namespaces/shop/pods/a/eviction"),
    "no namespace": (NODES.path(name="n"), "/api/v1/nodes/n"),
    "a namespace that it has not": (NODES.path("shop", "n"), "/api/v1/nodes/n"),
    "a name that no object has": (
        PODS.path("shop", "../a?watch=true"),
        f"{PODS.path('shop')}/..%2Fa%3Fwatch%3Dtrue",
    ),
    "a namespace that there cannot be": (
        PODS.path("../?watch=true#", "a"),
        "/api/v1/namespaces/..%2F%3Fwatch%3Dtrue%23/pods/a",
    ),
    "named group": (LEASES.path("a", "b"), "/apis/coordination.k8s.io/v1/namespaces/a/leases/b"),
}


@pytest.mark.parametrize(("path", "expected"), PATHS.values(), ids=PATHS)
def test_paths(path: str, expected: str) -> None:
    assert path == expected


def test_an_object_with_times_beyond_all_years_hides_no_other() -> None:
    early = {"metadata": {"name": "0000-a"}, "status": {"conditions": BEYOND_ALL_TIMES}}
    with serving(lambda asked: answers({"items": [early, {"metadata": {"name": "b"}}]})) as server:
        found = server.client().list(PODS, type=Pod).items
    assert [pod.metadata.name for pod in found] == ["0000-a", "b"]


def test_a_struct_comes_back_with_the_fields_it_names() -> None:
    body = {"kind": "Pod", "metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"nodeName": "n"}}
    with serving(lambda asked: answers(body)) as server:
        pod = server.client().get(PODS, "a", "shop", type=Pod)
        raw = server.client().get(PODS, "a", "shop")
    assert (pod.metadata.labels, pod.spec.node_name) == ({"x": "y"}, "n")
    assert raw == body
    assert server.asked[0].headers["user-agent"].startswith("drawbridge/")


def test_bodies_go_out_as_json_of_their_content_type() -> None:
    with serving(lambda asked: answers({})) as server:
        client = server.client()
        client.create(PODS, Pod(), "shop")
        client.replace(PODS, "a", {"metadata": {"resourceVersion": "7"}}, "shop")
        client.patch(PODS.sub("status"), "a", {"status": {}}, "shop")
        client.patch(PODS, "a", [{"op": "test", "path": "", "value": {}}], "shop")
        client.patch(PODS, "a", Typed("application/strategic-merge-patch+json", {}), "shop")
        client.delete(PODS, "a", "shop", preconditions={"uid": "u", "resourceVersion": "7"}, grace_seconds=0)
        client.delete(PODS, "b", "shop")
    created, replaced, patched, operated, typed, deleted, plain = server.asked
    assert (created.method, created.path, created.body) == ("POST", "/api/v1/namespaces/shop/pods", {})
    assert (replaced.method, replaced.body) == ("PUT", {"metadata": {"resourceVersion": "7"}})
    assert (patched.path[-9:], patched.headers["content-type"]) == ("/a/status", MERGE_PATCH)
    assert (operated.path[-2:], operated.headers["content-type"]) == ("/a", JSON_PATCH)
    assert typed.headers["content-type"] == "application/strategic-merge-patch+json"
    assert deleted.body == {"preconditions": {"uid": "u", "resourceVersion": "7"}, "gracePeriodSeconds": 0}
    assert plain.body is None


def test_a_connection_that_was_used_up_to_its_deadline_gives_the_next_call_its_full_time() -> None:
    slow = trickles(b"{}", pause=0.15)
    with serving(in_turn(slow, slow)) as server:
        client = server.client()
        client.get(PODS, "a", "shop", timeout=0.6)
        client.get(PODS, "a", "shop", timeout=2)
    assert len({asked.port for asked in server.asked}) == 1


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Expired),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ServerError),
        (504, "Timeout", errors.ServerError),
        (418, "Teapot", ApiError),
    ],
)
def test_a_refusal_has_a_class_for_its_status(status: int, reason: str, kind: type[ApiError]) -> None:
    with (
        serving(lambda asked: refuses(status, reason, "because")) as server,
        pytest.raises(ApiError) as caught,
    ):
        server.client().get(PODS, "a", "shop")
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.reason, caught.value.message) == (status, reason, "because")
    assert "because" in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(refuses(429, "TooManyRequests", Retry_After="3"), 3, id="header"),
        pytest.param(
            answers({"reason": "TooManyRequests", "details": {"retryAfterSeconds": 7}}, 429), 7, id="details"
        ),
        pytest.param(refuses(503, "ServiceUnavailable", Retry_After="Wed, 21 Oct 2026"), 0, id="unreadable"),
        pytest.param(refuses(503, "ServiceUnavailable"), 0, id="unsaid"),
        pytest.param(refuses(429, "TooManyRequests", Retry_After="86400"), 60, id="for a day"),
    ],
)
def test_overload_is_raised_at_once_with_the_requested_delay(answer: Answer, expected: float) -> None:
    with serving(lambda asked: answer) as server, pytest.raises(ApiError) as caught:
        server.client().get(PODS, "a", "shop")
    assert caught.value.retry_after == expected
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "text",
    [b"upstream is gone", b'{"message": "\xfcpstream: upstream is gone"}', b'{"upstream is gone":' * 2000],
    ids=["plain", "not UTF-8", "deep"],
)
def test_a_refusal_in_other_words_than_the_api_servers_keeps_them(text: bytes) -> None:
    with (
        serving(lambda asked: answers(text, 502)) as server,
        pytest.raises(errors.ServerError, match="upstream is gone"),
    ):
        server.client().get(PODS, "a", "shop")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(resets, id="reset"),
        pytest.param(breaks_off(b'{"kind": '), id="broken off"),
        pytest.param(answers(b'{"kind": '), id="bad JSON"),
        pytest.param(answers(b"\xff\xfe{}"), id="not UTF-8"),
        pytest.param(answers(b"<html>"), id="a proxy's page"),
        pytest.param(answers(["of", "another", "type"]), id="another type"),
        pytest.param(lambda handler: handler.wfile.write(b"SSH-2.0-x\r\n\r\n"), id="not HTTP"),
    ],
)
def test_no_usable_answer_is_unreachable_and_is_not_asked_for_again(answer: Answer) -> None:
    with serving(lambda asked: answer) as server, pytest.raises(Unreachable, match="GET /api/v1"):
        server.client(timeout=1).get(PODS, "a", "shop")
    assert len(server.asked) == 1


def test_what_a_proxy_sends_elsewhere_was_not_done() -> None:
    with serving(lambda asked: answers(b"", 302, Location="/login")) as server:
        with pytest.raises(ApiError, match="302"):
            server.client().delete(PODS, "a", "shop")
        with pytest.raises(ApiError, match="302"):
            server.client().evict("a", "shop", preconditions={})


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(hangs, id="hangs"),
        pytest.param(trickles(b'{"a": "' + b"x" * 100 + b'"}', pause=0.1), id="trickles"),
        pytest.param(streams([b'{"items": ['], hangs), id="hangs within the body"),
        pytest.param(trickles(b"{ ", pause=0.1, then=hangs), id="falls silent late"),
    ],
)
def test_a_call_ends_within_its_timeout(answer: Answer) -> None:
    with serving(lambda asked: answer) as server:
        began = time.monotonic()
        with pytest.raises(Unreachable):
            server.client().get(PODS, "a", "shop", timeout=0.3)
        assert 0.25 < time.monotonic() - began < 0.6 * stretch()


def test_a_head_that_comes_late_leaves_the_body_no_more_than_the_rest() -> None:
    def late(handler: Handler) -> None:
        handler.server.closing.wait(0.8)
        handler.start_lines()
        hangs(handler)

    with serving(lambda asked: late) as server:
        began = time.monotonic()
        with pytest.raises(Unreachable):
            server.client().get(PODS, "a", "shop", timeout=1.0)
        assert time.monotonic() - began < 1.4 * stretch()


WRITES: list[Callable[[Client], object]] = [
    lambda client: client.create(PODS, {}, "shop"),
    lambda client: client.replace(PODS, "a", {}, "shop"),
    lambda client: client.patch(PODS, "a", {}, "shop"),
    lambda client: client.delete(PODS, "a", "shop"),
    lambda client: client.evict("a", "shop", preconditions={}),
]


@pytest.mark.parametrize("write", WRITES)
def test_a_fenced_client_writes_only_while_its_check_passes(write: Callable[[Client], object]) -> None:
    def check() -> None:
        if lost:
            raise LeadershipLost("another process leads")

    lost = False
    with serving(lambda asked: answers({})) as server:
        client = server.client().fenced(check, 5.0)
        write(client)
        lost = True
        with pytest.raises(LeadershipLost):
            write(client)
        client.get(PODS, "a", "shop")

    assert len(server.asked) == 2


def pages(*sizes: int) -> Callable[[Asked], Answer]:
    def answer(asked: Asked) -> Answer:
        number = int(asked.query.get("continue", "0"))
        names = [{"metadata": {"name": f"{number}-{each}"}} for each in range(sizes[number])]
        following = str(number + 1) if number + 1 < len(sizes) else ""
        return answers({"metadata": {"resourceVersion": "42", "continue": following}, "items": names or None})

    return answer


def test_a_list_is_read_in_pages() -> None:
    with serving(pages(2, 2, 1)) as server:
        listing = server.client().list(PODS, type=Pod, label_selector="a=b", field_selector="c=d")
    assert [pod.metadata.name for pod in listing.items] == ["0-0", "0-1", "1-0", "1-1", "2-0"]
    assert listing.resource_version == "42"
    assert {asked.query["limit"] for asked in server.asked} == {"500"}
    assert {(asked.query["labelSelector"], asked.query["fieldSelector"]) for asked in server.asked} == {
        ("a=b", "c=d")
    }


def test_each_page_may_have_another_timeout() -> None:
    timeouts = iter([30.0, 30.0, 0.1])
    of_pages = pages(1, 1, 1)
    with serving(lambda asked: hangs if asked.query.get("continue") == "2" else of_pages(asked)) as server:
        reading = server.client(timeout=60).list_pages(PODS, page_size=1, timeout=lambda: next(timeouts))
        assert len([next(reading), next(reading)]) == 2
        with pytest.raises(Unreachable):
            next(reading)
    assert not [*timeouts]


def test_a_list_whose_pages_expire_is_asked_for_once_as_a_whole() -> None:
    def answer(asked: Asked) -> Answer:
        if "continue" in asked.query:
            return refuses(410, "Expired")
        return pages(1, 1)(asked) if "limit" in asked.query else pages(5)(asked)

    with serving(answer) as server:
        assert len(server.client().list(PODS).items) == 5


def test_a_list_that_expires_as_a_whole_is_an_error() -> None:
    with serving(lambda asked: refuses(410, "Expired")) as server, pytest.raises(Expired):
        server.client().list(PODS)


def test_discovery_tells_what_is_served() -> None:
    leases = {"kind": "APIResourceList", "resources": [{"name": "leases"}, {"name": "leases/status"}]}
    with serving(
        lambda asked: answers(leases) if "coord" in asked.path else refuses(404, "NotFound")
    ) as server:
        client = server.client()
        assert client.serves(LEASES)
        assert not client.serves(Resource("coordination.k8s.io", "v1", "leasecandidates"))
        assert not client.serves(Resource("projectcalico.org", "v3", "ipreservations"))


def test_a_watch_yields_lines_however_they_are_cut() -> None:
    with (
        serving(lambda asked: streams([b'{"a"', b': 1}\n\n{"b": 2}\n{"c', b'": 3}\n'], ends)) as server,
        server.client().watch(
            PODS, Selection(), resource_version="5", duration=300, read_timeout=1.0
        ) as lines,
    ):
        assert list(lines) == [b'{"a": 1}', b'{"b": 2}', b'{"c": 3}']
    assert server.asked[0].query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
        "timeoutSeconds": "300",
    }
