"""Addresses that stay: kept when their node leaves, given to the next one, ordered before it comes, and never lost."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace as replaced
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from api.anycast_ip import TAINT, Quota
from cloud.types import Address
from controllers.anycast_ip.claim import FIELD, POOL, Claim, claim_for, name_of, read, spare_for
from controllers.anycast_ip.planner import SURE, plan
from controllers.anycast_ip.pool import has_place, in_line, missing, without_place
from controllers.anycast_ip.snapshot import GONE, UNKNOWN, Action, Order, Related, Seen, Snapshot
from controllers.anycast_ip.snapshot import Pool as View
from kube.errors import Unreachable
from kube.resources import CONFIG_MAPS
from kube.types import ConfigMap, Node
from settings import AnycastIPSettings
from settings.anycast_ip import Pool, ReverseReconcile
from tests.anycast_world import SETTINGS, Lab, a_node, config_map, metric, open_lab, original, plenty
from tests.factories import NOW
from tests.tables import table

DAY = 86400.0


def pool(count: int = 0, idle: int = 0, age: str = "24h") -> Pool:
    return Pool.model_validate(
        {"retain": {"enabled": count > 0, "count": count or 10, "age": age}, "minIdle": idle}
    )


def pooling(count: int = 0, idle: int = 0, age: str = "24h", **fields: Any) -> AnycastIPSettings:
    return SETTINGS.model_copy(update={"pool": pool(count, idle, age), **fields})


def lab_with(count: int = 0, idle: int = 0, age: str = "24h", **knobs: Any) -> Lab:
    return Lab(plenty(**knobs), pooling(count, idle, age))


def idle(lab: Lab) -> list[str]:
    """The ids of the addresses in the pool, the one that is next first."""
    return [each.address for each in in_line(lab.claims.claims.values()) if each.pooled]


def node(uid: str = "u2", name: str = "n2") -> Node:
    return a_node(TAINT, name=name, uid=uid)


def kept(number: int, since: float = 0.0, **fields: Any) -> Claim:
    """One that was pooled *since* so many seconds ago."""
    claim = claim_for(node(f"u{number}", f"old{number}"), SETTINGS, NOW)
    pooled = NOW - timedelta(seconds=since)
    return replace(claim, **{"address": f"eip-{number}", "pooled": pooled, **fields})


ORDERED = claim_for(node(), SETTINGS, NOW)
LEAVING = replace(kept(9), pooled=None)
PENDING = spare_for("spare", SETTINGS, NOW - timedelta(days=9))
SPARE = replace(PENDING, address="eip-spare")


@pytest.mark.parametrize(
    ("claim", "pooled", "settings", "expected"),
    [
        pytest.param(LEAVING, [], pool(), False, id="no pool"),
        pytest.param(LEAVING, [], pool(count=1), True, id="an empty pool"),
        pytest.param(LEAVING, [kept(1)], pool(count=1), False, id="a full pool"),
        pytest.param(LEAVING, [kept(1)], pool(count=2), True, id="room for one more"),
        pytest.param(LEAVING, [kept(1, releasing=True)], pool(count=1), True, id="one that is going"),
        pytest.param(LEAVING, [PENDING], pool(idle=1), True, id="before an order that has brought nothing"),
        pytest.param(LEAVING, [SPARE], pool(idle=1), False, id="after a spare"),
        pytest.param(LEAVING, [SPARE, kept(1)], pool(2, 1), True, id="beside a spare"),
        pytest.param(LEAVING, [SPARE, kept(1), kept(2)], pool(2, 1), False, id="so many are kept, and a spare"),
        pytest.param(SPARE, [kept(1, DAY * 10), SPARE], pool(2, 1), False, id="a spare that is not needed"),
        pytest.param(PENDING, [PENDING, kept(1)], pool(idle=1), False, id="an order that is not needed"),
        pytest.param(PENDING, [PENDING, kept(1)], pool(idle=2), True, id="an order"),
        pytest.param(kept(1, DAY - 1), [kept(1, DAY - 1)], pool(count=1), True, id="young"),
        pytest.param(kept(1, DAY), [kept(1, DAY)], pool(count=1), False, id="old"),
        pytest.param(kept(1, DAY), [kept(1, DAY)], pool(count=1, idle=1), True, id="old, but a spare is wanted"),
        pytest.param(kept(2, DAY), [kept(1, DAY + 1), kept(2, DAY)], pool(2, 1), False, id="old, and not first"),
        pytest.param(kept(1, 5), [kept(1, 5), kept(2, 9)], pool(count=1), False, id="the later of two"),
        pytest.param(kept(2, 9), [kept(1, 5), kept(2, 9)], pool(count=1), True, id="the earlier of two"),
        pytest.param(kept(1), [kept(1), kept(2)], pool(count=1), True, id="at the same time, by uid"),
        pytest.param(kept(1, releasing=True), [], pool(count=9), False, id="its release has begun"),
        pytest.param(replace(LEAVING, uid="orphan-eip-1"), [], pool(count=9), False, id="an orphan"),
        pytest.param(replace(LEAVING, address=""), [], pool(9, 9), False, id="never ordered"),
    ],
)  # fmt: skip
def test_the_pool_has_a_place(claim: Claim, pooled: list[Claim], settings: Pool, expected: bool) -> None:
    assert has_place(claim, pooled, settings, NOW) is expected


class Counted(list[Claim]):
    """Counts how many of it were looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Claim]:
        for each in super().__iter__():
            self.looks += 1
            yield each


