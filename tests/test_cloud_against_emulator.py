"""The edge against the emulated cloud, over a socket: the main paths, and what goes wrong on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cloud import credentials, errors
from cloud.client import Cloud, connect
from cloud.types import BIND, UNBIND, Order
from lab.cloud import SECRET_ID, SECRET_KEY, Knobs, serving
from lab.cloud import Cloud as Emulator
from settings import CloudSettings

KEYS = {"TENCENTCLOUD_SECRET_ID": SECRET_ID, "TENCENTCLOUD_SECRET_KEY": SECRET_KEY}
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


def nothing() -> None:
    pass


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """All its tasks end at once, its indexes are up to date, and nothing is limited."""
    knobs = Knobs(
        allocate_seconds=0,
        bind_seconds=0,
        unbind_seconds=0,
        release_seconds=0,
        tag_lag_seconds=0,
        quota_total=1000,
        rate_limits=False,
    )
    with serving(knobs) as running:
        yield running


def edge(
    emulator: Emulator,
    *,
    sleep: Callable[[float], object] = lambda seconds: None,
    environ: dict[str, str] = KEYS,
    **fields: Any,
) -> Cloud:
    """Whose waits are *sleep*: the emulator's troubles need no patience."""
    wanted = CloudSettings(
        scheme="http", endpoint=emulator.endpoint, region="ap-singapore", call_timeout="60s", **fields
    )
    return connect(wanted, may_write=nothing, writes_within=10.0, environ=environ, sleep=sleep)


def calls(emulator: Emulator, action: str) -> int:
    return sum(emulator.world.count().get(action, {}).values())


def order(once: str = "t", **fields: Any) -> Order:
    return Order(token=once, type="EIP", name="drawbridge", **fields)


def elastic(emulator: Emulator) -> list[str]:
    return [each.id for each in emulator.world.addresses.values() if each.type == "EIP"]


def test_an_address_lives_from_its_tags_to_its_release(emulator: Emulator) -> None:
    ours = edge(emulator)
    tags = [("node", "n1"), ("cluster", "c1")]
    emulator.world.add_instance("ins-11112222", "10.0.0.1")
    ours.create_tags(tags)
    ours.create_tags(tags)
    address = ours.allocate(order(tags=dict(tags), bandwidth=5))
    assert [(each.id, each.status, each.tags) for each in ours.addresses_tagged("node", ["n1"])] == [
        (address, UNBIND, dict(tags))
    ]
    ours.associate(address, "ins-11112222")
    (bound,) = ours.addresses_on(["ins-11112222"])
    assert (bound.id, bound.status, bound.instance_id) == (address, BIND, "ins-11112222")
    assert bound.ip
    assert set(ours.delete_tags(tags)) == set(tags)
    ours.disassociate(address)
    assert ours.addresses([address])[0].status == UNBIND
    assert ours.release([address]) == {}
    assert isinstance(ours.release([address])[address], errors.Gone)
    assert ours.addresses([address]) == []
    assert ours.delete_tags([*tags, ("never", "there")]) == {}
    assert emulator.world.tags == set()


def test_several_addresses_get_one_bandwidth_and_only_what_is_refused_does_not(emulator: Emulator) -> None:
    ours = edge(emulator)
    ids = [ours.allocate(order(f"t{number}", bandwidth=5)) for number in range(3)]
    assert [each.bandwidth for each in ours.addresses(ids)] == [5, 5, 5]
    refused = ours.set_bandwidth([*ids, "eip-00000000"], 7)

    assert {each: type(why) for each, why in refused.items()} == {"eip-00000000": errors.Gone}
    assert [each.bandwidth for each in ours.addresses(ids)] == [7, 7, 7]
    assert {each.charge_type for each in ours.addresses(ids)} == {"TRAFFIC_POSTPAID_BY_HOUR"}
    again = ours.set_bandwidth(ids, 7)  # the task of the first is still at work
    assert {type(why) for why in again.values()} == {errors.StateConflict}


