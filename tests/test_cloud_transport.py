"""What goes over the wire, and what becomes of every way to answer."""

from __future__ import annotations

import gzip
import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from cloud import apis, errors
from cloud.errors import CloudError
from cloud.responses import Addresses, Allocation, Done, Quotas
from cloud.transport import Transport, hung_up
from cloud.types import Keys
from settings import CloudSettings
from tests.cloud_server import KEYS, refuses, says, settings, transport
from tests.misbehaving_server import (
    Answer,
    Handler,
    Server,
    answers,
    breaks_off,
    drips,
    hangs,
    in_turn,
    resets,
    serving,
    trickles,
)
from tests.sdk import without_proxies


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    without_proxies(monkeypatch)


def ask(server: Server, *, timeout: float = 5.0) -> Quotas:
    return transport(server).call(apis.DESCRIBE_QUOTA, {}, Quotas, timeout)


def test_a_call_is_signed_and_names_version_region_and_language() -> None:
    with serving(in_turn(says(QuotaSet=[]))) as server:
        ask(server)
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.body) == ("POST", "/", {})
    assert asked.headers["authorization"].startswith("TC3-HMAC-SHA256 Credential=AKIDtest/")
    assert {name: asked.headers[f"x-tc-{name}"] for name in ("action", "version", "region", "language")} == {
        "action": "DescribeAddressQuota",
        "version": "2017-03-12",
        "region": "ap-singapore",
        "language": "en-US",
    }
    assert "drawbridge" in asked.headers["x-tc-requestclient"]
    assert "x-tc-token" not in asked.headers


def test_the_keys_of_the_moment_are_used() -> None:
    keys = [Keys("one", "k"), Keys("two", "k", "token")]
    with serving(in_turn(says())) as server:
        ours = Transport(settings(server), "r", iter(keys).__next__)
        for _ in range(2):
            ours.call(apis.CREATE_TAGS, {}, Done, 5.0)
    assert ["Credential=two" in asked.headers["authorization"] for asked in server.asked] == [False, True]
    assert server.asked[1].headers["x-tc-token"] == "token"


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "text/html"])
def test_what_an_answer_means_does_not_depend_on_its_content_type(content_type: str) -> None:
    refusal = refuses("AuthFailure.SecretIdNotFound", content_type)
    with serving(in_turn(says(content_type, QuotaSet=[]), refusal)) as server:
        assert ask(server).quota_set == []
        with pytest.raises(errors.NotPermitted) as caught:
            ask(server)
    assert (caught.value.code, caught.value.request_id) == ("AuthFailure.SecretIdNotFound", "r-1")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(says(), errors.Unavailable, id="a success without what was asked for"),
        pytest.param(says(QuotaSet=None), errors.Unavailable, id="null for what was asked for"),
        pytest.param(answers({"Response": {"QuotaSet": []}}), errors.Unavailable, id="no request id"),
        pytest.param(answers({"QuotaSet": []}), errors.Unavailable, id="no envelope"),
        pytest.param(answers(b"<html>hello"), errors.Unavailable, id="HTML"),
        pytest.param(answers(b'{"Response": {'), errors.Unavailable, id="half of JSON"),
        pytest.param(answers(b""), errors.Unavailable, id="nothing"),
        pytest.param(answers(b"\xff\xfe"), errors.Unavailable, id="not text"),
        pytest.param(answers(b"<html>502", 502), errors.Unavailable, id="502"),
        pytest.param(answers(b"slow down", 429), errors.Throttled, id="429 of a gateway"),
        pytest.param(
            answers({"Response": {"RequestId": "r", "Error": {"Code": "InternalError"}}}, 500),
            errors.ServerFault,
            id="an error that comes with another status",
        ),
        pytest.param(resets, errors.Unavailable, id="reset"),
        pytest.param(breaks_off(b'{"Response": '), errors.Unavailable, id="broken off"),
        pytest.param(refuses("RequestLimitExceeded"), errors.Throttled, id="throttled"),
    ],
)
def test_every_answer_is_a_result_or_an_error_of_ours(answer: Answer, kind: type[CloudError]) -> None:
    with serving(in_turn(answer)) as server, pytest.raises(CloudError) as caught:
        ask(server)
    assert type(caught.value) is kind
    assert "DescribeAddressQuota" in str(caught.value)