@pytest.mark.parametrize("settings", [pool(), pool(40), pool(idle=30), pool(40, 30), pool(40, 30, "30s")])
def test_who_has_no_place_is_found_by_one_look_at_each(settings: Pool) -> None:
    claims = [kept(number, number % 50, releasing=number % 7 == 0) for number in range(100)]
    claims += [spare_for(f"spare-{number}", SETTINGS, NOW) for number in range(50)]
    pooled = Counted(claims)
    over = without_place(pooled, settings, NOW)

    assert pooled.looks == len(claims)
    assert over == {each.uid for each in claims if not has_place(each, claims, settings, NOW)}


@pytest.mark.parametrize(
    ("claims", "wanted", "quotas", "expected"),
    [
        pytest.param([], 0, [], 0, id="none is wanted"),
        pytest.param([LEAVING], 3, [], 3, id="all"),
        pytest.param([SPARE, PENDING], 3, [], 1, id="idle ones and orders count"),
        pytest.param([kept(1, releasing=True)], 1, [], 1, id="one that is going does not"),
        pytest.param([SPARE, kept(1)], 1, [], 0, id="more than wanted"),
        pytest.param([], 3, [Quota("TOTAL_EIP_QUOTA", 18, 20)], 2, id="so many as the quota has left"),
        pytest.param([], 3, [Quota("DAILY_EIP_APPLY", 40, 40)], 0, id="none of the day is left"),
        pytest.param([ORDERED], 3, [Quota("TOTAL_EIP_QUOTA", 18, 20)], 1, id="nodes that wait come first"),
        pytest.param([ORDERED] * 9, 3, [Quota("TOTAL_EIP_QUOTA", 18, 20)], 0, id="many nodes that wait"),
        pytest.param([LEAVING] * 4, 3, [Quota("TOTAL_EIP_QUOTA", 0, 5)], 1, id="used since it was read"),
        pytest.param([LEAVING] * 4, 3, [Quota("DAILY_EIP_APPLY", 0, 5)], 3, id="not all of them today"),
        pytest.param([], 3, [Quota("DAILY_PUBLIC_IP_ASSIGN", 9, 9)], 3, id="a quota of something else"),
    ],
)
def test_how_many_spares_are_missing(
    claims: list[Claim], wanted: int, quotas: list[Quota], expected: int
) -> None:
    assert missing(claims, pool(idle=wanted), quotas) == expected


