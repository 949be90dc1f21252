"""The installed server under hostile input: answered by the rules, and harmless to all others."""

import gzip
import http.client
import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dev.lab.waiting import until
from tests.factories import BEYOND_ALL_TIMES, raw_pod
from tests.hostile import JSON, PATH, VALID, Bystander, Caller, cost, installed, valid_review
from tests.hostile_objects import Place, places, replaced
from tests.server import Answer, Server, is_closed, post, read_response, trusting
from tests.sockets import reset, sent

MAX_BODY = 7 * 1024 * 1024
MANY = 40
SPARE_FILES, SPARE_MEMORY = 16, 64.0
"""What the server may hold more than before: connections to the API server, and MiB that malloc keeps."""
MEMORY_LIMIT = 512.0
"""MiB, of the container, as the chart limits it."""

many_examples = settings(
    derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Up and warm."""
    with installed(tmp_path_factory.mktemp("hostile")) as running:
        caller = Caller(running.port, trusting())
        for _ in range(100):
            assert caller.ask().status == 200
        caller.close()
        yield running


@pytest.fixture
def caller(server: Server) -> Iterator[Caller]:
    one = Caller(server.port, trusting())
    yield one
    one.close()


@pytest.fixture(scope="module")
def bystander(server: Server) -> Iterator[Bystander]:
    good = Bystander(server)
    yield good
    assert good.is_served()
    good.stop()


@pytest.fixture
def spare_memory() -> float:
    return SPARE_MEMORY


@pytest.fixture(autouse=True)
def unharmed(server: Server, bystander: Bystander, spare_memory: float) -> Iterator[None]:
    """During each test a good client is served, and after it nothing is left of the bad ones."""
    before, seen = cost(server), len(server.lines)
    yield
    assert bystander.failed == []
    server.close_clients()
    until(lambda: cost(server).files <= before.files + SPARE_FILES, 20)
    assert cost(server).memory <= before.memory + spare_memory
    assert_terse(server.lines[seen:])


def assert_terse(lines: list[str]) -> None:
    """Each is one short JSON object about the client's mistake, and none is about ours."""
    entries = [json.loads(line) for line in lines]
    assert [each for each in entries if "exception" in each or each["level"] in ("error", "critical")] == []
    assert max(map(len, lines), default=0) < 8 * 1024


def assert_proper(answer: Answer, body: bytes) -> None:
    """An AdmissionReview for what was asked, or one line that says what was wrong with it."""
    if answer.status == 200:
        response = json.loads(answer.body)["response"]
        assert response["uid"] == json.loads(body.decode(errors="replace"))["request"]["uid"]
        assert isinstance(response["allowed"], bool)
        return
    assert (answer.status, answer.headers.get_content_type()) == (400, "text/plain")
    assert answer.body.count(b"\n") == 1
    assert 10 < len(answer.body) < 1024


# Bodies


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def with_wrong(place: Place, wrong: object) -> bytes:
    return json.dumps(replaced(valid_review(), place, wrong)).encode()


PLACES = list(places(valid_review()))


def damaged(begin: int, length: int, new: bytes) -> bytes:
    return VALID[:begin] + new + VALID[begin + length :]


bodies = st.one_of(
    st.binary(max_size=100),
    st.builds(damaged, st.integers(0, len(VALID)), st.integers(0, 40), st.binary(max_size=4)),
    st.builds(lambda end: VALID[:end], st.integers(0, len(VALID) - 1)),
    st.builds(with_wrong, st.sampled_from(PLACES), json_values),
    st.builds(lambda value: json.dumps(value).encode(), json_values),
)


def test_hundreds_of_malformed_bodies_are_each_answered(caller: Caller, bystander: Bystander) -> None:
    @settings(many_examples, max_examples=700)
    @given(bodies)
    def answered(body: bytes) -> None:
        assert_proper(caller.ask(body), body)

    answered()
    assert bystander.is_served()


DEPTH = b'"x": %s1%s, "options"' % (b"[" * 100_000, b"]" * 100_000)
LISTS = b"[]," * 600_000
BODIES: dict[str, tuple[int, bytes]] = {
    "a byte order mark": (400, b"\xef\xbb\xbf" + VALID),
    "UTF-16": (400, json.dumps(valid_review()).encode("utf-16")),
    "gzip": (400, gzip.compress(VALID)),
    "two reviews": (400, VALID + VALID),
    "half a surrogate pair": (400, VALID.replace(b'"redis-0"', b'"\\ud800"')),
    "not UTF-8": (400, VALID.replace(b'"redis-0"', b'"\xff"')),
    "not UTF-8 within the pod": (200, VALID.replace(b'"node-1"', b'"\xff"')),
    "NaN": (400, VALID.replace(b"false", b"NaN")),
    "infinity": (400, VALID.replace(b'"dryRun": false', b'"dryRun": 1e999')),
    "a very long number": (400, VALID.replace(b"false", b"9" * 100_000)),
    "a duplicate key": (200, VALID.replace(b'"dryRun"', b'"dryRun": true, "dryRun"')),
    "deep lists": (400, b"[" * 400_000),
    "very deep lists": (400, b"[" * 1_000_000),
    "deep objects": (400, b'{"request":' * 100_000),
    "depth in a field that is not read": (200, VALID.replace(b'"options"', DEPTH)),
    "depth that takes too long to cut": (400, VALID.replace(b'"options"', b'"y":[%s1],%s' % (LISTS, DEPTH))),
    "a very long uid": (400, with_wrong(("request", "uid"), "x" * 1_000_000)),
    "a namespace that is a path": (400, with_wrong(("request", "namespace"), "../../apis")),
    "many keys": (200, with_wrong(("request", "object"), {str(n): n for n in range(50_000)})),
    "the largest": (200, b" " * (MAX_BODY - len(VALID)) + VALID),
    "too large": (413, b" " * (MAX_BODY - len(VALID) + 1) + VALID),
}
"""What else is no name or namespace stands in tests/test_admission.py."""


@pytest.mark.parametrize(("status", "body"), BODIES.values(), ids=BODIES)
def test_odd_bodies_have_their_status(caller: Caller, status: int, body: bytes) -> None:
    assert caller.ask(body).status == status


# Requests


def reserving(name: str) -> bytes:
    """A review that is answered when the IP of that pod is reserved."""
    return json.dumps(valid_review(oldObject=raw_pod(name))).encode()


TIMEOUTS = ("", "0s", "-1s", "nan", "%00", "%ff", "1s&timeout=x", f"{'9' * 12}h", f"{'9' * 400}h")
REQUESTS: list[tuple[int, dict[str, Any]]] = [
    *((405, {"method": method}) for method in ("GET", "HEAD", "PUT", "CONNECT", "BREW")),
    (415, {"headers": {}}),
    *(
        (415, {"headers": {"Content-Type": kind}})
        for kind in ("text/plain", "application/jsonx", "é", "a" * 4000)
    ),
    *(
        (404, {"path": path})
        for path in ("//", f"{PATH}/", f"{PATH}%00", "/%ff", "/../../etc/passwd", "/..;/")
    ),
    *(
        (200, {"path": f"{PATH}?timeout={timeout}", "body": reserving(f"redis-{number}")})
        for number, timeout in enumerate(TIMEOUTS)
    ),
    (200, {"path": f"{PATH}?{'a=b&' * 900}"}),
    (414, {"path": f"/{'x' * 8000}"}),
    (200, {"headers": JSON | {"Content-Encoding": "gzip"}}),
    (200, {"headers": JSON | {"SCRIPT_NAME": "/x", "PATH_INFO": "/y"}}),
    (200, {"headers": JSON | {"X-Forwarded-Proto": "https", "X-Forwarded-Ssl": "off"}}),
    (431, {"headers": JSON | {f"X-{n}": "x" for n in range(60)}}),
    (431, {"headers": JSON | {"X": "x" * 17_000}}),
]


@pytest.mark.parametrize(
    ("status", "request_"), REQUESTS, ids=lambda each: each if isinstance(each, int) else str(each)[:40]
)
def test_odd_requests_have_their_status(caller: Caller, status: int, request_: dict[str, Any]) -> None:
    assert caller.ask(**request_).status == status


POST = b"POST / HTTP/1.1\r\n"
HEADS = {
    "zeros": b"\0" * 300,
    "HTTP/2": b"PRI * HTTP/2.0",
    "TLS within TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "thousands of headers": POST + b"X: y\r\n" * 5_000,
    "compressed chunks": POST + b"Transfer-Encoding: gzip, chunked",
}
"""What else is no request stands in tests/test_inbox.py."""


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_what_is_no_request_is_refused_and_its_connection_closed(server: Server, head: bytes) -> None:
    sock = sent(server.tls(), head + b"\r\n\r\nbody")
    answer = read_response(sock)
    assert 400 <= answer.status < 500
    assert answer.connection == "close"
    assert b"Traceback" not in answer.body
    assert len(answer.body) < 8 * 1024
    assert is_closed(sock, within=10)


def test_bytes_after_a_review_do_not_change_its_answer(server: Server) -> None:
    for rest in (b"\r\n\r\n", b"\0" * 100 + b"\r\n\r\n", post(b"{", PATH), b"GET / HTTP/1.1\r\n\r\n"):
        sock = sent(server.tls(), post(VALID, PATH) + rest)
        assert b'"allowed":true' in read_response(sock).body
        assert 400 <= read_response(sock).status < 500


# Clients in numbers


def gone_in_the_body(server: Server) -> socket.socket:
    sock = sent(server.tls(), post(VALID, PATH)[:-5])
    reset(sock)
    return sock


def in_small_records(server: Server) -> socket.socket:
    sock = server.tls()
    with suppress(OSError):
        for byte in post(VALID, PATH):
            sock.sendall(bytes([byte]))
    return sock


NUISANCES: tuple[Callable[[Server], socket.socket], ...] = (
    Server.raw,
    lambda server: sent(server.raw(), b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    lambda server: sent(server.raw(), b"\x16\x03\x01"),
    lambda server: sent(server.tls(), post(VALID, PATH)[:30]),
    lambda server: sent(server.tls(), post(VALID, PATH)[:-5]),
    lambda server: sent(server.tls(), post(b"", PATH).replace(b"Length: 0", b"Length: 999999999999")),
    gone_in_the_body,
    in_small_records,
)
"""Clients that are silent, speak without TLS, stop in the handshake, the head or the body, announce too much, or send
each byte in a TLS record."""


def test_hundreds_of_bad_clients_at_once_are_dropped_and_delay_no_other_client(
    server: Server, bystander: Bystander
) -> None:
    # These may stay: they look like the connections that an API server opens ahead of its need.
    idle = [server.tls() for _ in range(MANY)]
    bad = [nuisance(server) for _ in range(MANY) for nuisance in NUISANCES]
    assert bystander.is_served()
    assert not is_closed(idle[0], within=0.1)
    assert all(is_closed(sock, within=20) for sock in bad if sock.fileno() >= 0)


@pytest.mark.parametrize("spare_memory", [pytest.param(MEMORY_LIMIT, id="in the container's memory")])
def test_many_large_bodies_at_once_are_taken_or_put_off(server: Server, bystander: Bystander) -> None:
    large = post(b" " * (5 * 1024 * 1024) + VALID, PATH)
    with ThreadPoolExecutor(20) as senders:
        statuses = list(senders.map(lambda _: status_of(server, large), range(20)))
    assert bystander.is_served()
    assert 200 in statuses
    assert set(statuses) <= {200, 503, None}
    assert cost(server).peak < MEMORY_LIMIT


INFLATED = (("metadata", "ownerReferences"), ("status", "conditions"), ("status", "podIPs"), ("x",))


@pytest.mark.parametrize("spare_memory", [pytest.param(MEMORY_LIMIT, id="in the container's memory")])
@pytest.mark.parametrize("field", INFLATED, ids=lambda field: ".".join(field))
def test_what_takes_much_more_memory_than_its_size_is_left_out_before_it_is_decoded(
    server: Server, bystander: Bystander, field: tuple[str, ...]
) -> None:
    body = with_wrong(("request", "oldObject", *field), "HERE").replace(b'"HERE"', b"[]")
    place = body.rindex(b"[]")
    inflated = post(body[:place] + b"[%s{}]" % (b"{}," * 2_100_000) + body[place + 2 :], PATH)
    with ThreadPoolExecutor(6) as senders:
        statuses = set(senders.map(lambda _: status_of(server, inflated), range(6)))
    assert bystander.is_served()
    assert statuses <= {200, 503, None}
    assert cost(server).peak < MEMORY_LIMIT / 2


def many(count: int, item: Any) -> list[Any]:
    return [item(n) for n in range(count)]


STORED: dict[str, dict[str, Any]] = {
    "text with many commas": {"spec": {"containers": [{"name": "a", "args": ["1," * 700_000]}]}},
    "many empty words": {"spec": {"containers": [{"name": "a", "args": [""] * 750_000}]}},
    "many variables": {
        "spec": {"containers": [{"name": "a", "env": many(220_000, lambda n: {"name": f"{n}"})}]}
    },
    "many readiness gates": {"spec": {"readinessGates": many(200_000, lambda n: {"conditionType": f"{n}"})}},
    "many field managers": {
        "metadata": {"managedFields": [{"fieldsV1": {f"f:{n}": {} for n in range(120_000)}}]}
    },
    "deep fields of a manager": {"metadata": {"managedFields": "DEEP"}},
    "times beyond all years": {"status": {"conditions": BEYOND_ALL_TIMES}},
    "many owners": {
        "metadata": {
            "ownerReferences": many(
                75_000, lambda n: {"apiVersion": "v1", "kind": "A", "name": "a", "uid": f"{n}"}
            )
        }
    },
    "many labels": {
        "metadata": {"labels": raw_pod()["metadata"]["labels"] | {f"{n}": "" for n in range(140_000)}}
    },
    "annotations that JSON escapes": {"metadata": {"annotations": {"a": "\x01" * 256 * 1024}}},
    "many annotations": {"metadata": {"annotations": {f"{n}": "" for n in range(50_000)}}},
}
"""An API server stores up to 1.5 MiB of an object, in its compact form."""


@pytest.mark.parametrize("parts", STORED.values(), ids=STORED)
def test_any_pod_that_an_api_server_stores_can_be_deleted(caller: Caller, parts: dict[str, Any]) -> None:
    pod = raw_pod("redis-1", ip="10.0.0.1", **parts)
    body = json.dumps(valid_review(oldObject=pod), separators=(",", ":")).encode()
    body = body.replace(b'"DEEP"', b'{"f:a":' * 9_000 + b"{}" + b"}" * 9_000)

    answer = caller.ask(body)

    assert (answer.status, json.loads(answer.body)["response"]["allowed"]) == (200, True)
    assert json.loads(answer.body)["response"]["auditAnnotations"]["reserved"] == "10.0.0.1/32"


def status_of(server: Server, request: bytes) -> int | None:
    """None when the server closes the connection while it is still being sent."""
    sock = server.tls()
    try:
        sock.sendall(request)
        return read_response(sock).status
    except (OSError, http.client.HTTPException):
        return None