@pytest.mark.parametrize(
    "row", [{"AddressId": "eip-1"}, {"AddressStatus": "BIND"}], ids=["no status", "no id"]
)
def test_an_address_without_what_decisions_need_is_no_answer(row: dict[str, str]) -> None:
    with serving(in_turn(says(AddressSet=[row], TotalCount=1))) as server, pytest.raises(errors.Unavailable):
        transport(server).call(apis.DESCRIBE_ADDRESSES, {}, Addresses, 5.0)


@pytest.mark.parametrize(
    "begin", [b"", b"\r\n ", b"\xef\xbb\xbf", b"["], ids=["plain", "blanks", "mark", "list"]
)
def test_what_may_hold_keys_is_not_quoted(begin: bytes) -> None:
    secret = begin + b'{"Response": {"Credentials": {"TmpSecretKey": "hidden"'
    with serving(in_turn(answers(secret))) as server, pytest.raises(errors.Unavailable) as caught:
        ask(server)
    assert "hidden" not in str(caught.value)


SLOW = [
    pytest.param(hangs, id="hangs"),
    pytest.param(drips(b"HTTP/1.1 200 OK\r\nX-Drip: "), id="a head in drips"),
    pytest.param(trickles(b"x" * 400, pause=0.05), id="a body in drips"),
    pytest.param(drips(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"), id="a body in drips without length"),
]


@pytest.mark.parametrize("answer", SLOW)
def test_a_call_ends_within_its_timeout(answer: Answer) -> None:
    with serving(in_turn(answer)) as server:
        began = time.monotonic()
        with pytest.raises(errors.Unavailable):
            ask(server, timeout=0.3)
        assert time.monotonic() - began < 10


def test_an_authority_of_ones_own_is_trusted_when_it_is_named() -> None:
    with serving(in_turn(says(QuotaSet=[]))) as server:
        assert ask(server).quota_set == []
        with pytest.raises(errors.Unavailable, match="certificate"):
            transport(server, ca_file="").call(apis.DESCRIBE_QUOTA, {}, Quotas, 10.0)
        assert len(server.asked) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with serving(in_turn(says(TaskId="1"))) as other, serving(in_turn(says())) as server:
        server.answer = in_turn(answers(b"over there", status, Location=other.url))
        with pytest.raises(errors.Unavailable, match=f"over there.*HTTP{status}"):
            transport(server).call(apis.ASSOCIATE, {}, Done, 5.0)
        assert (len(server.asked), other.asked) == (1, [])


def test_where_no_server_listens_nothing_was_carried_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    nowhere = Transport(CloudSettings(endpoint=f"127.0.0.1:{port}"), "r", lambda: KEYS)
    with pytest.raises(errors.Unreachable):
        nowhere.call(apis.CREATE_TAGS, {}, Done, 5.0)


def test_nothing_is_sent_when_the_name_of_the_host_was_found_too_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = socket.getaddrinfo

    def late(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.3)
        return found(*args, **kwargs)

    with serving(in_turn(says(TaskId="1"))) as server:
        monkeypatch.setattr(socket, "getaddrinfo", late)
        with pytest.raises(errors.Unreachable):
            transport(server).call(apis.ASSOCIATE, {}, Done, 0.4)
        assert server.asked == []


def test_a_compressed_answer_is_read() -> None:
    content = gzip.compress(json.dumps({"Response": {"RequestId": "r", "QuotaSet": []}}).encode())
    with serving(in_turn(answers(content, Content_Encoding="gzip"))) as server:
        assert ask(server).quota_set == []


def test_calls_one_after_the_other_have_one_connection_and_calls_at_a_time_share_none() -> None:
    both = threading.Barrier(2)

    def together(handler: Handler) -> None:
        both.wait(30)
        says(QuotaSet=[])(handler)

    with serving(in_turn(*[says(QuotaSet=[])] * 3, together)) as server:
        ours = transport(server)

        def call() -> None:
            ours.call(apis.DESCRIBE_QUOTA, {}, Quotas, 30.0)

        for _ in range(3):
            call()
        other = threading.Thread(target=call)
        other.start()
        call()
        other.join()
    ports = [asked.port for asked in server.asked]
    assert len(set(ports[:3])) == 1
    assert len(set(ports)) == 2


def test_a_broken_answer_does_not_spoil_the_next_call() -> None:
    with serving(in_turn(answers(b"x" * 100_000), says(AddressSet=["eip-1"]))) as server:
        ours = transport(server)
        with pytest.raises(errors.Unavailable):
            ours.call(apis.ALLOCATE, {}, Allocation, 5.0)
        assert ours.call(apis.ALLOCATE, {}, Allocation, 5.0).address_set == ["eip-1"]


@pytest.mark.parametrize(
    ("exempt", "proxied"),
    [
        pytest.param("", True, id="none"),
        pytest.param("127.0.0.1", False, id="the host"),
        pytest.param("localhost,127.0.0.0/8", False, id="a network"),
        pytest.param("example.com", True, id="another host"),
    ],
)
def test_the_environments_proxy_is_used_but_for_what_it_exempts(
    monkeypatch: pytest.MonkeyPatch, exempt: str, proxied: bool
) -> None:
    with serving(in_turn(says(QuotaSet=[]))) as server, serving(in_turn(hangs)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.setenv("https_proxy", proxy.url)
        monkeypatch.setenv("NO_PROXY", exempt)
        with pytest.raises(errors.Unavailable) if proxied else nullcontext():
            ask(server)
        assert (len(proxy.asked), len(server.asked)) == ((1, 0) if proxied else (0, 1))


def test_the_configured_proxy_is_used_without_exemption_for_the_names_under_the_root_domain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_PROXY", "internal.tencentcloudapi.com")
    with serving(in_turn(hangs)) as proxy:
        inside = CloudSettings(root_domain="internal.tencentcloudapi.com", proxy=proxy.url)
        ours = Transport(inside, "r", lambda: KEYS)
        for api in (apis.ALLOCATE, apis.DESCRIBE_INSTANCES, apis.CREATE_TAGS):
            with pytest.raises(errors.Unavailable):
                ours.call(api, {}, Done, 5.0)
    assert [asked.path for asked in proxy.asked] == [
        "vpc.internal.tencentcloudapi.com:443",
        "cvm.internal.tencentcloudapi.com:443",
        "tag.internal.tencentcloudapi.com:443",
    ]


def test_no_log_level_shows_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(in_turn(says(QuotaSet=[]), refuses("AuthFailure"))) as server:
        ours = Transport(settings(server), "r", lambda: Keys("AKIDtest", "test-key", "test-token"))
        ours.call(apis.DESCRIBE_QUOTA, {}, Quotas, 5.0)
        with pytest.raises(errors.NotPermitted) as caught:
            ours.call(apis.DESCRIBE_QUOTA, {}, Quotas, 5.0)
    shown = (
        caplog.text
        + str(caught.value)
        + repr(caught.value)
        + repr(Keys("AKIDtest", "test-key", "test-token"))
    )
    assert "test-key" not in shown
    assert "test-token" not in shown
    assert "Signature=" not in shown
    assert "POST" in caplog.text  # the level was low enough to see what libraries say


def test_the_sdk_neither_repeats_nor_changes_region_by_itself() -> None:
    profile = Transport(CloudSettings(), "r", None)._new_client(apis.VPC).profile
    assert profile.retryer is None
    assert profile.disable_region_breaker


def test_a_connection_is_not_shut_once_its_call_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    due: list[Callable[[], None]] = []

    class LateTimer(threading.Timer):
        """Its time is up at once, but its function only runs when the test says so, as on a busy machine."""

        def start(self) -> None:
            due.append(self.function)

    monkeypatch.setattr(threading, "Timer", LateTimer)
    shut: list[str] = []
    with hung_up(0.0, lambda: shut.append("within")):
        due[0]()
    with hung_up(0.0, lambda: shut.append("after")):
        pass
    due[1]()

    assert shut == ["within"]