OFFER, ROOM = View(offer=kept(1)), View(has_place=True)
SPARED = View(has_place=True, stays_anyway=True)
FREE = Address(id="eip-9", status="UNBIND", type="AnycastEIP")
BLOCKED, OTHER = replace(FREE, blocked=True), replace(FREE, type="EIP")
BOUND = replace(FREE, status="BIND", instance_id="ins-old9")
UNSENT, DOUBTFUL = Order(in_doubt=False), Order(in_doubt=True, age=5)
OLD = Order(in_doubt=True, age=900)


NOTHING_ON_IT = Seen(on_instance=())


@table(
    "claim, parts, expected",
    {
        "a new node": (None, {"seen": NOTHING_ON_IT, "pool": OFFER}, Action.TAKE),
        "an empty pool": (None, {"seen": NOTHING_ON_IT}, Action.CLAIM),
        "its instance is looked at before": (None, {"pool": OFFER}, Action.LOOK),
        "one with its tags comes first": (
            None,
            {"related": Related(found=FREE), "seen": NOTHING_ON_IT, "pool": OFFER},
            Action.ADOPT,
        ),
        "not ordered yet": (ORDERED, {"order": UNSENT, "pool": OFFER}, Action.TAKE),
        "it may be ordered": (ORDERED, {"order": DOUBTFUL, "pool": OFFER}, Action.TAG),
        "ordered long ago": (ORDERED, {"order": OLD, "pool": OFFER}, Action.FIND),
        "old, not found yet": (ORDERED, {"order": replaced(OLD, nothing_for=5), "pool": OFFER}, Action.FIND),
        "not found for long": (ORDERED, {"order": replaced(OLD, nothing_for=60), "pool": OFFER}, Action.TAKE),
        "old, and found": (ORDERED, {"order": replaced(OLD, found=FREE), "pool": OFFER}, Action.RECORD),
    },
)  # fmt: skip
def test_the_next_action_for_a_node(claim: Claim | None, parts: dict[str, Any], expected: Action) -> None:
    assert plan(Snapshot("u2", node(), claim, **parts), SETTINGS).action is expected


@table(
    "claim, parts, expected",
    {
        "left, bound": (LEAVING, {"seen": Seen(BOUND), "pool": ROOM}, Action.EXAMINE),
        "left": (LEAVING, {"seen": Seen(FREE), "pool": ROOM}, Action.KEEP),
        "left, no place": (LEAVING, {"seen": Seen(FREE)}, Action.RELEASE),
        "left, blocked": (LEAVING, {"seen": Seen(BLOCKED), "pool": ROOM}, Action.RELEASE),
        "left, other type": (LEAVING, {"seen": Seen(OTHER), "pool": ROOM}, Action.RELEASE),
        "idle": (kept(9), {"seen": Seen(FREE), "pool": ROOM}, Action.NOTHING),
        "idle, unseen": (kept(9), {"seen": Seen(UNKNOWN), "pool": ROOM}, Action.WATCH),
        "idle, blocked": (kept(9), {"seen": Seen(BLOCKED), "pool": ROOM}, Action.NOTHING),
        "idle, other type": (kept(9), {"seen": Seen(OTHER), "pool": ROOM}, Action.RELEASE),
        "type, spared": (kept(9), {"seen": Seen(OTHER), "pool": SPARED}, Action.NOTHING),
        "idle too long": (kept(9), {"seen": Seen(FREE)}, Action.RELEASE),
        "idle, gone": (kept(9), {"seen": Seen(GONE), "pool": ROOM}, Action.UNTAG),
        "bound by a user": (kept(9), {"seen": Seen(replace(BOUND, instance_id="b")), "pool": ROOM}, Action.FORGET),
        "given away already": (kept(9), {"related": Related(elsewhere=True), "pool": ROOM}, Action.FORGET),
        "its instance is back": (kept(9), {"related": Related(heir="u8"), "pool": ROOM}, Action.NOTHING),
        "a spare to order": (PENDING, {"order": UNSENT, "pool": ROOM}, Action.TAG),
        "a spare that is not wanted": (PENDING, {"order": UNSENT}, Action.UNTAG),
        "a spare that may be ordered": (PENDING, {"order": DOUBTFUL}, Action.TAG),
        "a spent token": (PENDING, {"order": Order(refused=True), "pool": ROOM}, Action.FIND),
    },
)  # fmt: skip
def test_the_next_action_without_a_node(claim: Claim, parts: dict[str, Any], expected: Action) -> None:
    assert plan(Snapshot(claim.uid, None, claim, **parts), SETTINGS).action is expected


