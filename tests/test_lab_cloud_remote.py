"""A cloud in another process is looked at and turned as one's own, and says what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lab.cloud import Cloud, serving
from lab.cloud.remote import Remote
from lab.errors import LabError
from tests.sdk import sdk, without_proxies


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    without_proxies(monkeypatch)
    with serving() as cloud:
        yield cloud


@pytest.fixture
def remote(cloud: Cloud) -> Remote:
    return Remote(cloud.endpoint)


def test_knobs_are_turned(cloud: Cloud, remote: Remote) -> None:
    remote.turn(quota_total=3)

    assert cloud.knobs.quota_total == 3
    assert remote.knobs()["quota_total"] == 3


def test_knobs_are_turned_back_however_the_block_ends(cloud: Cloud, remote: Remote) -> None:
    seen: list[tuple[float, list[str]]] = []

    def fail() -> None:
        with remote.turned(throttled=1, denied=["CreateTags"]):
            seen.append((cloud.knobs.throttled, cloud.knobs.denied))
            raise ZeroDivisionError

    remote.turn(throttled=0.1)
    with pytest.raises(ZeroDivisionError):
        fail()
    assert seen == [(1, ["CreateTags"])]
    assert (cloud.knobs.throttled, cloud.knobs.denied) == (0.1, [])


def test_an_address_is_held_by_another_user_with_tags_that_exist(cloud: Cloud, remote: Remote) -> None:
    added = remote.add_address(type="AnycastEIP", status="BIND", instance_id="ins-1", tags={"a": "b"})

    (address,) = remote.state()["addresses"]
    assert (address["id"], address["status"], address["instance_id"]) == (added, "BIND", "ins-1")
    assert remote.state()["tags"] == [{"key": "a", "value": "b"}]
    with sdk(cloud.endpoint) as call:
        assert call.refused("AssociateAddress", AddressId=added, InstanceId="ins-2")
        found = call("DescribeAddresses", Filters=[{"Name": "instance-id", "Values": ["ins-1"]}])
    assert [each["AddressId"] for each in found["AddressSet"]] == [added]


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        pytest.param(lambda to: to.turn(colour="red"), "colour", id="a knob that is not there"),
        pytest.param(lambda to: to.add_address(colour="red"), "colour", id="a field of no address"),
        pytest.param(lambda to: to.add_address(status="ASLEEP"), "ASLEEP", id="a status of no address"),
        pytest.param(
            lambda to: to.add_instance("ins-1", colour="red"), "colour", id="a field of no instance"
        ),
        pytest.param(lambda to: to.alter_address("eip-1", blocked=True), "eip-1", id="no such address"),
    ],
)
def test_what_is_refused_is_said(remote: Remote, ask: Callable[[Remote], object], said: str) -> None:
    with pytest.raises(LabError, match=rf"the cloud refuses .*{said}"):
        ask(remote)


def test_it_listens_on_the_given_host(monkeypatch: pytest.MonkeyPatch) -> None:
    without_proxies(monkeypatch)
    with serving(host="127.0.0.2") as cloud:
        assert cloud.endpoint.startswith("127.0.0.2:")
        assert Remote(cloud.endpoint).state()["addresses"] == []
