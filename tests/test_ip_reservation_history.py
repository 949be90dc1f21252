"""It is known for a time who had an address before, after any leader, and nothing is written while nothing ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from api import ip_history
from api.ip_history import LABEL, LABEL_VALUE, NAME, Former, History, StoredHistory, unpacked
from calico.pools import Block, IPAMBlock, block_of, decode_block
from controllers.clock import Clock
from controllers.informers import Informers
from controllers.ip_reservation import history as module
from controllers.ip_reservation.history import (
    AGAIN,
    MOST,
    MOST_GAPS,
    PERIOD,
    SOON,
    HistoryReconciler,
    grown,
    is_news,
    merged,
    moment_of,
    packed,
    released,
    with_gap,
)
from dev.fake_api import BUILT_IN, FakeAPI
from dev.lab.waiting import until
from kube.errors import AlreadyExists, Conflict
from kube.resources import CONFIG_MAPS
from settings import IPReservationSettings
from tests.calico_pools import BLOCKS, KINDS, a_held_block, assigned_to
from tests.factories import NOW, ago
from tests.fakes import FakeClock, FakeRecorder
from tests.ip_reservation_world import Killed
from tests.managed import context_of
from tests.metrics import sample

CIDR = "10.0.0.0/26"
DAY = 86400.0
SETTINGS = IPReservationSettings.model_validate({"pools": {"enabled": True, "history": "24h"}})
SINCE = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def former(pod: str = "redis-0", ip: str = "10.0.0.1", **fields: Any) -> Former:
    return Former(
        **{"ip": ip, "namespace": "redis", "pod": pod, "node": "node-1", "since": SINCE, "until": NOW}
        | fields
    )


def known(*each: Former, **fields: Any) -> History:
    return History(**{"begun": ago(days=2), "seen": NOW, "former": each} | fields)


# What ended.


def cooling(cidr: str = CIDR) -> Block:
    """As Calico 3.33 writes it: the address stays assigned, its handle goes."""
    raw = assigned_to(cidr, redis_0="10.0.0.1", redis_1="10.0.0.2")
    raw["spec"]["attributes"][0] |= {"handle_id": None, "releasedAt": "2026-01-02T03:04:05Z"}
    return block_of(msgspec.convert(raw, IPAMBlock))


BOTH = a_held_block(CIDR, redis_0="10.0.0.1", redis_1="10.0.0.2")
REVERSED = a_held_block(CIDR, redis_1="10.0.0.2", redis_0="10.0.0.1")
AGAIN_ASSIGNED = a_held_block(CIDR, kafka_0="10.0.0.1", redis_1="10.0.0.2")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(None, BOTH, [], id="a new block"),
        pytest.param(BOTH, BOTH, [], id="no change"),
        pytest.param(BOTH, REVERSED, [], id="attributes in another order"),
        pytest.param(BOTH, a_held_block(CIDR, redis_1="10.0.0.2"), [former()], id="one is released"),
        pytest.param(BOTH, AGAIN_ASSIGNED, [former()], id="one is assigned again"),
        pytest.param(BOTH, cooling(), [former()], id="one begins its cooldown"),
        pytest.param(cooling(), a_held_block(CIDR, redis_1="10.0.0.2"), [], id="one ends its cooldown"),
        pytest.param(BOTH, None, [former(), former("redis-1", "10.0.0.2")], id="the block is deleted"),
    ],
)  # fmt: skip
def test_what_a_change_of_a_block_ends(old: Block | None, new: Block | None, expected: list[Former]) -> None:
    assert [*released(old, new, NOW)] == expected


def test_an_address_of_no_pod_is_known_by_its_handle_and_one_of_ipv6_by_its_address() -> None:
    raw = assigned_to("fd00::/122", redis_0="fd00::1")
    raw["spec"]["attributes"] = [{"handle_id": "vxlan-tunnel-addr-a", "secondary": {"node": "a"}}]
    block = block_of(msgspec.convert(raw, IPAMBlock))

    assert [*released(block, None, NOW)] == [
        Former("fd00::1", "", "vxlan-tunnel-addr-a", "a", None, NOW),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-02 03:04:00.123456789 +0000 UTC m=+0.1", SINCE),
        ("2026-01-02 03:04:00 +0000 UTC", SINCE),
        ("", None),
        ("yesterday +0000", None),
        ("2026-01-02 03:04:00 +0800 CST", None),
    ],
)
def test_a_time_as_go_prints_it(text: str, expected: datetime | None) -> None:
    assert moment_of(text) == expected


# Its bounds.


def test_what_ended_too_long_ago_goes_with_gaps_and_marks_of_that_time() -> None:
    old, new = former(until=ago(hours=25)), former("redis-1", until=ago(hours=23))
    gaps = ((ago(hours=30), ago(hours=29)), (ago(hours=26), ago(hours=1)))

    found = grown(known(old, gaps=gaps, truncated=ago(hours=25)), [new], NOW, DAY)

    assert (found.former, found.gaps, found.truncated) == ((new,), gaps[1:], None)


def test_of_too_many_the_first_to_end_are_dropped_and_that_is_said() -> None:
    many = [former(f"redis-{number}", until=ago(seconds=number)) for number in range(MOST + 2)]

    found = grown(known(), many, NOW, DAY)

    assert len(found.former) == MOST
    assert found.truncated == ago(seconds=MOST)
    assert found.complete_since(DAY, NOW) == ago(seconds=MOST)


def test_more_bytes_than_an_object_may_have_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SIZE", 2000)
    many = [former(f"redis-{number * 7919:x}", until=ago(seconds=1000 - number)) for number in range(1000)]

    kept, stored = packed(known(*many))

    assert len(stored) <= 2000
    assert 0 < len(kept.former) < 1000
    assert kept.former[-1] == many[-1]
    assert kept.truncated == many[1000 - len(kept.former) - 1].until
    assert unpacked(stored) == kept


@pytest.mark.parametrize("stored", [b"", b"junk", packed(known(former()))[1][:40]])
def test_what_is_no_history_is_refused(stored: bytes) -> None:
    with pytest.raises(ValueError, match="no history"):
        unpacked(stored)


def test_what_unpacks_to_more_than_any_history_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _, stored = packed(known(former()))
    monkeypatch.setattr(ip_history, "LARGEST", 50)

    with pytest.raises(ValueError, match="no history"):
        unpacked(stored)


def test_of_many_gaps_the_oldest_become_one() -> None:
    found = known(seen=NOW)
    for number in range(MOST_GAPS + 5):
        found = with_gap(
            replace(found, seen=NOW + timedelta(minutes=number)), NOW + timedelta(minutes=number, seconds=30)
        )

    assert len(found.gaps) == MOST_GAPS
    assert found.gaps[0] == (NOW, NOW + timedelta(minutes=5, seconds=30))
    assert found.gaps[1][0] == NOW + timedelta(minutes=6)


def test_a_leader_whose_clock_is_behind_notes_no_gap() -> None:
    assert with_gap(known(seen=NOW), ago(seconds=5)) == known(seen=NOW)


def test_what_two_leaders_saw_end_is_there_once_by_the_first_of_them() -> None:
    first, second = former(until=ago(seconds=3)), former(until=ago(seconds=1))
    alone = former("redis-1", until=ago(seconds=2))

    found = merged(known(second, begun=ago(days=1)), known(first, alone, truncated=ago(hours=2)))

    assert found.former == (first, alone)
    assert (found.begun, found.truncated) == (ago(days=2), ago(hours=2))


def test_what_has_only_expired_is_written_within_an_hour() -> None:
    stored = known(former(until=ago(hours=24, minutes=30)))
    without = grown(stored, [], NOW, DAY)

    assert without.former == ()
    assert not is_news(stored, without, NOW, DAY)
    assert is_news(stored, without, NOW + timedelta(minutes=31), DAY)


# The leader.


class Cluster:
    """Blocks at an API server, and leaders that follow them, by one clock."""

    def __init__(self) -> None:
        self.api = FakeAPI(*BUILT_IN, *KINDS)
        self.api.ensure_namespace("drawbridge")
        self.seconds = FakeClock()
        self.settings, self.informers = SETTINGS, list[Informers]()
        self.assign(redis_0="10.0.0.1", redis_1="10.0.0.2", redis_2="10.0.0.3")

    @property
    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds() - 1000.0)

    def leader(self, check: Callable[[], None] = lambda: None) -> HistoryReconciler:
        context = context_of(self.api.client(), FakeRecorder(), check)
        self.informers.append(context.informers)
        blocks = context.informers.of(BLOCKS, Block, decode=decode_block)
        clock = Clock(lambda: self.now, self.seconds)
        made = HistoryReconciler(context, lambda: self.settings, lambda: blocks, clock)
        until(lambda: made.reconcile("") > SOON)
        return made

    def assign(self, **pods: str) -> None:
        self.api.put(BLOCKS, assigned_to(CIDR, **pods))

    def ends(self, *leaders: HistoryReconciler, **left: str) -> None:
        """All but those that are *left*; *leaders* have seen it."""
        self.assign(**left)
        until(lambda: all(each._fresh for each in leaders))

    def turn(self, leader: HistoryReconciler, seconds: float = PERIOD) -> float:
        self.seconds.advance(seconds)
        return leader.reconcile("")

    @property
    def stored(self) -> History:
        return stored_in(self.api)

    @property
    def pods(self) -> list[str]:
        return [each.pod for each in self.stored.former]

    @property
    def writes(self) -> int:
        return sum(each.method != "GET" for each in self.api.calls)

    def close(self) -> None:
        for each in self.informers:
            each.stop()


def stored_in(api: FakeAPI) -> History:
    raw = api.get(CONFIG_MAPS, NAME, "drawbridge")
    return msgspec.json.decode(msgspec.json.encode(raw), type=StoredHistory).history


@pytest.fixture
def cluster() -> Any:
    made = Cluster()
    yield made
    made.close()


def test_it_is_stored_who_had_an_address_from_when_until_when_and_where(cluster: Cluster) -> None:
    leader = cluster.leader()
    cluster.ends(leader, redis_1="10.0.0.2", redis_2="10.0.0.3")
    cluster.turn(leader)

    assert cluster.stored.former == (former(until=NOW),)
    assert cluster.stored.begun == NOW
    assert sample("drawbridge_ip_history_entries") == 1
    labels = cluster.api.get(CONFIG_MAPS, NAME, "drawbridge")["metadata"]["labels"]
    assert labels[LABEL] == LABEL_VALUE


def test_many_ends_share_one_write_a_minute(cluster: Cluster) -> None:
    leader = cluster.leader()
    before = cluster.writes
    cluster.ends(leader, redis_1="10.0.0.2", redis_2="10.0.0.3")
    cluster.turn(leader)
    cluster.ends(leader, redis_2="10.0.0.3")
    for _ in range(5):
        assert 0 < cluster.turn(leader, 10.0) <= PERIOD
    assert (cluster.writes, cluster.pods) == (before + 1, ["redis-0"])
    cluster.turn(leader, 10.0)

    assert (cluster.writes, cluster.pods) == (before + 2, ["redis-0", "redis-1"])


def test_nothing_is_written_while_nothing_ends(cluster: Cluster) -> None:
    leader = cluster.leader()
    cluster.assign(redis_0="10.0.0.1", redis_1="10.0.0.2", redis_2="10.0.0.3", kafka_0="10.0.0.4")
    before = cluster.writes
    for _ in range(50):
        cluster.turn(leader, 3600.0)

    assert cluster.writes == before


def test_what_is_switched_off_while_it_runs_is_no_longer_written(cluster: Cluster) -> None:
    leader = cluster.leader()
    before = cluster.writes
    cluster.settings = IPReservationSettings()
    cluster.ends(leader)
    cluster.turn(leader)

    assert cluster.writes == before


# Faults.


def test_the_next_leader_knows_what_the_last_one_stored_and_notes_the_time_between(cluster: Cluster) -> None:
    first = cluster.leader()
    cluster.ends(first, redis_1="10.0.0.2", redis_2="10.0.0.3")
    cluster.turn(first)
    cluster.informers[0].stop()
    seen = cluster.stored.seen
    cluster.seconds.advance(120)
    cluster.assign(redis_2="10.0.0.3")

    cluster.leader()

    assert cluster.pods == ["redis-0"]
    assert cluster.stored.gaps == ((seen, cluster.now),)


def test_a_leader_that_stops_stores_the_rest_and_up_to_when_it_has_seen_the_blocks(cluster: Cluster) -> None:
    leader = cluster.leader()
    cluster.turn(leader, 3600.0)
    cluster.ends(leader, redis_1="10.0.0.2")
    leader.finish()
    assert sorted(cluster.pods) == ["redis-0", "redis-2"]

    cluster.seconds.advance(7200)
    leader.finish()
    assert cluster.now - cluster.stored.seen < timedelta(minutes=1)


@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
@pytest.mark.parametrize("last", [1, 2, 3])
def test_a_leader_killed_at_any_write_leaves_all_that_was_written_and_no_end_twice(
    cluster: Cluster, last: int, after: bool
) -> None:
    api, done = cluster.api, last if after else last - 1

    def dies(call: Any, _reply: Any = None) -> None:
        nonlocal last
        last -= is_write(call)
        if last <= 0:
            api.fault, api.after = lambda call: None, lambda call, reply: None
            raise Killed

    if after:
        api.after = dies
    else:
        api.fault = dies
    with pytest.raises(Killed):
        end_two(cluster)
    written = cluster.pods if done else []
    cluster.seconds.advance(30)

    following = cluster.leader()
    cluster.ends(following)
    cluster.turn(following)
    cluster.turn(following)

    assert cluster.pods[: len(written)] == written
    assert len({*cluster.pods}) == len(cluster.pods)
    assert bool(cluster.stored.gaps) is bool(done)


def end_two(cluster: Cluster) -> None:
    """One after the other, seen by a leader."""
    leader = cluster.leader()
    for left in ({"redis_1": "10.0.0.2", "redis_2": "10.0.0.3"}, {"redis_2": "10.0.0.3"}):
        cluster.ends(leader, **left)
        cluster.turn(leader)


def is_write(call: Any) -> bool:
    return call.method in ("POST", "PUT") and "configmaps" in call.path


def test_blocks_that_were_listed_again_leave_a_gap_from_when_they_were_heard_last(cluster: Cluster) -> None:
    leader = cluster.leader()
    blocks: Any = leader._blocks()

    def heard(lists: int, silence: float) -> None:
        seen: Any = SimpleNamespace(wait_synced=blocks.wait_synced, lists=lists, silence=silence)
        leader._blocks = lambda: seen

    heard(blocks.lists, 200.0)
    cluster.turn(leader, 300.0)
    assert cluster.stored.gaps == ()
    begin = cluster.now - timedelta(seconds=202)

    heard(blocks.lists + 1, 0.0)
    cluster.turn(leader, 10.0)

    assert cluster.stored.gaps == ((begin, cluster.now),)


def test_a_config_map_of_another_client_is_left_alone(cluster: Cluster) -> None:
    theirs = {"metadata": {"name": NAME, "namespace": "drawbridge"}, "data": {"a": "b"}}
    cluster.api.put(CONFIG_MAPS, theirs)
    leader = cluster.leader()
    cluster.ends(leader, redis_1="10.0.0.2", redis_2="10.0.0.3")
    assert 0 < cluster.turn(leader) <= AGAIN
    assert cluster.writes == 0

    cluster.api.edit(CONFIG_MAPS, NAME, {"metadata": {"labels": {LABEL: LABEL_VALUE}}}, "drawbridge")
    cluster.turn(leader, AGAIN)
    assert cluster.pods == ["redis-0"]


def test_what_another_client_deletes_or_spoils_is_written_again(cluster: Cluster) -> None:
    leader = cluster.leader()
    cluster.ends(leader, redis_1="10.0.0.2", redis_2="10.0.0.3")
    cluster.turn(leader)
    cluster.api.remove(CONFIG_MAPS, NAME, "drawbridge")
    cluster.ends(leader, redis_2="10.0.0.3")
    cluster.turn(leader)
    assert cluster.pods == ["redis-0", "redis-1"]

    cluster.api.edit(CONFIG_MAPS, NAME, {"binaryData": {"history.json.gz": "anVuaw=="}}, "drawbridge")
    cluster.ends(leader)
    cluster.turn(leader)
    assert cluster.pods == ["redis-0", "redis-1", "redis-2"]


def test_what_two_leaders_write_at_once_is_stored_together(cluster: Cluster) -> None:
    """The former one wrote between the other's read and its write."""
    first, second = cluster.leader(), cluster.leader()
    cluster.ends(first, second, redis_1="10.0.0.2", redis_2="10.0.0.3")

    def meanwhile(call: Any) -> None:
        if is_write(call):
            cluster.api.fault = lambda call: None
            cluster.turn(first)

    cluster.api.fault = meanwhile
    with pytest.raises((Conflict, AlreadyExists)):
        cluster.turn(second)
    cluster.ends(second, redis_2="10.0.0.3")
    cluster.turn(second)

    assert cluster.pods == ["redis-0", "redis-1"]
