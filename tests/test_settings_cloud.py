"""The part of the configuration that says how the cloud is reached."""

from __future__ import annotations

import pytest

from settings import CloudSettings, SettingsError, parse
from settings.changes import needing_restart

HEADER = "apiVersion: drawbridge.io/v1\nkind: DrawbridgeConfig\n"


def problem(text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        parse(HEADER + f"cloud: {{{text}}}")
    return str(caught.value)


def test_by_default_the_public_endpoints_are_meant_and_keys_are_looked_for() -> None:
    cloud = parse(HEADER).cloud
    assert cloud == CloudSettings()
    assert (cloud.scheme, cloud.root_domain, cloud.credentials) == ("https", "tencentcloudapi.com", "auto")


@pytest.mark.parametrize("endpoint", ["127.0.0.1:8080", "vpc.example.com", "[::1]:80", ""])
def test_an_endpoint_is_a_host_with_or_without_a_port(endpoint: str) -> None:
    assert parse(HEADER + f'cloud: {{endpoint: "{endpoint}"}}').cloud.endpoint == endpoint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            'endpoint: "http://127.0.0.1:8080"',
            "cloud.endpoint: 'http://127.0.0.1:8080' is not host or host:port; "
            "write for example vpc.example.com:8080, and the scheme in scheme",
            id="a scheme would become part of the signed host",
        ),
        pytest.param(
            "endpoint: host/path", "'host/path' is not host or host:port", id="a path breaks signatures"
        ),
        pytest.param(
            "region: hk", "cloud.region: 'hk' is not a region; write its long name", id="a short region"
        ),
        pytest.param("region: Hong Kong", "is not a region", id="no region at all"),
        pytest.param(
            "rootDomain: https://x.com", "cloud.rootDomain: 'https://x.com' is not a domain", id="domain"
        ),
        pytest.param("proxy: proxy", "cloud.proxy: 'proxy' is not the URL of a proxy", id="proxy"),
        pytest.param("scheme: ftp", "cloud.scheme: 'ftp' is refused", id="scheme"),
        pytest.param("credentials: root", "cloud.credentials: 'root' is refused", id="credentials"),
        pytest.param("rateShare: 0", "cloud.rateShare: 0 is refused", id="no share"),
        pytest.param("rateShare: 1.1", "cloud.rateShare: 1.1 is refused", id="more than all"),
        pytest.param(
            "attemptTimeout: 31s", "attemptTimeout (31s) must not be longer than callTimeout", id="time"
        ),
        pytest.param("secretID: x", "cloud.secretID: unknown field", id="secrets have no place here"),
    ],
)
def test_a_mistake_is_refused_with_field_value_and_way_out(text: str, expected: str) -> None:
    assert expected in problem(text)


def test_the_password_of_a_proxy_is_refused_and_not_repeated() -> None:
    told = problem('proxy: "http://user:hidden@proxy:3128"')
    assert "HTTPS_PROXY" in told
    assert "hidden" not in told


def test_another_way_to_the_cloud_needs_a_restart() -> None:
    assert needing_restart(["cloud.endpoint", "cloud.rateShare"]) == ["cloud.endpoint", "cloud.rateShare"]
