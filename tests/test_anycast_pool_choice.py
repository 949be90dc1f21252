"""Which idle address a node gets, and addresses that their user has lent to the pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from cloud.types import Address
from controllers.anycast_ip.claim import CLUSTER_UUID, NODE_NAME, Claim, lent_claim, renewed, taken
from controllers.anycast_ip.planner import plan
from controllers.anycast_ip.pool import adoptable, has_place, in_line, missing
from controllers.anycast_ip.reconciler import AGAIN, ALONE, UNPROVEN
from controllers.anycast_ip.snapshot import Action, Seen, Snapshot
from controllers.anycast_ip.snapshot import Pool as View
from dev.lab.cloud import Knobs
from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.world import World
from settings import AnycastIPSettings
from settings.anycast_ip import Pool
from tests.anycast_world import CALLS, SETTINGS, Killed, Lab, plenty, run_with_deaths
from tests.factories import NOW
from tests.test_anycast_pool import LEAVING, kept, stored, unaccounted

LOAN = {"team": "edge"}


def pooling(**fields: Any) -> AnycastIPSettings:
    return SETTINGS.model_copy(update={"pool": Pool.model_validate(fields)})


ADOPTING = pooling(adopt=LOAN)


def lab_with(knobs: dict[str, Any] | None = None, **fields: Any) -> Lab:
    return Lab(plenty(**(knobs or {})), pooling(**fields))


def idle(lab: Lab) -> set[str]:
    return {each.address for each in stored(lab) if each.pooled}


def test_the_address_that_has_been_idle_longest_is_next() -> None:
    claims = [kept(1, 10), kept(2, 20), kept(3, 30)]
    assert [each.address for each in in_line(claims)] == ["eip-3", "eip-2", "eip-1"]


def lent(**fields: Any) -> Address:
    values = {"id": "eip-1", "ip": "1.2.3.4", "status": "UNBIND", "type": "AnycastEIP", "tags": LOAN} | fields
    return Address(**values)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        pytest.param(lent(), True, id="unbound"),
        pytest.param(lent(tags={**LOAN, "other": "tag"}), True, id="with more tags"),
        pytest.param(lent(status="BIND", instance_id="ins-1"), False, id="bound"),
        pytest.param(lent(status="BINDING"), False, id="being bound"),
        pytest.param(lent(status="UNBINDING"), False, id="being unbound"),
        pytest.param(lent(status="BIND_ENI"), False, id="on an interface"),
        pytest.param(lent(type="EIP"), False, id="of another type"),
        pytest.param(lent(blocked=True), False, id="blocked"),
        pytest.param(lent(arrears=True), False, id="in arrears"),
        pytest.param(lent(tags={"team": "other"}), False, id="with another value"),
        pytest.param(lent(tags={}), False, id="without the tag"),
        pytest.param(lent(tags={**LOAN, CLUSTER_UUID: "any"}), False, id="of a cluster"),
    ],
)
def test_only_free_addresses_with_the_tags_are_adopted(address: Address, expected: bool) -> None:
    assert adoptable([address], ADOPTING) == ([address] if expected else [])
    assert adoptable([address], SETTINGS) == []


LENT = lent_claim(lent(), NOW)
USED = replace(taken(LENT, replace(LEAVING, address="")), tags=())


@pytest.mark.parametrize(
    ("claim", "seen", "settings", "expected"),
    [
        pytest.param(LENT, lent(), ADOPTING, Action.NOTHING, id="idle"),
        pytest.param(LENT, lent(), SETTINGS, Action.FORGET, id="no more adoption"),
        pytest.param(LENT, lent(tags={}), ADOPTING, Action.FORGET, id="its tag is gone"),
        pytest.param(LENT, lent(status="BIND", instance_id="ins-9"), ADOPTING, Action.FORGET, id="its user bound it"),
        pytest.param(LENT, lent(type="EIP"), ADOPTING, Action.FORGET, id="another type is wanted"),
        pytest.param(USED, lent(status="BIND", instance_id=LEAVING.instance), ADOPTING, Action.EXAMINE, id="node gone"),
        pytest.param(USED, lent(), ADOPTING, Action.KEEP, id="unbound from a node"),
        pytest.param(USED, lent(), SETTINGS, Action.FORGET, id="unbound from a node, without adoption"),
        pytest.param(replace(USED, tags=(("a", "b"),)), lent(), SETTINGS, Action.UNTAG, id="with tags of ours"),
    ],
)  # fmt: skip
def test_what_is_lent_is_kept_or_returned_and_never_released(
    claim: Claim, seen: Address, settings: AnycastIPSettings, expected: Action
) -> None:
    view = View(has_place=has_place(claim, [claim], settings.pool, NOW))
    assert plan(Snapshot(claim.uid, None, claim, seen=Seen(seen), pool=view), settings).action is expected


def test_what_is_lent_takes_no_place_and_counts_as_a_spare() -> None:
    settings = Pool.model_validate({"retain": {"enabled": True, "count": 1}, "minIdle": 1, "adopt": LOAN})
    assert has_place(LEAVING, [replace(LENT, pooled=NOW)], settings, NOW)
    assert missing([LENT], settings, ()) == 0


def test_another_address_in_its_place_is_ours() -> None:
    after = renewed(USED, NOW, None)
    assert (after.ours, after.lent) == (True, False)


def lend(lab: Lab, **fields: Any) -> str:
    return lab.add_address("", **{"status": "UNBIND", "tags": LOAN, **fields})


def test_a_node_gets_a_lent_address_without_an_order_and_returns_it() -> None:
    lab = lab_with(adopt=LOAN)
    address, bound = lend(lab), lend(lab, status="BIND", instance_id="ins-mine")
    lab.run(lambda: idle(lab) == {address}, 400, "adopted")
    lab.opened("n1")
    assert [each.id for each in lab.on("n1")] == [address]
    lab.leave("n1")
    lab.run(lambda: idle(lab) == {address}, 60, "idle again")
    lab.settings = SETTINGS
    lab.run(lambda: not stored(lab), 60, "returned")
    lab.run_for(900)

    assert {address, bound} <= lab.world.addresses.keys()
    assert lab.world.addresses[bound].instance_id == "ins-mine"
    assert lab.count("AllocateAddresses", "ReleaseAddresses") == 0


def test_an_address_that_is_tagged_later_is_adopted_and_one_that_loses_the_tag_returned() -> None:
    lab = lab_with(adopt=LOAN)
    address = lend(lab, tags={})
    lab.run_for(60)
    assert idle(lab) == set()
    lab.world.alter(address, tags=LOAN)
    lab.run(lambda: idle(lab) == {address}, 400, "adopted")
    lab.world.alter(address, tags={})
    lab.run(lambda: not stored(lab), 400, "returned")

    assert address in lab.world.addresses


def test_an_address_that_has_just_lost_the_tag_is_given_to_no_node() -> None:
    lab = lab_with(adopt=LOAN)
    address = lend(lab)
    lab.run(lambda: idle(lab) == {address}, 400, "adopted")
    lab.world.alter(address, tags={})
    lab.opened("n1")

    assert [each.id for each in lab.on("n1")] != [address]
    assert address not in {each.address for each in stored(lab)}
    assert lab.world.addresses[address].status == "UNBIND"


def test_an_idle_address_that_its_user_releases_is_forgotten() -> None:
    lab = lab_with(adopt=LOAN)
    address = lend(lab)
    lab.run(lambda: idle(lab) == {address}, 400, "adopted")
    with lab.world.advanced() as now:
        lab.world.history.end(address, now)
    lab.run(lambda: not stored(lab), 400, "forgotten")

    assert lab.recorder.reasons == []


def test_an_idle_address_stays_though_the_keys_are_another_accounts_for_a_while() -> None:
    lab = lab_with(adopt=LOAN)
    lab.opened()
    address = lend(lab)
    lab.run(lambda: idle(lab) == {address}, 400, "adopted")
    (before,) = (each for each in stored(lab) if each.pooled)
    ours = lab.world
    lab.sender.world = World(Knobs(instances_exist=False), lab.clock)
    lab.run_for(2 * SETTINGS.resync_period)
    assert idle(lab) == {address}
    lab.sender.world = ours
    lab.run_for(2 * SETTINGS.resync_period)

    assert before in stored(lab)


def test_a_list_that_is_old_costs_its_user_no_binding() -> None:
    lab = lab_with({"tag_lag_seconds": 30.0, "stale_rows": True}, adopt=LOAN)
    address = lend(lab)
    lab.clock.advance(40)
    lab.world.alter(address, status="BIND", instance_id="ins-mine")
    lab.opened("n1")
    lab.run_for(600)

    assert lab.world.addresses[address].instance_id == "ins-mine"
    assert [each.id for each in lab.on("n1")] != [address]


def test_while_adoption_is_off_no_list_is_read_for_it() -> None:
    lab = lab_with()
    lend(lab)
    lab.run_for(600)

    assert stored(lab) == []
    assert not [
        call
        for call in lab.world.calls
        if any(each["Name"] == "tag:team" for each in call.params.get("Filters", ()))
    ]


def test_a_lent_address_that_is_blocked_is_given_to_no_node_that_comes_or_waits() -> None:
    lab = lab_with({"quota_total": 2}, adopt=LOAN)
    address = lend(lab)
    lab.run(lambda: idle(lab) == {address}, 400, "adopted")
    lab.world.alter(address, blocked=True)
    lab.run_for(2 * SETTINGS.resync_period)
    lab.opened("n1")
    lab.join("n2")
    lab.run_for(2 * SETTINGS.resync_period)
    assert idle(lab) == {address}
    lab.world.alter(address, blocked=False)
    lab.run(lab.all_open, SETTINGS.resync_period + 10, "open")

    assert [each.id for each in lab.on("n2")] == [address]


def test_a_list_that_fails_is_read_again_before_the_next_resync() -> None:
    lab = lab_with(adopt=LOAN)
    address, failed = lend(lab), list[str]()

    def fails_once(action: str, params: Mapping[str, Any]) -> None:
        names = [each["Name"] for each in params.get("Filters", ())]
        if "tag:team" in names and not failed:
            failed.append(action)
            raise Fault("UnauthorizedOperation", "not now")

    lab.sender.instead = fails_once
    lab.run(lambda: idle(lab) == {address}, 30, "adopted")

    assert failed


def test_a_node_that_waits_for_a_quota_gets_an_address_as_soon_as_it_is_adopted() -> None:
    lab = lab_with({"quota_total": 1}, adopt=LOAN)
    lab.opened("n1")
    lab.join("n2")
    lab.run_for(1600)
    address = lend(lab)
    lab.run(lambda: idle(lab) == {address}, 400, "adopted")
    lab.run(lab.all_open, 10, "open")

    assert [each.id for each in lab.on("n2")] == [address]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("action", CALLS)
def test_a_death_at_any_call_loses_nothing_and_releases_no_lent_address(action: str, moment: str) -> None:
    lab = lab_with(adopt=LOAN, retain={"enabled": True, "count": 1}, minIdle=1)
    theirs = {lend(lab) for _ in range(2)}

    died = list[str]()

    def called(verb: str) -> None:
        assert unaccounted(lab) <= theirs
        if verb == action and len(died) < 4:
            died.append(verb)
            raise Killed

    setattr(lab.kube if action in ("write", "delete") else lab.sender, moment, called)
    for names in (("n1", "n2"), ("n3", "n4", "n5")):
        for name in names:
            lab.join(name)
        run_with_deaths(lab, lab.all_open, 600, "open")
        lab.leave(*names)
        run_with_deaths(lab, lambda: theirs <= idle(lab) and len(idle(lab)) <= 4, 900, "idle")
    lab.settings = SETTINGS
    # Without a node, first an address counts as gone, then its tags; each is looked at again after AGAIN.
    run_with_deaths(lab, lambda: not stored(lab), UNPROVEN + ALONE + 2 * AGAIN, "nothing is left")
    run_with_deaths(lab, lambda: {each.id for each in lab.elastic()} == theirs, 60, "only theirs")

    assert died
    assert lab.tag_values(NODE_NAME) == set()
    assert all(lab.world.addresses[each].status == "UNBIND" for each in theirs)
