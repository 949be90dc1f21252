"""The programs and the API server come to their end while nodes join: none is opened early, none forgotten."""

from __future__ import annotations

import time
from random import Random

from dev.judge.observation import needs_address
from dev.lab import faults
from dev.lab.session import Lab
from dev.outside import Outside, judged, of_addresses
from tests.chaos import anycast, programs
from tests.cluster.anycast import assert_empty_soon, left_behind

CLOSED_LATE = 30.0
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
