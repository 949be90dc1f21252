"""The programs and the API server come to their end while nodes join: none is opened early, none forgotten."""

from __future__ import annotations

import time
from random import Random

from dev.judge.observation import instance, needs_address
from dev.lab import faults
from dev.lab.session import Lab
from tests.chaos import anycast, programs
from tests.chaos.outside import Outside, judged, of_addresses
from tests.cluster.anycast import assert_empty_soon, left_behind

LIFE = 2.0
"""Seconds for which each leader leads."""
FOREIGN, CLOSED_LATE = 15.0, 30.0
KNOWN_LATE = {
    "tag_lag_seconds": 30.0,
    # Each death comes between orders and their answers.
    "slow": 1.0,
    "slow_seconds": 0.5,
    "faulty_actions": ["AllocateAddresses"],
}
NAMES = {f"again-{number}" for number in range(16)}
INSTANCES = {f"ins-again{number}" for number in range(16)}
ALL_AT_ONCE = {
    "throttled": 0.2,
    "internal_errors": 0.05,
    "server_errors": 0.05,
    "html": 0.05,
    "lost": 0.1,
    "slow": 0.05,
    "slow_seconds": 1.0,
    "bind_fails": 0.1,
    "token_busy_while_creating": True,
}


def test_the_leader_is_killed_again_and_again_while_orders_and_tags_are_known_late(
    cloud_lab: Lab, cloud: Outside
) -> None:
    with cloud_lab.cloud.turned(**KNOWN_LATE):
        anycast.leave(cloud_lab, anycast.residents(cloud_lab, cloud))
        names = anycast.join(cloud_lab, 100)
        killed = ""
        for _ in range(5):
            leader = programs.another_leader(cloud_lab, than=killed)
            time.sleep(LIFE)
            anycast.kill_for_good(cloud_lab, leader)
            killed = leader
        anycast.await_open(cloud, names, 120)
        assert cloud.at_rest() == []


def happen(lab: Lab, dice: Random, living: dict[str, str]) -> None:
    """One of *living*, instances by the names of their nodes, leaves or, more often, another joins.

    There are so few names and instances that each comes again, seldom with the same other one.
    """
    if dice.random() < 0.4 and living:
        name = dice.choice(sorted(living))
        del living[name]
        anycast.leave_one(lab, name)
    elif free := sorted(NAMES - living.keys()):
        name, instance = dice.choice(free), dice.choice(sorted(INSTANCES - set(living.values())))
        living[name] = instance
        anycast.join_one(lab, name, instance)


def test_webhook_servers_come_to_their_end_while_nodes_join(cloud_lab: Lab, cloud: Outside) -> None:
    programs.await_ready(cloud_lab, "webhook")
    first, second = programs.ready(cloud_lab, "webhook")
    anycast.leave(cloud_lab, anycast.residents(cloud_lab, cloud))

    # What comes to a server that was killed is let through, and found by the controller.
    with judged(cloud_lab, of_addresses(CLOSED_LATE)) as outside:
        with anycast.streaming(cloud_lab, 0.06) as stream:
            stream.await_next(10)
            programs.delete(cloud_lab, first)
            cloud_lab.wait(
                lambda: set(programs.ready(cloud_lab, "webhook")) - {first, second}, 60, "one in its place"
            )
            cloud_lab.wait(lambda: first not in programs.all_pods(cloud_lab), 60, "the first one to be gone")
            assert cloud.findings() == []
            programs.kill(cloud_lab, second)
            stream.await_next(max(20, 100 - len(stream.names)))

        anycast.await_open(outside, stream.names, 120)
        assert outside.at_rest() == []
    programs.await_ready(cloud_lab, "webhook")
    assert programs.exit_code(cloud_lab, "webhook", second) == 137


def test_the_api_server_crashes_and_comes_back_while_nodes_join_and_leave(cloud_lab: Lab) -> None:
    with (
        faults.second_api_server(cloud_lab) as witness,
        judged(cloud_lab, of_addresses(), client=witness) as outside,
    ):
        with anycast.streaming(cloud_lab, 0.2) as stream:
            stream.await_next(10)
            with faults.killed(cloud_lab, "kube-apiserver"):
                cloud_lab.wait(lambda: not faults.is_ready(cloud_lab.client), 30, "the API server to be away")
            cloud_lab.wait(lambda: faults.is_ready(cloud_lab.client), 60, "the API server to be ready")
            anycast.leave(cloud_lab, stream.names[:5])
            stream.await_next(5)

        assert outside.at_rest() == []


def test_a_machine_is_registered_again_and_its_second_node_leaves_while_leaders_end(
    cloud_lab: Lab, cloud: Outside
) -> None:
    names = anycast.residents(cloud_lab, cloud)[:4]
    assert cloud.at_rest() == []
    again = {f"{name}-again": instance(cloud.seen.nodes[name]) for name in names}

    for name, machine in again.items():
        anycast.join_one(cloud_lab, name, machine)
    anycast.kill_for_good(cloud_lab, programs.another_leader(cloud_lab, than=""))
    time.sleep(LIFE)
    anycast.leave(cloud_lab, [*again])
    anycast.kill_for_good(cloud_lab, programs.another_leader(cloud_lab, than=""))

    assert cloud.at_rest() == []


def test_nodes_leave_while_the_keys_are_of_another_account(cloud_lab: Lab, cloud: Outside) -> None:
    names = anycast.residents(cloud_lab, cloud)
    assert cloud.at_rest() == []
    anycast.leave(cloud_lab, names[:2])
    with cloud_lab.cloud.turned(foreign_keys=True):
        anycast.leave(cloud_lab, names[2:5])
        anycast.kill_for_good(cloud_lab, programs.another_leader(cloud_lab, than=""))
        time.sleep(FOREIGN)

    assert cloud.at_rest(240) == []


def test_nodes_come_and_go_while_all_of_that_happens_at_once(cloud_lab: Lab, cloud: Outside) -> None:
    dice, living = Random(5), dict[str, str]()  # noqa: S311 - dice, not secrets
    with cloud_lab.cloud.turned(**ALL_AT_ONCE):
        for turn in range(48):
            happen(cloud_lab, dice, living)
            if turn == 24:
                anycast.kill_for_good(cloud_lab, programs.another_leader(cloud_lab, than=""))
            time.sleep(dice.uniform(0.0, 0.3))
        assert cloud.at_rest(150) == []


def test_in_the_end_nothing_is_left_of_all_these_nodes(cloud_lab: Lab, cloud: Outside) -> None:
    anycast.leave(cloud_lab, [name for name, each in cloud.seen.nodes.items() if needs_address(each)])

    assert_empty_soon(cloud_lab, lambda: left_behind(cloud_lab))
