"""A forged record never counts and goes; a true one stays, whatever the leader's watches miss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from msgspec.structs import replace

from calico.segment import IPReservation, Record
from controllers.controller import Clock
from controllers.ip_reservation import confirmations
from controllers.ip_reservation.calls import LOOK_UPS
from controllers.ip_reservation.confirmations import REMEMBERED, TAKEN_OUT, Confirmations, PodAddresses
from kube.types import Pod
from tests.factories import NOW, ago, pod, record, segment
from tests.fakes import FakeClock
from tests.ip_reservation_world import doubted

Doubts = dict[str, frozenset[str]]
BOTH = {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}
V4, V6 = record(), record("fd00::1/128")


@dataclass
class Leader:
    """A leader's knowledge; its informer of pods is at *version*."""

    version: int = 5
    lists: int = 1
    there: list[str] = field(default_factory=list)
    """Keys that a LIST of the segments has."""
    served: list[Record] = field(default_factory=list)
    """Records whose pods the API server has."""

    def __post_init__(self) -> None:
        self.seconds, self.now = FakeClock(), NOW
        self.clock, self.is_over = Clock(lambda: self.now, self.seconds), lambda: False
        self.addresses = PodAddresses(self.clock)
        self.confirmations = Confirmations(self, self.addresses, self)
        self.duration = 0.0

    def reserved_since(self, moment: float) -> Sequence[str]:
        return self.there

    def pod_of(self, record: Record, timeout: float) -> Pod | None:
        self.seconds.advance(self.duration)
        return pod() if record in self.served else None

    def doubts(self, *records: Record, version: int = 5) -> Doubts:
        return self.read(segment(*records, version=str(version)))

    def read(self, *segments: IPReservation) -> Doubts:
        unconfirmed, forged = self.confirmations.read(segments)
        return {"unconfirmed": unconfirmed, "forged": forged}


@pytest.fixture
def leader() -> Leader:
    """One that has made its first run, when there were no records."""
    made = Leader()
    assert made.doubts() == doubted()
    return made


PAST: dict[str, list[tuple[Pod | None, Pod | None]]] = {
    "runs": [(None, pod())],
    "is gone": [(None, pod()), (pod(), None)],
    "is gone, and had no address in the end": [(None, pod()), (pod(ip=""), None)],
    "was rejected, and lost its address": [(None, pod()), (pod(), pod(ip=""))],
    "had an address that came last": [(None, pod(ip="")), (pod(ip=""), pod())],
    "was seen only as it went": [(pod(), None)],
}


@pytest.mark.parametrize("past", PAST.values(), ids=PAST)
def test_a_record_is_confirmed_when_its_pod(
    past: list[tuple[Pod | None, Pod | None]], leader: Leader
) -> None:
    for old, new in past:
        leader.addresses.observe(old, new)

    assert leader.doubts(V4) == doubted()
    assert leader.doubts(V4, V6) == doubted(V6)
    assert leader.doubts(replace(V4, uid="another")) == doubted(replace(V4, uid="another"))


ENDED = record(ended=ago(minutes=1))


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        pytest.param([segment(ENDED)], doubted(), id="that has ended, as a leader noted"),
        pytest.param([segment(record(uid=""))], doubted(), id="that is none, as a hand wrote it"),
        pytest.param(
            [segment(record(at=NOW), name="b"), segment(ENDED, name="a")],
            doubted(),
            id="that has ended, as another record says",
        ),
        pytest.param([segment(record(), version="1")], doubted(record()), id="of the first version: forged"),
        pytest.param(
            [segment(record(), version="opaque")],
            doubted(unconfirmed=[record()]),
            id="at a server whose versions are opaque: not to be dropped",
        ),
    ],
)
def test_a_record_of_a_pod(held: Sequence[IPReservation], expected: Doubts, leader: Leader) -> None:
    assert leader.read(*held) == expected