def test_the_next_node_gets_the_address_of_the_one_that_left_without_an_order() -> None:
    lab = lab_with(count=1)
    lab.opened("n1")
    (address,) = lab.on("n1")
    lab.leave("n1")
    lab.run(lambda: idle(lab) == [address.id], 30, "kept")
    lab.run_for(3600)
    assert [each.status for each in lab.elastic()] == ["UNBIND"]
    lab.opened("n2")

    assert [each.id for each in lab.on("n2")] == [address.id]
    assert lab.count("AllocateAddresses") == 1
    assert lab.count("ReleaseAddresses") == 0
    assert [each for each in lab.recorder.reasons if each.startswith("AnycastIp")] == [
        "AnycastIpBound",
        "AnycastIpKept",
        "AnycastIpTaken",
        "AnycastIpBound",
    ]
    assert list(lab.claims.claims) == [lab.node("n2").metadata.uid]
    lab.settings = SETTINGS
    lab.leave("n2")
    lab.run(lab.is_clean, 60, "clean")
    assert lab.elastic() == []
    assert lab.tag_values("aia-node-name") == lab.tag_values("aia-node-ins-id") == set()


def test_at_a_used_up_quota_a_node_gets_the_address_of_one_that_leaves() -> None:
    lab = lab_with(count=1, quota_total=2)
    lab.opened("n1", "n2")
    lab.join("n3")
    lab.run(lambda: "FailedAllocateAnycastIp" in lab.recorder.reasons, 60, "refused")
    lab.run_for(700)  # the next attempt is minutes away
    before = lab.count("AllocateAddresses")
    lab.leave("n1")
    lab.run(lab.all_open, 30, "open")

    assert len(lab.elastic()) == 2
    assert lab.count("ReleaseAddresses") == 0
    assert lab.count("AllocateAddresses") == before
    lab.settings = SETTINGS
    lab.leave("n2", "n3")
    lab.run(lab.is_clean, 120, "clean")
    assert lab.tag_values("aia-node-name") == set()


def test_a_claim_that_was_written_without_an_answer_is_known_though_its_node_has_left() -> None:
    lab = lab_with(idle=1)
    lab.run(lambda: len(idle(lab)) == 1, 30, "a spare")
    failing = iter([True])

    def fail(verb: str) -> None:
        if verb == "write" and next(failing, False):
            lab.leave("n1")
            raise Unreachable("reset")

    lab.join("n1")
    lab.kube.after = fail
    lab.run_for(60)

    assert {each.uid for each in stored(lab)} == lab.claims.claims.keys()
    assert lab.is_settled()


@pytest.mark.parametrize("idle_limit", [0, 1], ids=["of a node", "of a spare"])
def test_a_claim_that_arrives_after_its_writer_gave_up_is_known(idle_limit: int) -> None:
    lab = lab_with(idle=idle_limit)
    late = list[dict[str, Any]]()

    def delay(name: str, body: dict[str, Any]) -> None:
        if not late and name.startswith("anycast-ip-"):
            late.append(body)
            lab.leave("n1")
            raise Unreachable("too late")

    lab.kube.before_write = delay
    lab.join("n1")
    lab.run_for(20)
    lab.kube.place("configmaps", late[0])
    lab.run_for(120)

    assert {each.uid for each in stored(lab)} == lab.claims.claims.keys()
    assert lab.is_settled()


