"""The emulated cloud's addresses go from state to state as documented, seen through the vendor's client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lab.cloud import Cloud, Knobs, serving
from tests.sdk import HandClock, Sdk, sdk, without_proxies

INSTANCE = "ins-11112222"
OTHER = "ins-33334444"


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def cloud(clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    without_proxies(monkeypatch)
    knobs = Knobs(rate_limits=False, quota_total=500, quota_daily=1000)
    with serving(knobs, clock=clock) as cloud:
        yield cloud


@pytest.fixture
def call(cloud: Cloud) -> Iterator[Sdk]:
    with sdk(cloud.endpoint) as call:
        yield call


class Hands:
    """What tests do again and again, each step waited for."""

    def __init__(self, call: Sdk, clock: HandClock) -> None:
        self.call, self.clock = call, clock

    def allocated(self, **order: Any) -> str:
        address = self.call("AllocateAddresses", **order)["AddressSet"][0]
        self.clock.pass_(10)
        return address

    def bound(self, instance: str = INSTANCE) -> str:
        address = self.allocated()
        self.call("AssociateAddress", AddressId=address, InstanceId=instance)
        self.clock.pass_(10)
        return address

    def described(self, address: str) -> dict[str, Any]:
        return self.call("DescribeAddresses", AddressIds=[address])["AddressSet"][0]

    def status(self, address: str) -> str:
        return self.described(address)["AddressStatus"]

    def found(self, **filters: str) -> list[str]:
        wanted = [
            {"Name": name.replace("__", ":").replace("_", "-"), "Values": [value]}
            for name, value in filters.items()
        ]
        rows = self.call("DescribeAddresses", Filters=wanted)["AddressSet"]
        return [row["AddressId"] for row in rows]


@pytest.fixture
def hands(call: Sdk, clock: HandClock) -> Hands:
    return Hands(call, clock)


def test_an_address_goes_through_all_states_each_in_its_time(
    call: Sdk, hands: Hands, clock: HandClock, cloud: Cloud
) -> None:
    seen = []
    address = call("AllocateAddresses")["AddressSet"][0]
    steps = [
        ("AssociateAddress", {"AddressId": address, "InstanceId": INSTANCE}),
        ("DisassociateAddress", {"AddressId": address}),
        ("ReleaseAddresses", {"AddressIds": [address]}),
    ]
    for action, params in steps:
        seen.append(hands.status(address))
        clock.pass_(2)
        seen.append(hands.status(address))
        call(action, **params)
    seen.append(hands.status(address))
    clock.pass_(1)

    assert seen == ["CREATING", "UNBIND", "BINDING", "BIND", "UNBINDING", "UNBIND", "OFFLINING"]
    assert call("DescribeAddresses", AddressIds=[address])["AddressSet"] == []
    assert cloud.world.addresses == {}


def test_a_binding_that_fails_ends_unbound_and_its_task_failed(
    call: Sdk, hands: Hands, clock: HandClock, cloud: Cloud
) -> None:
    cloud.knobs.bind_fails = 1.0
    address = hands.allocated()
    call("AssociateAddress", AddressId=address, InstanceId=INSTANCE)

    assert hands.status(address) == "BINDING"
    clock.pass_(2)
    assert hands.status(address) == "UNBIND"
    assert hands.described(address)["InstanceId"] is None


def test_an_unknown_instance_exists_only_by_the_knob(call: Sdk, hands: Hands, cloud: Cloud) -> None:
    cloud.knobs.instances_exist = False
    address = hands.allocated()
    request = {"AddressId": address, "InstanceId": INSTANCE}

    assert call.refused("AssociateAddress", **request) == "InvalidInstanceId.NotFound"
    cloud.world.add_instance(INSTANCE, "10.0.0.1")
    call("AssociateAddress", **request)
    hands.clock.pass_(2)
    assert hands.described(address)["PrivateAddressIp"] == "10.0.0.1"


@pytest.mark.parametrize(
    ("how", "code"),
    [
        pytest.param(
            {"state": "STOPPED", "stop_charging": True},
            "UnsupportedOperation.InstanceStatusNotPermit",
            id="stopped and not paid",
        ),
        pytest.param(
            {"state": "TERMINATING"}, "UnsupportedOperation.InstanceStateNotSupported", id="on its way out"
        ),
        pytest.param(
            {"public_ip": "43.1.2.3"}, "InvalidParameterValue.InstanceHasWanIP", id="with an ordinary address"
        ),
        pytest.param({"region": "ap-tokyo"}, "InvalidInstanceId.NotFound", id="in another region"),
    ],
)
def test_an_instance_that_takes_no_address(
    call: Sdk, hands: Hands, cloud: Cloud, how: dict[str, Any], code: str
) -> None:
    cloud.world.add_instance(INSTANCE, **how)

    assert call.refused("AssociateAddress", AddressId=hands.allocated(), InstanceId=INSTANCE) == code


def test_a_second_address_on_its_way_is_refused_at_once_or_fails_later_by_the_knob(
    call: Sdk, hands: Hands, clock: HandClock, cloud: Cloud
) -> None:
    first, second = hands.allocated(), hands.allocated()
    call("AssociateAddress", AddressId=first, InstanceId=INSTANCE)
    code = call.refused("AssociateAddress", AddressId=second, InstanceId=INSTANCE)
    assert code == "InvalidInstanceId.AlreadyBindEip"

    cloud.knobs.already_bound_while_binding = False
    call("AssociateAddress", AddressId=second, InstanceId=INSTANCE)
    clock.pass_(2)
    assert (hands.status(first), hands.status(second)) == ("BIND", "UNBIND")


@pytest.mark.parametrize("shown", [True, False])
def test_the_last_instance_shows_after_unbinding_by_the_knob(
    call: Sdk, hands: Hands, cloud: Cloud, shown: bool
) -> None:
    cloud.knobs.instance_shown_after_unbinding = shown
    address = hands.bound()
    call("DisassociateAddress", AddressId=address)
    hands.clock.pass_(2)

    assert hands.described(address)["InstanceId"] == (INSTANCE if shown else None)
    call("AssociateAddress", AddressId=hands.allocated(), InstanceId=INSTANCE)


@pytest.mark.parametrize(("unbinds", "status"), [(True, "UNBIND"), (False, "BIND")])
def test_when_an_instance_ends_its_address_is_unbound_by_the_knob(
    hands: Hands, cloud: Cloud, unbinds: bool, status: str
) -> None:
    cloud.knobs.instance_end_unbinds = unbinds
    address = hands.bound()
    cloud.world.end_instance(INSTANCE)

    assert hands.status(address) == status
    again = hands.call.refused("AssociateAddress", AddressId=hands.allocated(), InstanceId=INSTANCE)
    assert again == "InvalidInstanceId.NotFound"


def test_a_page_is_20_rows_also_for_ids_and_never_more_than_100(call: Sdk, hands: Hands) -> None:
    ids = call("AllocateAddresses", AddressCount=120)["AddressSet"]
    given = call("DescribeAddresses", AddressIds=ids)

    assert (len(given["AddressSet"]), given["TotalCount"]) == (20, 120)
    pages = [call("DescribeAddresses", Limit=100, Offset=offset)["AddressSet"] for offset in (0, 100, 200)]
    assert [len(page) for page in pages] == [100, 20, 0]
    assert {row["AddressId"] for page in pages for row in page} == set(ids)
    assert call.refused("DescribeAddresses", Limit=101) == "InvalidParameterValue.Range"
    assert call.refused("DescribeAddresses", Offset=-1) == "InvalidParameterValue.Range"


def test_filters_are_joined_by_and_their_values_by_or(call: Sdk, hands: Hands) -> None:
    bound, other, free = hands.bound(), hands.bound(OTHER), hands.allocated(AddressName="spare")

    assert hands.found(address_name="spare") == [free]
    assert hands.found(address_status="BIND", instance_id=OTHER) == [other]
    both = call(
        "DescribeAddresses", Filters=[{"Name": "instance-id", "Values": [INSTANCE, OTHER, "ins-55556666"]}]
    )
    assert [row["AddressId"] for row in both["AddressSet"]] == [bound, other]
    named = call("DescribeAddresses", Filters=[{"Name": "address-name", "Values": ["other", "spare"]}])
    assert named["AddressSet"] == []  # only the first value counts


def test_a_search_is_answered_from_an_index_that_may_be_behind(hands: Hands, cloud: Cloud) -> None:
    cloud.knobs.filter_lag_seconds = 5
    address = hands.allocated()
    hands.call("AssociateAddress", AddressId=address, InstanceId=INSTANCE)
    hands.clock.pass_(3)

    assert hands.status(address) == "BIND"
    assert hands.found(instance_id=INSTANCE) == []
    hands.clock.pass_(2)
    assert hands.found(instance_id=INSTANCE) == [address]


@pytest.mark.parametrize("stale", [True, False])
def test_rows_of_an_old_index_are_read_again_or_as_of_then_by_the_knob(
    hands: Hands, cloud: Cloud, stale: bool
) -> None:
    cloud.knobs.filter_lag_seconds, cloud.knobs.stale_rows = 5, stale
    address = hands.bound()
    hands.clock.pass_(5)
    cloud.world.alter(address, status="UNBIND")
    rows = hands.call("DescribeAddresses", Filters=[{"Name": "instance-id", "Values": [INSTANCE]}])

    assert [row["AddressStatus"] for row in rows["AddressSet"]] == (["BIND"] if stale else ["UNBIND"])