def test_a_record_whose_pod_the_api_server_has_is_not_dropped(leader: Leader) -> None:
    leader.served = [record()]

    assert leader.doubts(record()) == doubted(unconfirmed=[record()])


def test_only_so_many_records_are_looked_up_in_one_run(leader: Leader) -> None:
    forged = [record(uid=f"{n}") for n in range(5)]
    leader.duration = LOOK_UPS / 2

    dropped = leader.doubts(*forged)

    assert dropped == doubted(*forged[:2], unconfirmed=forged[2:])
    assert leader.doubts(*forged[3:]) == doubted(*forged[3:])


def a_new_leader(leader: Leader) -> None:
    leader.__post_init__()


def a_list(leader: Leader) -> None:
    """As after a watch that broke."""
    leader.lists += 1


def no_pass(leader: Leader) -> None:
    leader.seconds.advance(REMEMBERED / 2 + 1)


def more_pods_that_went_than_are_remembered(leader: Leader) -> None:
    for name in ("a", "b"):
        leader.addresses.observe(pod(name), None)


GAPS = [a_new_leader, a_list, no_pass, more_pods_that_went_than_are_remembered]


@pytest.mark.parametrize("gap", GAPS)
def test_after_a_gap_in_what_is_known_of_pods_all_records_that_are_there_are_presumed_true_and_no_later_one(
    gap: Callable[[Leader], None], leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that the informer of segments shows only later."""
    monkeypatch.setattr(confirmations, "MOST_REMEMBERED", 1)
    leader.there, later = [V6.key], record(uid="later")
    gap(leader)

    assert leader.doubts(V4) == doubted()
    leader.seconds.advance(TAKEN_OUT - 1)
    assert leader.doubts(V4) == doubted()
    assert leader.doubts(V4, V6, later) == doubted(later)
    leader.seconds.advance(TAKEN_OUT)
    assert leader.doubts(V4) == doubted()
    assert leader.doubts(V4, V6) == doubted(V6)


def test_a_break_between_passes_that_an_address_outlasts_is_no_gap(leader: Leader) -> None:
    leader.there = [V6.key]
    leader.seconds.advance(REMEMBERED / 2)

    assert leader.doubts(V6) == doubted(V6)


def test_a_record_counts_from_the_version_at_which_it_was_first_seen(leader: Leader) -> None:
    """Its segment has a higher one when it is written again, or compacted."""
    assert leader.doubts(V4, version=6) == doubted(unconfirmed=[V4])
    assert leader.doubts(V4, version=9) == doubted(unconfirmed=[V4])
    leader.version = 6
    assert leader.doubts(V4, version=9) == doubted(V4)


def test_what_has_ended_and_was_released_is_not_known_any_more(leader: Leader) -> None:
    leader.doubts(record(ended=ago(minutes=1)))
    leader.doubts()

    assert leader.doubts(V4) == doubted(V4)


def test_a_confirmed_record_is_remembered_longer_than_its_pod(leader: Leader) -> None:
    leader.addresses.observe(pod(), None)
    for _ in range(3):
        assert leader.doubts(V4) == doubted()
        leader.seconds.advance(REMEMBERED / 2)
        leader.addresses.observe(pod("another"), None)

    assert leader.doubts(V4) == doubted()


def test_a_pod_that_is_gone_is_not_remembered_for_ever(leader: Leader) -> None:
    leader.addresses.observe(pod(), None)
    leader.seconds.advance(REMEMBERED)
    leader.addresses.observe(pod("another"), None)
    assert leader.addresses.has_or_had(V4)

    leader.seconds.advance(1)
    leader.addresses.observe(pod("a third"), None)
    assert not leader.addresses.has_or_had(V4)
    assert leader.addresses.forgotten == 0


def test_the_end_of_a_pod_is_remembered(leader: Leader) -> None:
    leader.addresses.observe(None, pod())
    assert leader.addresses.ended(V4) is None
    leader.addresses.observe(pod(), None)
    leader.now += timedelta(minutes=5)

    assert leader.addresses.ended(V4) == NOW