def test_a_change_of_bandwidth_whose_answer_is_lost_is_not_repeated_blindly(emulator: Emulator) -> None:
    ours = edge(emulator)
    address = ours.allocate(order())
    emulator.knobs.lost = 1.0
    with pytest.raises(errors.Unavailable):
        ours.set_bandwidth([address], 9)

    assert calls(emulator, "ModifyAddressesBandwidth") == 1
    assert emulator.world.addresses[address].bandwidth == 9


def test_a_lost_answer_to_an_allocation_costs_no_second_address(emulator: Emulator) -> None:
    emulator.knobs.lost = 1.0
    ours = edge(emulator, sleep=lambda seconds: setattr(emulator.knobs, "lost", 0.0))
    allocated = ours.allocate(order())
    assert calls(emulator, "AllocateAddresses") == 2
    assert elastic(emulator) == [allocated]


@pytest.mark.parametrize(
    ("environ", "knobs"),
    [
        pytest.param({**KEYS, "TENCENTCLOUD_SECRET_KEY": "wrong"}, {}, id="wrong key"),
        pytest.param({**KEYS, "TENCENTCLOUD_SECRET_ID": "wrong"}, {}, id="unknown id"),
        pytest.param(KEYS, {"clock_skew_seconds": 1000}, id="wrong time"),
        pytest.param(KEYS, {"denied": ["DescribeAddressQuota"]}, id="policy"),
    ],
)
@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8"])
def test_what_is_not_permitted_is_said_after_one_call(
    emulator: Emulator, environ: dict[str, str], knobs: dict[str, Any], content_type: str
) -> None:
    for name, value in {**knobs, "content_type": content_type}.items():
        setattr(emulator.knobs, name, value)
    with pytest.raises(errors.NotPermitted):
        edge(emulator, environ=environ).quotas()
    assert calls(emulator, "DescribeAddressQuota") == 1


def test_an_ordinary_public_address_is_seen(emulator: Emulator) -> None:
    emulator.world.add_instance("ins-11112222", "10.0.0.1", "1.2.3.4")
    (address,) = edge(emulator).addresses_on(["ins-11112222", "ins-33334444"])
    assert (address.type, address.ip, address.instance_id) == ("WanIP", "1.2.3.4", "ins-11112222")


def test_conflicts_are_distinguished(emulator: Emulator) -> None:
    ours = edge(emulator)
    one, two = (ours.allocate(order(token)) for token in ("t1", "t2"))
    ours.associate(one, "ins-11112222")
    with pytest.raises(errors.AlreadyBound):
        ours.associate(two, "ins-11112222")
    with pytest.raises(errors.StateConflict):
        ours.associate(one, "ins-33334444")
    emulator.knobs.unbind_seconds = 100
    ours.disassociate(one)
    with pytest.raises(errors.StateConflict):
        ours.disassociate(one)
    with pytest.raises(errors.TokenRefused):
        ours.allocate(order("t1", bandwidth=7))


def test_the_roles_of_machine_and_pod_are_accepted(
    emulator: Emulator, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = credentials.from_machine(
        "", f"http://{emulator.endpoint}/latest/meta-data/cam/security-credentials/"
    )
    environ = {
        "TENCENTCLOUD_SECRET_ID": keys.keys.secret_id,
        "TENCENTCLOUD_SECRET_KEY": keys.keys.secret_key,
        "TENCENTCLOUD_TOKEN": keys.keys.token or "",
    }
    assert edge(emulator, environ=environ).quotas()
    (tmp_path / "token").write_text("jwt")
    identity = {
        "TKE_REGION": "ap-singapore",
        "TKE_PROVIDER_ID": "provider",
        "TKE_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
        "TKE_ROLE_ARN": "qcs::cam::uin/1:roleName/drawbridge",
    }
    assert edge(emulator, environ=identity).quotas()