@table(
    "age, errors",
    {
        "new": (0.0, {}),
        "old": (SURE, {}),
        "the quotas must not be read": (0.0, {"DescribeAddressQuota": "UnauthorizedOperation"}),
    },
)
def test_a_claim_that_arrives_from_the_leader_before_goes_when_the_pool_is_full(
    age: float, errors: dict[str, str]
) -> None:
    lab = lab_with(idle=2, errors=errors)
    lab.run(lambda: len(idle(lab)) == 2, 30, "spares")
    late = spare_for("late", lab.settings, NOW + timedelta(seconds=lab.clock() - age))
    lab.kube.place("configmaps", config_map(late))
    lab.run_for(2 * SETTINGS.resync_period)

    assert {each.address for each in stored(lab)} == set(idle(lab)) == {each.id for each in lab.elastic()}
    assert len(stored(lab)) == 2
    assert lab.is_settled()


def test_an_address_that_another_user_takes_or_releases_is_no_longer_idle() -> None:
    lab = lab_with(count=2)
    lab.opened("n0", "n1", "n2")
    lab.leave("n1", "n2")
    lab.run(lambda: len(idle(lab)) == 2, 30, "kept")
    one, two = idle(lab)
    lab.world.alter(one, status="BIND", instance_id="ins-theirs")
    lab.vanish(two)
    lab.run_for(2 * SETTINGS.resync_period)

    assert idle(lab) == []
    assert [each.instance_id for each in lab.elastic() if each.id == one] == ["ins-theirs"]
    assert "AnycastIpMoved" in lab.recorder.reasons


def test_spares_are_there_before_a_node_and_replaced_after_it() -> None:
    lab = lab_with(idle=2)
    lab.run(lambda: len(idle(lab)) == 2 == len(lab.elastic()), 30, "spares")
    assert lab.tag_values("aia-node-name") == lab.tag_values("aia-node-ins-id") == {POOL}
    lab.run_for(30)
    before = lab.clock(), lab.count("AllocateAddresses")
    lab.opened("n1")
    assert lab.clock() - before[0] < lab.knobs.bind_seconds + 2.5
    lab.run(lambda: len(idle(lab)) == 2, 120, "replaced")

    assert lab.count("AllocateAddresses") == before[1] + 1
    assert len(lab.elastic()) == 3
    lab.leave("n1")
    lab.run(lab.is_settled, 120, "clean")
    assert len(lab.elastic()) == 2
    lab.settings = SETTINGS
    lab.run(lambda: not lab.claims.claims, 120, "no pool")
    assert lab.elastic() == []
    assert lab.tag_values("aia-node-name") == set()


@pytest.mark.parametrize(
    "knobs",
    [
        pytest.param({"quota_total": 1}, id="quota"),
        pytest.param({"denied": ["AllocateAddresses"]}, id="policy"),
    ],
)
def test_a_refused_spare_is_not_ordered_again_and_again(knobs: dict[str, Any]) -> None:
    lab = lab_with(idle=5, **knobs)
    lab.run_for(3600)

    refused = sum(call.action == "AllocateAddresses" and call.outcome != "OK" for call in lab.world.calls)
    assert refused <= 5 + 6 + 12  # once each, then one for all: doubling from 10 s to 5 minutes
    assert len(lab.claims.claims) <= 5


def test_what_vanishes_is_replaced_at_a_measured_pace() -> None:
    lab = lab_with(idle=2)
    lab.run(lambda: len(idle(lab)) == 2, 30, "spares")

    def vanish() -> None:
        for each in list(lab.elastic()):
            if each.status == "UNBIND":
                lab.world.alter(each.id, status="BIND", instance_id="ins-theirs")

    end = lab.clock() + 600
    while lab.clock() < end:
        vanish()
        lab.sources.enqueue_all()
        lab.run_for(5)

    assert lab.count("AllocateAddresses") <= 2 + 2 * 11


