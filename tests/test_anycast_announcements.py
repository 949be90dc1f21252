"""An address is in the allow-list for `announceBefore` before it is bound, whatever fails and across leaders."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from api.anycast_ip import IDLE, TEXT, Entry, is_tainted
from cli.anycast_ip.addresses import announcing as announced
from controllers.anycast_ip.allow_list import LONGEST_WRITE, Announcements
from controllers.anycast_ip.snapshot import Announcement
from kube.types import NEVER
from settings.anycast_ip import AllowList
from tests.anycast_world import Lab, metric, open_lab, plenty
from tests.factories import NOW
from tests.test_anycast_allow_list import NAME, published
from tests.test_anycast_pool import pooling

BEFORE = 120.0
ROUNDING = 1e-5
"""Times of day have microseconds."""
BOUND = ("BINDING", "BIND", "BIND_ENI", "UNBINDING")


def lab_with(count: int = 0, idle: int = 0, before: float = BEFORE, **knobs: Any) -> Lab:
    return Lab(plenty(**knobs), announcing(before, count, idle))


def announcing(before: float = BEFORE, count: int = 0, idle: int = 0) -> Any:
    return pooling(count, idle, allow_list=listing(before))


def listing(before: float) -> AllowList:
    return AllowList.model_validate({"enabled": True, "configMap": NAME, "announceBefore": f"{before:g}s"})


class Watched:
    """What others see of a lab: since when each address is in the ConfigMap, and what is bound meanwhile."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.since, self.wrong = lab, dict[str, float](), list[str]()
        self.binds: list[tuple[str, float]] = []
        """Of each bind, the address and for how long it had been listed."""
        answered, call = lab.kube.api.after, lab.sender.call

        def after(asked: Any, reply: Any) -> None:
            self.look()
            answered(asked, reply)

        def called(api: Any, params: Any, type: Any, timeout: float) -> Any:  # noqa: A002
            if api.action == "AssociateAddress":
                self.look()
                self._bound(lab.world.addresses[params["AddressId"]].ip)
            return call(api, params, type, timeout)

        lab.kube.api.after = after
        lab.sender.call = called  # type: ignore[method-assign, assignment]

    def look(self) -> None:
        listed = listed_in(self.lab)
        for ip in self.since.keys() - listed:
            status = next((each.status for each in self.lab.elastic() if each.ip == ip), "")
            if status in BOUND:
                self.wrong.append(f"{ip} is not listed any more, but {status}")
        self.since = {ip: self.since.get(ip, self.lab.clock()) for ip in listed}

    def _bound(self, ip: str) -> None:
        listed = self.lab.clock() - self.since[ip] if ip in self.since else -1.0
        self.binds.append((ip, listed))
        if listed < self.lab.settings.allow_list.announce_before - ROUNDING:
            self.wrong.append(f"{ip} is bound after {listed} s in the list")


def listed_in(lab: Lab) -> set[str]:
    found = lab.kube.objects.get(("configmaps", NAME))
    return set(found["data"][TEXT].split()) if found else set()


def nodes_in(state: str) -> float:
    return metric("nodes", state=state)


def opened_so_far() -> float:
    return metric("open_seconds_count")


@pytest.mark.parametrize(
    ("recorded", "is_ours", "since"),
    [
        pytest.param(
            NOW - timedelta(hours=1), False, NOW - timedelta(hours=1) + LONGEST_WRITE, id="long ago"
        ),
        pytest.param(NOW - timedelta(seconds=1), False, NOW, id="just now: no later than it is read"),
        pytest.param(NOW + timedelta(hours=1), False, NOW, id="in the future"),
        pytest.param(NEVER, False, NOW, id="at the end of all times"),
        pytest.param(NOW - timedelta(hours=1), True, NOW, id="by this process: from the answer"),
    ],
)
def test_what_another_leader_wrote_counts_from_the_end_of_the_longest_write(
    recorded: datetime, is_ours: bool, since: datetime
) -> None:
    found = Announcements(lambda: NOW)
    found.note((Entry(address="9.0.0.1", id="eip-1", state=IDLE, since=recorded),), is_ours=is_ours)

    assert found.of("eip-1", 1e6) == Announcement(since, since + timedelta(seconds=1e6))


def test_the_command_shows_a_time_at_the_end_of_all_times() -> None:
    found = (Entry(address="9.0.0.1", id="eip-1", state=IDLE, since=NEVER),)
    assert [each.until for each in announced(found, listing(BEFORE), NOW)] == [NEVER]


