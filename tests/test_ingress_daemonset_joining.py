"""A node that joins in a rollout has the template that all nodes had, until the new one may come."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ingress_daemonset_rolling import NODES
from tests.ingress_daemonset_world import raw_node
from tests.test_ingress_daemonset_rollback import BAD, Returning

Raw = dict[str, Any]
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


def test_with_no_deployment_left_the_template_before_stays_the_one_to_return_to() -> None:
    here = rolling()
    before = here.status["currentRevision"]
    here.roll_out(BAD)
    here.world.deployments.clear()
    here.turn()

    assert (here.status["currentRevision"], images(here, *NODES)) == (before, {"proxy:1"})