def test_orphans_are_released_and_what_is_idle_is_none() -> None:
    reverse = ReverseReconcile.model_validate({"mode": "release"})
    lab = open_lab("n0", "n1", settings=pooling(count=5, idle=2, reverse_reconcile=reverse))
    lab.run(lambda: len(idle(lab)) == 2, 120, "spares")
    lab.leave("n1")
    lab.run(lambda: len(idle(lab)) == 3, 60, "idle")
    before = set(idle(lab))
    tags = original("", **{"aia-node-name": POOL, "aia-node-ins-id": POOL})
    lost = lab.add_address("", status="UNBIND", tags=tags)
    gone = lab.add_address("", status="UNBIND", tags=original("gone"))
    lab.run_for(3000)

    assert not {lost, gone} & lab.world.addresses.keys()
    assert set(idle(lab)) == before


def stored(lab: Lab) -> list[Claim]:
    """What the API server has."""
    found = [msgspec.json.decode(each, type=ConfigMap) for each in lab.kube.api.encoded(CONFIG_MAPS)]
    return [read(each) for each in found if each.metadata.name.startswith("anycast-ip-")]


def unaccounted(lab: Lab) -> Collection[str]:
    """Addresses that no claim names, and no claim's order brings when it is repeated."""
    claims = stored(lab)
    named = {claim.address for claim in claims}
    tokens = {claim.token for claim in claims if not claim.address}
    ordered = {
        each
        for call in lab.world.calls
        if call.action == "AllocateAddresses" and call.params["ClientToken"] in tokens
        for each in lab.world.addresses
        if lab.world.addresses[each].name == call.params["AddressName"]
    }
    return lab.world.addresses.keys() - named - ordered


def test_what_is_idle_is_counted_with_its_seconds() -> None:
    lab = lab_with(count=3)
    lab.opened("n1", "n2")
    lab.leave("n1", "n2")
    lab.run(lambda: len(idle(lab)) == 2, 30, "kept")
    lab.run_for(2)
    before = metric("idle_seconds_total")
    lab.run_for(100)

    assert metric("idle") == 2
    assert metric("idle_limit") == 3
    assert 90 <= metric("idle_oldest_seconds") <= 130
    assert 190 <= metric("idle_seconds_total") - before <= 210
    assert metric("nodes", state="leaving") == 0


def test_the_tags_of_orders_that_were_not_needed_after_all_do_not_add_up() -> None:
    lab = lab_with(count=1, quota_total=1)
    lab.opened("n0")
    for number in range(1, 5):
        lab.join(f"n{number}")
        lab.run_for(10)  # its order is refused
        lab.leave(f"n{number - 1}")
        lab.run(lab.all_open, 60, "open")

    assert lab.tag_values("aia-node-name") == {"n0", "n4"}
    lab.settings = SETTINGS
    lab.leave("n4")
    lab.run(lab.is_clean, 120, "clean")
    assert lab.tag_values("aia-node-name") == set()


def test_spares_that_lose_their_places_before_they_are_ordered_leave_no_tags() -> None:
    lab = lab_with(idle=3)
    lab.run(lambda: bool(lab.tag_values("aia-node-name")), 60, "tags")
    lab.settings = SETTINGS
    lab.run(lambda: lab.is_clean() and not lab.claims.claims, 60, "clean")

    assert lab.tag_values("aia-node-name") == set()


def test_a_node_with_an_order_takes_what_was_idle_on_its_instance_once_that_claim_is_repaired() -> None:
    lab = lab_with(count=2)
    lab.opened("n0")
    lab.leave("n0")
    lab.run(lambda: len(idle(lab)) == 1, 60, "idle")
    lab.opened("n1")
    name = name_of(lab.node("n1").metadata.uid)
    lab.leave("n1")
    lab.run(lambda: len(idle(lab)) == 1, 60, "idle again")
    before = dict(lab.kube.objects["configmaps", name])
    lab.kube.place("configmaps", before | {"data": {FIELD: "{"}})
    lab.knobs.quota_total = 1
    lab.start()
    lab.join("n1")
    lab.run_for(60)
    lab.kube.place("configmaps", before)
    lab.start()
    lab.run(lab.all_open, 1200, "open")

    assert len(lab.claims.claims) == len(lab.elastic()) == 1
