"""The programs and the API server come to their end while nodes join: none is opened early, none forgotten."""

from __future__ import annotations

import signal
import time
from random import Random

from lab import faults
from lab.cloud.values import Call
from lab.session import Lab
from tests.chaos import anycast, programs
from tests.cluster.anycast_judge import Judge, judging

LIFE = 2.0
"""Seconds for which each leader leads."""
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
    cloud_lab: Lab, nodes: Judge
) -> None:
    with cloud_lab.cloud.turned(**KNOWN_LATE):
        anycast.leave(cloud_lab, anycast.residents(cloud_lab, nodes))
        names = anycast.join(cloud_lab, 100)
        killed = ""
        for _ in range(5):
            leader = programs.another_leader(cloud_lab, than=killed)
            time.sleep(LIFE)
            anycast.kill_for_good(cloud_lab, leader)
            killed = leader
        nodes.await_open(names, 120)
        nodes.await_end(120)

    assert nodes.too_early == []


def test_a_leader_that_stood_still_changes_nothing_after_its_lease(cloud_lab: Lab, nodes: Judge) -> None:
    anycast.residents(cloud_lab, nodes)
    nodes.await_end()
    programs.await_ready(cloud_lab, "controllers")
    with cloud_lab.cloud.turned(throttled=1.0, faulty_actions=["AllocateAddresses"]):
        late = anycast.join(cloud_lab, 1)
        old = stop_leader_between_two_attempts(cloud_lab)
    programs.another_leader(cloud_lab, than=old)
    nodes.await_open(late)
    nodes.await_end()
    before = state(cloud_lab, nodes)

    programs.kill(cloud_lab, old, signal.SIGCONT)
    cloud_lab.wait(
        lambda: programs.exit_code(cloud_lab, "controllers", old) == 1, 60, "the old leader to end by itself"
    )
    assert state(cloud_lab, nodes) == before


def state(lab: Lab, nodes: Judge) -> tuple[object, ...]:
    """All that the leader writes."""
    world = nodes.world()
    marks = {each.metadata.uid: (each.metadata.annotations, each.spec.taints) for each in world.nodes}
    return marks, world.claims, world.addresses, world.tags, anycast.writes(lab)


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


def stop_leader_between_two_attempts(lab: Lab) -> str:
    """Its pod, which was stopped while it waits to order an address again."""
    return lab.wait(lambda: stopped_in_time(lab), 180, "the leader to be stopped between two attempts")


def stopped_in_time(lab: Lab) -> str:
    """The leader's pod, or nothing when it could not be stopped, or was so late that it might have been at work.

    After two long pauses there comes another one; or, when it has given up, half a second at least.
    """
    third, second, first = ([0.0] * 3 + [each.at for each in orders(lab)])[-3:]
    if min(first - second, second - third) < 2.0 or time.time() - first > 0.4:
        return ""
    leader = programs.leader(lab)
    programs.kill(lab, leader, signal.SIGSTOP)
    if time.time() - first < 0.4 and programs.leader(lab) == leader:
        return leader
    programs.kill(lab, leader, signal.SIGCONT)
    return ""


def orders(lab: Lab) -> list[Call]:
    return [call for call in lab.cloud.calls() if call.action == "AllocateAddresses"]


def test_webhook_servers_come_to_their_end_while_nodes_join(cloud_lab: Lab, nodes: Judge) -> None:
    programs.await_ready(cloud_lab, "webhook")
    first, second = programs.ready(cloud_lab, "webhook")
    anycast.leave(cloud_lab, anycast.residents(cloud_lab, nodes))

    with anycast.streaming(cloud_lab, 0.06) as stream:
        stream.await_next(10)
        programs.delete(cloud_lab, first)
        cloud_lab.wait(
            lambda: set(programs.ready(cloud_lab, "webhook")) - {first, second}, 60, "a server in its place"
        )
        cloud_lab.wait(
            lambda: first not in programs.all_pods(cloud_lab), 60, "the server of before to be gone"
        )
        nodes.await_open(stream.names[:10])
        assert nodes.too_early == []
        programs.kill(cloud_lab, second)
        stream.await_next(max(20, 100 - len(stream.names)))

    # What comes to a server that was killed is let through, and found by the controller.
    nodes.await_open(stream.names, 120)
    nodes.await_end()
    assert nodes.left_open == set()
    programs.await_ready(cloud_lab, "webhook")
    assert programs.exit_code(cloud_lab, "webhook", second) == 137


def test_the_api_server_crashes_and_comes_back_while_nodes_join_and_leave(cloud_lab: Lab) -> None:
    with faults.second_api_server(cloud_lab) as witness, judging(cloud_lab, witness) as nodes:
        with anycast.streaming(cloud_lab, 0.2) as stream:
            stream.await_next(10)
            with faults.killed(cloud_lab, "kube-apiserver"):
                cloud_lab.wait(lambda: not faults.is_ready(cloud_lab.client), 30, "the API server to be away")
            cloud_lab.wait(lambda: faults.is_ready(cloud_lab.client), 60, "the API server to be ready")
            anycast.leave(cloud_lab, stream.names[:5])
            stream.await_next(5)

        nodes.await_end(120)
        assert nodes.too_early == []


def test_nodes_come_and_go_while_all_of_that_happens_at_once(cloud_lab: Lab, nodes: Judge) -> None:
    dice, living = Random(5), dict[str, str]()  # noqa: S311 - dice, not secrets
    with cloud_lab.cloud.turned(**ALL_AT_ONCE):
        for turn in range(48):
            happen(cloud_lab, dice, living)
            if turn == 24:
                anycast.kill_for_good(cloud_lab, programs.another_leader(cloud_lab, than=""))
            time.sleep(dice.uniform(0.0, 0.3))
        nodes.await_end(150)

    assert nodes.too_early == []
