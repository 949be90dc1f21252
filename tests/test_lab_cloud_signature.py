"""The emulated cloud accepts and refuses what the real one would, in its words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dev.lab.cloud import Cloud, Knobs, serving
from dev.lab.cloud.request import Request
from dev.lab.cloud.signature import Claim, sign, string_to_sign, verify
from tests.sdk import sdk, without_proxies

NOW = 1551113065
BODY = b'{"Limit": 1, "Filters": [{"Values": ["\\u672a\\u547d\\u540d"], "Name": "instance-name"}]}'
PUBLISHED = Request(
    "POST",
    "/",
    "",
    {
        "content-type": "application/json; charset=utf-8",
        "host": "cvm.tencentcloudapi.com",
        "x-tc-action": "DescribeInstances",
        "x-tc-timestamp": str(NOW),
    },
    BODY,
)


def published(*headers: str) -> Claim:
    return Claim("AKIDz8krbsJ5yKBZQpn74WFkmLPx3EXAMPLE", "2019-02-25", "cvm", headers, "")


@pytest.mark.parametrize(
    ("key", "headers", "signature"),
    [
        pytest.param(
            "Gu5t9xGARNpq86cd98joQYCN3EXAMPLE",
            ("content-type", "host"),
            "72e494ea809ad7a8c8f7a4507b9bddcbaa8e581f516e8da2f66e2c5a96525168",
            id="two headers",
        ),
        pytest.param(
            "*" * 32,
            ("content-type", "host", "x-tc-action"),
            "10b1a37a7301a02ca19a647ad722d5e43b4b3cff309d421d85b46093f6ab6c4f",
            id="the action too, in lower case",
        ),
    ],
)
def test_both_published_examples_are_signed_as_published(
    key: str, headers: tuple[str, ...], signature: str
) -> None:
    said = published(*headers)

    assert sign(key, said, string_to_sign(PUBLISHED, said)) == signature
    verify(PUBLISHED, replace(said, signature=signature), lambda *_: key, NOW)


def signed(key: str = "key", at: int = NOW, date: str = "2019-02-25") -> Request:
    request = replace(PUBLISHED, headers={**PUBLISHED.headers, "x-tc-timestamp": str(at)})
    said = replace(published("content-type", "host"), date=date)
    signature = sign(key, said, string_to_sign(request, said))
    header = (
        f"TC3-HMAC-SHA256 Credential={said.secret_id}/{date}/cvm/tc3_request, "
        f"SignedHeaders=content-type;host, Signature={signature}"
    )
    return replace(request, headers={**request.headers, "authorization": header})


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    without_proxies(monkeypatch)
    with serving(Knobs(tag_lag_seconds=0)) as cloud:
        yield cloud


@pytest.mark.parametrize(
    ("how", "knobs", "code"),
    [
        pytest.param({}, {}, None, id="the emulator's own account"),
        pytest.param({"secret_id": "AKIDnobody"}, {}, "AuthFailure.SecretIdNotFound", id="unknown id"),
        pytest.param({"secret_id": "nobody"}, {}, "AuthFailure.InvalidSecretId", id="no id at all"),
        pytest.param({"secret_id": "two words"}, {}, "AuthFailure.InvalidAuthorization", id="a blank within"),
        pytest.param({}, {"clock_skew_seconds": 240}, None, id="a clock that is a little slow"),
        pytest.param({}, {"clock_skew_seconds": -240}, None, id="a clock that is a little fast"),
        pytest.param({}, {"clock_skew_seconds": 360}, "AuthFailure.SignatureExpire", id="a slow clock"),
        pytest.param({}, {"clock_skew_seconds": -360}, "AuthFailure.SignatureExpire", id="a fast clock"),
        pytest.param({"region": "ap-atlantis"}, {}, "UnsupportedRegion", id="unknown region"),
        pytest.param({"region": ""}, {}, "MissingParameter", id="no region"),
    ],
)
def test_the_vendors_client_is_accepted_or_refused_as_documented(
    cloud: Cloud, how: dict[str, Any], knobs: dict[str, Any], code: str | None
) -> None:
    for name, value in knobs.items():
        setattr(cloud.knobs, name, value)
    with sdk(cloud.endpoint, **how) as call:
        if code is None:
            assert call("DescribeAddresses", Limit=5)["TotalCount"] == 0
        else:
            assert call.refused("DescribeAddresses", Limit=5) == code
