"""The emulated cloud's instances, as far as nodes are looked up by them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.cloud import Cloud, Knobs, serving
from tests.sdk import HandClock, Sdk, sdk, without_proxies


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    without_proxies(monkeypatch)
    with serving(Knobs(rate_limits=False), clock=HandClock()) as cloud:
        yield cloud


@pytest.fixture
def call(cloud: Cloud) -> Iterator[Sdk]:
    with sdk(cloud.endpoint) as call:
        yield call


def test_instances_are_found_by_id_and_by_private_ip(call: Sdk, cloud: Cloud) -> None:
    cloud.world.add_instance("ins-11112222", "10.0.0.1", "43.1.2.3")
    cloud.world.add_instance("ins-33334444", "10.0.0.2", vpc_id="vpc-a")

    (one,) = call("DescribeInstances", InstanceIds=["ins-11112222"])["InstanceSet"]
    assert (one["PrivateIpAddresses"], one["PublicIpAddresses"]) == (["10.0.0.1"], ["43.1.2.3"])
    assert one["InstanceState"] == "RUNNING"
    by_ip = [{"Name": "private-ip-address", "Values": ["10.0.0.2"]}, {"Name": "vpc-id", "Values": ["vpc-a"]}]
    (two,) = call("DescribeInstances", Filters=by_ip)["InstanceSet"]
    assert (two["InstanceId"], two["PublicIpAddresses"]) == ("ins-33334444", None)


@pytest.mark.parametrize("exist", [True, False])
def test_an_instance_that_was_not_added_is_there_by_the_knob(call: Sdk, cloud: Cloud, exist: bool) -> None:
    cloud.knobs.instances_exist = exist
    assert call("DescribeInstances", InstanceIds=["ins-11112222"])["TotalCount"] == int(exist)
    cloud.world.end_instance("ins-11112222")
    assert call("DescribeInstances", InstanceIds=["ins-11112222"])["TotalCount"] == 0
    cloud.world.add_instance("ins-11112222")
    assert call("DescribeInstances", InstanceIds=["ins-11112222"])["TotalCount"] == 1


def test_one_missing_instance_is_an_error_by_the_knob(call: Sdk, cloud: Cloud) -> None:
    cloud.world.add_instance("ins-11112222")
    cloud.knobs.instances_exist = False
    ids = ["ins-11112222", "ins-33334444"]

    assert call("DescribeInstances", InstanceIds=ids)["TotalCount"] == 1
    cloud.knobs.missing_instance_is_error = True
    assert call.refused("DescribeInstances", InstanceIds=ids) == "InvalidInstanceId.NotFound"
    assert call("DescribeInstances", InstanceIds=ids[:1])["TotalCount"] == 1
