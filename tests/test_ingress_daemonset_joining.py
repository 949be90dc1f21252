"""A node that joins in a rollout has the template that all nodes had, until the new one may come."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ingress_daemonset_rolling import NODES
from tests.ingress_daemonset_world import raw_node
from tests.test_ingress_daemonset_rollback import BAD, Returning

Raw = dict[str, Any]
JOINING = tuple(f"m{number}" for number in range(8))
ZONE = "topology.kubernetes.io/zone"
NEVER = {"days": ["Sun"], "start": "02:00", "durationSeconds": 60}


def rolling(*nodes: str, **parts: Any) -> Returning:
    here = Returning(*nodes, rolling={"autoRollback": False, **parts})
    for number, each in enumerate(here.world.nodes.values()):
        each["metadata"]["labels"] = {ZONE: "a" if number < 3 else "b"}
    return here


def join(here: Returning, *names: str, zone: str = "a") -> None:
    for name in names:
        here.world.nodes[name] = raw_node(name, labels={ZONE: zone})


def images(here: Returning, *names: str) -> set[str]:
    return {here.world.image_on(name) for name in names}


def test_no_node_that_joins_gets_a_template_that_failed_or_is_not_proven() -> None:
    """Neither before nor after its deadline."""
    here = rolling()
    here.roll_out(BAD)
    join(here, *JOINING[:4])
    here.play(lambda: here.reason == "Halted")
    join(here, *JOINING[4:])
    here.turns(30)

    assert images(here, *JOINING) == {"proxy:1"}
    for name in JOINING:
        assert here.world.deployments[f"web-{name}"]["status"]["availableReplicas"] == 2


@pytest.mark.parametrize(
    "parts",
    [
        {"canary": {"nodes": 1}},
        {"window": NEVER},
        {"waves": {"byLabel": ZONE, "pause": {"durationSeconds": 9999}}},
    ],
    ids=["canary", "window", "waves"],
)
def test_what_holds_the_template_back_holds_it_back_from_new_nodes(parts: Raw) -> None:
    here = rolling(**parts)
    here.world.retemplate("proxy:2")
    here.turns(100)
    join(here, "m1", zone="b")
    here.turns(20)

    assert images(here, "m1") == {"proxy:1"}


def test_in_a_paused_rollout_a_new_node_is_as_the_others_were() -> None:
    here = rolling()
    here.world.raw["spec"]["paused"] = True
    here.world.retemplate("proxy:2")
    join(here, "m1")
    here.turns(20)

    assert images(here, "m1", *NODES) == {"proxy:1"}


def test_a_new_node_gets_the_new_template_in_its_turn() -> None:
    here = rolling(canary={"nodes": 1})
    here.roll_out()
    join(here, "m1")
    here.play(lambda: here.reason == "CanaryPaused")
    assert images(here, "m1") == {"proxy:1"}

    here.promote()
    here.finish()
    assert images(here, "m1", *NODES) == {"proxy:2"}


def test_where_the_former_template_is_not_kept_a_new_node_gets_the_present_one() -> None:
    here = rolling(canary={"nodes": 1})
    here.world.retemplate("proxy:2")
    here.world.revisions = {}
    join(here, "m1")
    here.turn()

    assert images(here, "m1") == {"proxy:2"}


def test_a_node_on_which_the_former_pods_may_not_run_gets_the_present_ones() -> None:
    """The kubelet would refuse one after the other."""
    here = Returning(*NODES, rolling={"canary": {"nodes": 1}})
    pod = here.world.raw["spec"]["template"]["spec"]
    pod["nodeSelector"] = {ZONE: "a"}
    for each in here.world.nodes.values():
        each["metadata"]["labels"] = {ZONE: "a"}
    here.roll_out("proxy:1")
    here.promote()
    here.finish()

    del pod["nodeSelector"]
    here.world.retemplate("proxy:2")
    join(here, "m1", zone="a")
    join(here, "m2", zone="b")
    here.turn()
    assert (images(here, "m1"), images(here, "m2")) == ({"proxy:1"}, {"proxy:2"})


def test_without_nodes_a_new_template_is_not_complete_and_those_that_join_have_the_one_before() -> None:
    """What an abort returns to is what they have: it must not become the new one before they got that."""
    here = rolling("n1", "n2", canary={"nodes": 1})
    before = here.status["currentRevision"]
    here.world.nodes.clear()
    here.play(lambda: not here.world.deployments)
    assert here.reason == "Complete"

    here.world.retemplate("proxy:2")
    here.turn()
    assert (here.reason, here.status["currentRevision"]) == ("WaitingForNodes", before)
    join(here, *JOINING[:3])
    here.play(lambda: here.reason == "CanaryPaused")
    assert (len(here.updated()), here.status["currentRevision"]) == (1, before)

    here.promote()
    here.finish()
    assert (here.reason, here.updated()) == ("Complete", {*JOINING[:3]})
    assert here.status["currentRevision"] != before


def test_with_no_deployment_left_the_template_before_stays_the_one_to_return_to() -> None:
    here = rolling()
    before = here.status["currentRevision"]
    here.roll_out(BAD)
    here.world.deployments.clear()
    here.turn()

    assert (here.status["currentRevision"], images(here, *NODES)) == (before, {"proxy:1"})
