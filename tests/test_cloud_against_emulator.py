"""The edge against the emulated cloud, over a socket: the main paths, and what goes wrong on them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cloud import credentials, errors
from cloud.client import Cloud, connect
from cloud.errors import CloudError
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


def test_with_three_calls_in_ten_throttled_all_succeed(emulator: Emulator) -> None:
    emulator.knobs.throttled = 0.3
    ours = edge(emulator)
    for number in range(40):
        address = ours.allocate(order(f"t{number}"))
        ours.associate(address, f"ins-{number:08}")
    assert len(elastic(emulator)) == 40
    assert calls(emulator, "AllocateAddresses") > 40


@pytest.mark.parametrize(
    "knobs",
    [
        pytest.param({"server_errors": 1.0}, id="502"),
        pytest.param({"html": 1.0}, id="HTML"),
        pytest.param({"internal_errors": 1.0}, id="InternalError"),
        pytest.param({"internal_errors": 1.0, "errors_after_commit": True}, id="after it was carried out"),
    ],
)
def test_a_burst_of_faults_is_outlived(emulator: Emulator, knobs: dict[str, Any]) -> None:
    for name, value in knobs.items():
        setattr(emulator.knobs, name, value)
    waits = 0

    def wait(seconds: float) -> None:
        nonlocal waits
        waits += 1
        if waits % 3 == 0:
            emulator.knobs.server_errors = emulator.knobs.html = emulator.knobs.internal_errors = 0.0

    ours = edge(emulator, sleep=wait)
    address = ours.allocate(order())
    assert [each.id for each in ours.addresses([address])] == elastic(emulator) == [address]


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


def test_what_cannot_be_released_does_not_keep_the_rest(emulator: Emulator) -> None:
    ours = edge(emulator)
    ids = [ours.allocate(order(f"t{number}")) for number in range(25)]
    ours.associate(ids[7], "ins-11112222")
    ours.release([ids[3]])
    refused = ours.release(ids)
    assert {each: type(why) for each, why in refused.items()} == {
        ids[3]: errors.Gone,
        ids[7]: errors.StateConflict,
    }
    assert elastic(emulator) == [ids[7]]


@pytest.mark.parametrize("atomic", [True, False])
def test_tags_are_created_and_deleted_though_some_were_before(emulator: Emulator, atomic: bool) -> None:
    emulator.knobs.tag_batches_atomic = atomic
    ours = edge(emulator)
    tags = [("node", f"n{number}") for number in range(23)]
    ours.create_tags(tags[3:12:4])
    ours.create_tags(tags)
    assert emulator.world.tags == set(tags)
    ours.delete_tags(tags[2:20:5])
    assert ours.delete_tags(tags) == {}
    assert emulator.world.tags == set()


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        pytest.param(
            lambda ours: ours.associate("eip-00000000", "ins-11112222"), errors.Gone, id="no address"
        ),
        pytest.param(lambda ours: ours.disassociate("eip-00000000"), errors.Gone, id="none to unbind"),
        pytest.param(lambda ours: ours.allocate(order(bandwidth=-1)), errors.Rejected, id="our mistake"),
    ],
)
def test_a_refusal_says_what_to_do(
    emulator: Emulator, call: Callable[[Cloud], object], kind: type[CloudError]
) -> None:
    with pytest.raises(kind):
        call(edge(emulator))


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


def test_an_earlier_allocation_under_way_is_waited_for(emulator: Emulator) -> None:
    emulator.knobs.token_busy_while_creating = True
    emulator.knobs.allocate_seconds = 0.3
    ours = edge(emulator, sleep=time.sleep)
    assert ours.allocate(order()) == ours.allocate(order())
    assert len(elastic(emulator)) == 1


def test_at_the_documented_rates_nothing_is_throttled(emulator: Emulator) -> None:
    emulator.knobs.rate_limits = emulator.knobs.sliding_windows = True
    ours = edge(emulator, sleep=time.sleep)
    began = time.monotonic()
    for _ in range(12):
        ours.quotas()
    assert time.monotonic() - began > 11 / 10
    assert set(emulator.world.count()["DescribeAddressQuota"]) == {"OK"}


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
