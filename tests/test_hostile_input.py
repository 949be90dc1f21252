"""The installed server under hostile input: answered by the rules, and harmless to all others."""

import copy
import gzip
import http.client
import itertools
import json
import re
import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.waiting import until
from tests.factories import raw_pod
from tests.hostile import JSON, PATH, VALID, Bystander, Caller, cost, installed, valid_review
from tests.server import Answer, Server, is_closed, post, read_response, trusting

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
    """Each is one short JSON object that tells of the client's mistake, and of none of ours."""
    told = [json.loads(line) for line in lines]
    assert [each for each in told if "exception" in each or each["level"] in ("error", "critical")] == []
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


def places(value: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where in *value* something stands that could be something else."""
    yield place
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*place, key))


def replaced(place: tuple[str | int, ...], new: object) -> bytes:
    whole = {"": copy.deepcopy(valid_review())}
    part: Any = whole
    for key in ("", *place)[:-1]:
        part = part[key]
    part[("", *place)[-1]] = new
    return json.dumps(whole[""]).encode()


PLACES = list(places(valid_review()))


def damaged(begin: int, length: int, new: bytes) -> bytes:
    return VALID[:begin] + new + VALID[begin + length :]


bodies = st.one_of(
    st.binary(max_size=100),
    st.builds(damaged, st.integers(0, len(VALID)), st.integers(0, 40), st.binary(max_size=4)),
    st.builds(lambda end: VALID[:end], st.integers(0, len(VALID) - 1)),
    st.builds(replaced, st.sampled_from(PLACES), json_values),
    st.builds(lambda value: json.dumps(value).encode(), json_values),
)


def test_hundreds_of_malformed_bodies_are_each_answered(caller: Caller, bystander: Bystander) -> None:
    @settings(many_examples, max_examples=700)
    @given(bodies)
    def answered(body: bytes) -> None:
        assert_proper(caller.ask(body), body)

    answered()
    assert bystander.is_served()


WRONG = (None, True, -1, 1.5, 10**30, 10**400, "", "x", "x" * 300, "../..", "\ud800", [], {}, [[]], {"a": {}})


def test_a_wrong_type_in_any_field_is_answered(caller: Caller) -> None:
    for place, wrong in itertools.product(PLACES, WRONG):
        body = replaced(place, wrong)
        assert_proper(caller.ask(body), body)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b"", 400, id="nothing"),
        pytest.param(b"\0" * 1000, 400, id="zeros"),
        pytest.param(b"\xef\xbb\xbf" + VALID, 400, id="a byte order mark"),
        pytest.param(json.dumps(valid_review()).encode("utf-16"), 400, id="UTF-16"),
        pytest.param(gzip.compress(VALID), 400, id="gzip"),
        pytest.param(VALID + VALID, 400, id="two reviews"),
        pytest.param(VALID.replace(b'"redis-0"', b'"\\ud800"'), 400, id="half a surrogate pair"),
        pytest.param(VALID.replace(b'"redis-0"', b'"\xff"'), 400, id="not UTF-8"),
        pytest.param(VALID.replace(b'"node-1"', b'"\xff"'), 200, id="not UTF-8 within the pod"),
        pytest.param(VALID.replace(b"false", b"NaN"), 400, id="NaN"),
        pytest.param(VALID.replace(b'"dryRun": false', b'"dryRun": 1e999'), 400, id="infinity"),
        pytest.param(VALID.replace(b"false", b"9" * 100_000), 400, id="a very long number"),
        pytest.param(VALID.replace(b'"dryRun"', b'"dryRun": true, "dryRun"'), 200, id="a duplicate key"),
        pytest.param(b"[" * 1_000_000, 400, id="deep lists"),
        pytest.param(b'{"request":' * 100_000, 400, id="deep objects"),
        pytest.param(
            VALID.replace(b'"options"', b'"x": %s1%s, "options"' % (b"[" * 100_000, b"]" * 100_000)),
            400,
            id="depth where nobody looks",
        ),
        pytest.param(replaced(("kind",), "\x7f" * 1_000_000), 400, id="a very long kind"),
        pytest.param(replaced(("request", "operation"), "x" * 1_000_000), 400, id="a very long operation"),
        pytest.param(replaced(("request", "uid"), "x" * 1_000_000), 400, id="a very long uid"),
        pytest.param(replaced(("request", "name"), "x" * 1_000_000), 400, id="a very long name"),
        pytest.param(replaced(("request", "namespace"), "../../apis"), 400, id="a namespace that is a path"),
        pytest.param(replaced(("request", "namespace"), ".."), 400, id="a namespace that leads upwards"),
        pytest.param(replaced(("request", "namespace"), "x\n"), 400, id="a namespace of two lines"),
        pytest.param(replaced(("request", "name"), "x?watch=true"), 400, id="a name that is a query"),
        pytest.param(replaced(("request", "name"), "%2e%2e"), 400, id="a quoted name"),
        pytest.param(
            replaced(("request", "object"), {str(n): n for n in range(50_000)}), 200, id="many keys"
        ),
        pytest.param(b" " * (MAX_BODY - len(VALID)) + VALID, 200, id="as large as may be"),
        pytest.param(b" " * (MAX_BODY - len(VALID) + 1) + VALID, 413, id="too large"),
    ],
)
def test_odd_bodies_have_their_status(caller: Caller, body: bytes, status: int) -> None:
    assert caller.ask(body).status == status


# Requests


def reserving(name: str) -> bytes:
    """A review that is waited for until the IP of that pod is reserved."""
    return json.dumps(valid_review(oldObject=raw_pod(name))).encode()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        *(
            pytest.param({"method": method}, 405, id=method)
            for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW")
        ),
        *(
            pytest.param({"headers": {"Content-Type": kind} if kind else {}}, 415, id=f"type {kind}")
            for kind in ("", "text/plain", "application/jsonx", "application/x-protobuf", "é", "a" * 4000)
        ),
        *(
            pytest.param({"path": path}, 404, id=f"path {path[:20]}")
            for path in (
                "/",
                "//",
                f"{PATH}/",
                f"{PATH}%00",
                "/%ff",
                "/../../etc/passwd",
                "/..;/",
            )
        ),
        *(
            pytest.param(
                {"path": f"{PATH}?timeout={timeout}", "body": reserving(f"redis-{number}")},
                200,
                id=f"timeout {timeout[:12]}",
            )
            for number, timeout in enumerate(
                ("", "0s", "-1s", "nan", "%00", "%ff", "1s&timeout=x", f"{'9' * 12}h", f"{'9' * 400}h")
            )
        ),
        pytest.param({"path": f"{PATH}?{'a=b&' * 900}"}, 200, id="a long query"),
        pytest.param({"path": f"/{'x' * 8000}"}, 414, id="a very long path"),
        pytest.param({"headers": JSON | {"Content-Encoding": "gzip"}}, 200, id="not gzip, though it says so"),
        pytest.param({"headers": JSON | {f"X-{n}": "x" for n in range(60)}}, 431, id="many headers"),
        pytest.param({"headers": JSON | {"X": "x" * 9000}}, 431, id="a long header"),
    ],
)
def test_odd_requests_have_their_status(caller: Caller, request_: dict[str, Any], status: int) -> None:
    assert caller.ask(**request_).status == status


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"\0" * 300, id="zeros"),
        pytest.param(b"GET", id="half a request line"),
        pytest.param(b"POST / HTTP/9.9\r\nHost: x", id="another version"),
        pytest.param(b"POST  /  HTTP/1.1", id="blanks"),
        pytest.param(b"PRI * HTTP/2.0", id="HTTP/2"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS within TLS"),
        pytest.param(b"POST / HTTP/1.1\r\n: x", id="a header without a name"),
        pytest.param(b"POST / HTTP/1.1\r\nA\r\n b: x", id="a folded header"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: -1", id="a length below zero"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 1e3", id="a length that is no number"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2", id="two lengths"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 100, id="a very long length"),
        pytest.param(b"POST / HTTP/1.1\r\n" + b"X: y\r\n" * 5_000, id="thousands of headers"),
        pytest.param(b"POST /" + b"a" * 70_000, id="a request line without end"),
        pytest.param(b"POST / HTTP/1.1\r\nX: " + b"a" * 70_000, id="a header without end"),
        pytest.param(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked", id="chunks"),
        pytest.param(b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked", id="compressed chunks"),
        pytest.param(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1", id="an expectation"),
        pytest.param(b"POST / HTTP/1.1\r\nExpect: 200-maybe", id="another expectation"),
    ],
)
def test_what_is_no_request_is_refused_and_its_connection_closed(server: Server, head: bytes) -> None:
    sock = server.tls()
    sock.sendall(head + b"\r\n\r\nbody")
    answer = read_response(sock)
    assert 400 <= answer.status < 500
    assert answer.connection == "close"
    assert b"Traceback" not in answer.body
    assert len(answer.body) < 8 * 1024
    assert is_closed(sock, within=10)


def test_garbage_instead_of_a_request_is_refused(server: Server, bystander: Bystander) -> None:
    context = trusting()

    @settings(many_examples, max_examples=100)
    @given(st.binary(max_size=60))
    def ended(garbage: bytes) -> None:
        with context.wrap_socket(server.raw(), server_hostname="localhost") as sock:
            sock.sendall(garbage + b"\r\n\r\n")
            assert re.match(rb"HTTP/1.1 4\d\d ", received(sock))

    ended()
    assert bystander.is_served()


def received(sock: socket.socket) -> bytes:
    """All until the other side closes."""
    return b"".join(iter(lambda: sock.recv(65536), b""))


def test_whatever_follows_a_review_in_one_go_does_not_spoil_its_answer(server: Server) -> None:
    for rest in (b"\r\n\r\n", b"\0" * 100 + b"\r\n\r\n", post(b"{", PATH), b"GET / HTTP/1.1\r\n\r\n"):
        sock = server.tls()
        sock.sendall(post(VALID, PATH) + rest)
        assert b'"allowed":true' in read_response(sock).body
        assert 400 <= read_response(sock).status < 500


# Clients in numbers


def silent(server: Server) -> socket.socket:
    return server.raw()


def without_tls(server: Server) -> socket.socket:
    return sending(server.raw(), b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")


def stalled_in_the_handshake(server: Server) -> socket.socket:
    return sending(server.raw(), b"\x16\x03\x01")


def silent_after_the_handshake(server: Server) -> socket.socket:
    return server.tls()


def stalled_in_the_head(server: Server) -> socket.socket:
    return sending(server.tls(), post(VALID, PATH)[:30])


def stalled_in_the_body(server: Server) -> socket.socket:
    return sending(server.tls(), post(VALID, PATH)[:-5])


def announcing_too_much(server: Server) -> socket.socket:
    return sending(server.tls(), post(b"", PATH).replace(b"Length: 0", b"Length: 999999999999"))


def gone_in_the_body(server: Server) -> socket.socket:
    sock = stalled_in_the_body(server)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    return sock


def sending(sock: socket.socket, data: bytes) -> socket.socket:
    sock.sendall(data)
    return sock


NUISANCES: tuple[Callable[[Server], socket.socket], ...] = (
    silent,
    without_tls,
    stalled_in_the_handshake,
    stalled_in_the_head,
    stalled_in_the_body,
    announcing_too_much,
    gone_in_the_body,
)


def test_hundreds_of_bad_clients_at_once_are_dropped_and_delay_nobody(
    server: Server, bystander: Bystander
) -> None:
    # These may stay: they look like the connections that an API server opens ahead of its need.
    idle = [silent_after_the_handshake(server) for _ in range(MANY)]
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


def status_of(server: Server, request: bytes) -> int | None:
    """None when the server closes the connection while it is still being sent."""
    sock = server.tls()
    try:
        sock.sendall(request)
        return read_response(sock).status
    except (OSError, http.client.HTTPException):
        return None