def test_while_the_list_is_off_a_node_does_not_wait_for_it() -> None:
    off = listing(BEFORE).model_copy(update={"enabled": False})
    lab = open_lab(settings=pooling(allow_list=off))

    assert listed_in(lab) == set()


def test_a_node_waits_until_its_new_address_was_listed_long_enough_and_says_until_when() -> None:
    lab = lab_with()
    watched, before = Watched(lab), opened_so_far()
    lab.join()
    lab.run(lambda: listed_in(lab) != set(), 30, "listed")
    lab.run_for(5)
    (ip,) = listed_in(lab)
    assert published(lab) == {ip: "promised"}
    assert is_tainted(lab.node())
    assert nodes_in("announcing") == 1
    assert nodes_in("waiting") == 0
    assert lab.said() == ("False", "AnycastIpAnnounced")
    [message] = [each.message for each in lab.node().status.conditions]
    assert message.startswith(f"{ip} (eip-")
    assert "is bound at 20" in message
    assert "AnycastIpAnnounced" in lab.recorder.reasons
    asked = lab.count("DescribeAddresses")
    lab.run(lab.all_open, BEFORE + 10, "open")

    assert [each for each, _ in watched.binds] == [ip]
    assert BEFORE <= watched.binds[0][1] < BEFORE + 2
    assert watched.wrong == []
    assert lab.count("DescribeAddresses") - asked < 10
    assert nodes_in("announcing") == 0
    assert opened_so_far() == before, "the wait is not counted as slowness"


@pytest.mark.parametrize("kind", ["a spare", "the address of a node that left"])
def test_an_idle_address_that_was_listed_long_enough_is_bound_at_once(kind: str) -> None:
    lab = lab_with(count=1, idle=int(kind == "a spare"))
    watched = Watched(lab)
    if kind != "a spare":
        lab.opened(seconds=BEFORE + 30)
        lab.leave()
    lab.run(lambda: list(published(lab).values()) == ["idle"], 60, "idle")
    lab.run_for(BEFORE if kind == "a spare" else 1)
    lab.join("n2")
    lab.run(lambda: lab.is_open("n2"), 15, "open")

    assert watched.wrong == []


def test_an_address_that_was_in_use_is_bound_again_at_once() -> None:
    lab = lab_with()
    watched = Watched(lab)
    lab.opened(seconds=BEFORE + 30)
    (address,) = lab.on()
    lab.world.alter(address.id, status="UNBIND", instance_id="")
    lab.run(lambda: is_tainted(lab.node()), 400, "closed")
    lab.run(lab.all_open, 20, "open")

    assert watched.wrong == []


@pytest.mark.parametrize(("then", "within"), [(0.0, 15), (30.0, 45), (300.0, 320)])
def test_a_change_of_the_setting_counts_for_those_who_wait(then: float, within: float) -> None:
    lab = lab_with()
    watched = Watched(lab)
    lab.join()
    lab.run(lambda: listed_in(lab) != set(), 30, "listed")
    lab.settings = announcing(then)
    began = lab.clock()
    lab.run(lab.all_open, within, "open")

    assert lab.clock() - began >= then
    assert watched.wrong == []


def test_a_list_that_was_deleted_is_announced_again() -> None:
    lab = lab_with(idle=1)
    watched = Watched(lab)
    lab.run(lambda: len(listed_in(lab)) == 1, 60, "listed")
    lab.run_for(BEFORE)
    del lab.kube.objects["configmaps", NAME]
    watched.look()
    lab.run(lambda: len(listed_in(lab)) == 1, 310, "listed again")
    lab.opened(seconds=BEFORE + 30)

    assert watched.wrong == []


def test_a_list_that_was_switched_off_and_deleted_is_announced_again() -> None:
    lab = lab_with(idle=1)
    watched = Watched(lab)
    lab.run(lambda: len(listed_in(lab)) == 1, 60, "listed")
    lab.run_for(BEFORE)
    lab.settings = pooling(0, 1)
    lab.run_for(5)
    del lab.kube.objects["configmaps", NAME]
    watched.look()
    assert metric("allow_list_addresses") == 0
    lab.settings = announcing(idle=1)
    lab.join()
    lab.run(lambda: listed_in(lab) != set(), 10, "listed again")
    lab.run(lab.all_open, BEFORE + 30, "open")

    assert watched.wrong == []
