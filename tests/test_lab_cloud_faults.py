"""Trouble on order: what each knob does to the vendor's client, and what it leaves done or not done."""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException
from tencentcloud.cvm.v20170312 import errorcodes as cvm_codes
from tencentcloud.tag.v20180813 import errorcodes as tag_codes
from tencentcloud.vpc.v20170312 import errorcodes as vpc_codes

from lab.cloud import Cloud, Knobs, serving
from lab.cloud.envelope import Fault
from lab.cloud.limits import Limits
from lab.waiting import until
from tests.sdk import HandClock, Sdk, sdk, without_proxies

PACKAGE = Path(__file__).parent.parent / "lab" / "cloud"


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def cloud(clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    without_proxies(monkeypatch)
    with serving(Knobs(quota_total=500, quota_daily=1000), clock=clock) as cloud:
        yield cloud


@pytest.fixture
def call(cloud: Cloud) -> Iterator[Sdk]:
    with sdk(cloud.endpoint) as call:
        yield call


def test_an_action_is_called_ten_times_in_a_second_and_no_oftener(call: Sdk, clock: HandClock) -> None:
    for _ in range(10):
        call("AllocateAddresses")

    assert call.refused("AllocateAddresses") == "RequestLimitExceeded"
    call("DescribeAddresses")  # every action has its own
    clock.pass_(1)
    call("AllocateAddresses")


def admitted(knobs: Knobs, moments: list[float]) -> int:
    limits, count = Limits(), 0
    for moment in moments:
        try:
            limits.take(knobs, "A", "who", 10, moment)
        except Fault:
            continue
        count += 1
    return count


@pytest.mark.parametrize(
    ("knobs", "moments", "expected"),
    [
        pytest.param(Knobs(), [0.0] * 30, 10, id="documented"),
        pytest.param(Knobs(), [0.9] * 10 + [1.0] * 10, 20, id="windows begin with the second"),
        pytest.param(Knobs(sliding_windows=True), [0.9] * 10 + [1.0] * 10, 10, id="sliding windows"),
        pytest.param(Knobs(rate_scale=0.5), [0.0] * 30, 5, id="half of it"),
        pytest.param(Knobs(rates={"A": 3}), [0.0] * 30, 3, id="a rate of its own"),
        pytest.param(Knobs(rate_limits=False), [0.0] * 30, 30, id="no limits"),
        pytest.param(Knobs(), [0.1] * 30 + [1.1] * 3, 13, id="refused calls do not count"),
    ],
)
def test_limits_are_of_a_second_as_the_knobs_say(knobs: Knobs, moments: list[float], expected: int) -> None:
    assert admitted(knobs, moments) == expected


def test_a_throttled_call_is_not_carried_out(call: Sdk, cloud: Cloud) -> None:
    cloud.knobs.throttled, cloud.knobs.errors_after_commit = 1.0, True

    assert call.refused("AllocateAddresses") == "RequestLimitExceeded"
    assert cloud.world.addresses == {}


def test_a_lost_answer_is_of_a_call_that_was_carried_out(call: Sdk, cloud: Cloud) -> None:
    cloud.knobs.lost = 1.0

    assert call.refused("AllocateAddresses", ClientToken="a") == "ClientNetworkError"
    assert len(cloud.world.addresses) == 1
    (noted,) = cloud.world.calls
    assert (noted.action, noted.outcome, noted.delivered) == ("AllocateAddresses", "OK", False)
    cloud.knobs.lost = 0
    assert call("AllocateAddresses", ClientToken="a")["AddressSet"] == list(cloud.world.addresses)


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize(
    ("knob", "code", "noted"),
    [
        pytest.param("internal_errors", "InternalError", "InternalError", id="internal error"),
        pytest.param("server_errors", "ServerNetworkError", "HTTP 502", id="bad gateway"),
    ],
)
def test_an_error_of_the_server_comes_instead_of_the_deed_or_after_it(
    call: Sdk, cloud: Cloud, knob: str, code: str, noted: str, committed: bool
) -> None:
    setattr(cloud.knobs, knob, 1.0)
    cloud.knobs.errors_after_commit = committed

    assert call.refused("AllocateAddresses") == code
    assert len(cloud.world.addresses) == int(committed)
    (last,) = cloud.world.calls
    assert (last.outcome, last.delivered) == (("OK", False) if committed else (noted, True))


def test_a_page_of_html_is_answered_with_success(call: Sdk, cloud: Cloud) -> None:
    cloud.knobs.html = 1.0
    connection = http.client.HTTPConnection(cloud.endpoint)
    connection.request("POST", "/", b"{}", {"Content-Type": "application/json"})
    answer = connection.getresponse()

    assert (answer.status, answer.getheader("Content-Type")) == (200, "text/html")
    assert b"<html>" in answer.read()
    connection.close()


def test_a_charset_in_the_content_type_makes_the_vendors_client_take_an_error_for_success(
    call: Sdk, cloud: Cloud
) -> None:
    cloud.knobs.content_type = "application/json; charset=utf-8"
    cloud.knobs.quota_total = 0

    assert call("AllocateAddresses")["AddressSet"] is None
    assert cloud.world.calls[-1].outcome.startswith("AddressQuotaLimitExceeded")


def test_a_slow_answer_comes_after_the_caller_has_given_up_and_the_deed_is_done(cloud: Cloud) -> None:
    cloud.knobs.slow, cloud.knobs.slow_seconds = 1.0, 60

    with sdk(cloud.endpoint, timeout=0.5) as call:
        assert call.refused("AllocateAddresses") == "ClientNetworkError"
    until(lambda: len(cloud.world.addresses) == 1, 30)


COMMON = {
    "AuthFailure.InvalidAuthorization",
    "AuthFailure.InvalidSecretId",
    "AuthFailure.SecretIdNotFound",
    "AuthFailure.SignatureExpire",
    "AuthFailure.SignatureFailure",
    "AuthFailure.TokenFailure",
    "AuthFailure.UnauthorizedOperation",
    "InternalError",
    "InvalidParameter",
    "MissingParameter",
    "RequestLimitExceeded",
    "RequestSizeLimitExceeded",
    "UnknownParameter",
    "UnsupportedRegion",
}
"""Documented for every product; the gateway's ``Invalid...`` and ``NoSuch...`` are single words."""
STS = {"InvalidParameter.WebIdentityTokenError"}
CODE = re.compile(
    r'"([A-Z][A-Za-z]+\.[A-Z][A-Za-z]+|(?:Request[LS]|Missing|Unknown|Internal)[A-Z][A-Za-z]+)"'
)


def test_every_code_that_is_answered_is_one_that_the_vendor_documents() -> None:
    documented = {
        value
        for module in (vpc_codes, cvm_codes, tag_codes)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    answered = {code for file in PACKAGE.glob("*.py") for code in CODE.findall(file.read_text())}

    assert len(answered) > 40
    assert answered - documented - COMMON - STS == set()


def test_trouble_is_for_the_named_actions_only(call: Sdk, cloud: Cloud) -> None:
    cloud.knobs.throttled, cloud.knobs.faulty_actions = 1.0, ["AllocateAddresses"]

    assert call.refused("AllocateAddresses") == "RequestLimitExceeded"
    call("DescribeAddresses")


def test_calls_are_counted_by_action_and_outcome(call: Sdk, cloud: Cloud) -> None:
    call("DescribeAddresses", Limit=5)
    call("DescribeAddresses")
    call.refused("ReleaseAddresses", AddressIds=["eip-zzzzzzzz"])

    assert cloud.world.count() == {
        "DescribeAddresses": {"OK": 2},
        "ReleaseAddresses": {"InvalidAddressId.NotFound": 1},
    }
    assert cloud.world.calls[0].params == {"Limit": 5}


def test_a_server_that_ends_waits_for_no_slow_answer_and_cuts_idle_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_proxies(monkeypatch)
    before = threading.active_count()
    with serving(Knobs(slow=1.0, slow_seconds=60, faulty_actions=["AllocateAddresses"])) as cloud:
        idle, waiting = Sdk(cloud.endpoint), Sdk(cloud.endpoint)
        idle("DescribeAddresses")
        answers: list[str] = []
        thread = threading.Thread(target=lambda: answers.append(_code(waiting, "AllocateAddresses")))
        thread.start()
        until(lambda: bool(cloud.world.addresses), 30)
        begin = time.monotonic()
    assert time.monotonic() - begin < 30
    thread.join(60)

    assert answers == ["ClientNetworkError"]
    assert threading.active_count() <= before
    idle.close()
    waiting.close()


def _code(call: Sdk, action: str) -> str:
    try:
        call(action)
    except TencentCloudSDKException as error:
        return str(error.code)
    return "OK"


def test_addresses_that_many_callers_order_at_once_are_all_different(cloud: Cloud) -> None:
    cloud.knobs.rate_limits = False
    given: list[str] = []

    def order() -> None:
        with sdk(cloud.endpoint) as call:
            for _ in range(10):
                given.extend(call("AllocateAddresses")["AddressSet"])

    threads = [threading.Thread(target=order) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(set(given)) == 80
    assert set(cloud.world.addresses) == set(given)
    assert len({address.ip for address in cloud.world.addresses.values()}) == 80
