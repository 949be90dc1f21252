"""Few addresses are taken from instances that run, until an operator confirms it; a scale-in is never held up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from controllers.anycast_ip.brake import CONFIRMED, MOST
from controllers.anycast_ip.claim import CLUSTER_UUID
from kube.types import rfc3339
from settings.anycast_ip import NEED_LABEL, Pool
from tests.anycast_world import SETTINGS, Lab, metric, open_lab
from tests.factories import NOW

NAMES = [f"n{number}" for number in range(8)]
HOUR = 3600.0


def copied(*names: str, **fields: Any) -> Lab:
    """The control plane is a copy: the nodes that go here, and their instances, are served by another one."""
    lab = open_lab(*names, **fields)
    lab.leave(*names, scaled_in=False)
    return lab


def bound(lab: Lab) -> int:
    return sum(each.status == "BIND" for each in lab.elastic())


def confirm(lab: Lab, value: str) -> None:
    lab.kube.place("configmaps", {"metadata": {"name": CLUSTER_UUID, "annotations": {CONFIRMED: value}}})


def at(lab: Lab, seconds: float = 0.0) -> str:
    return rfc3339(NOW + timedelta(seconds=lab.clock() + seconds))


def test_a_copy_of_a_control_plane_takes_few_addresses_of_the_living_until_an_operator_confirms_it() -> None:
    lab = copied(*NAMES)
    lab.run_for(HOUR - 60)
    assert bound(lab) == len(lab.claims.claims) == metric("nodes", state="held") == len(NAMES) - MOST
    assert "AnycastIpReleaseHeld" in lab.recorder.reasons
    lab.run_for(HOUR)
    assert bound(lab) == len(NAMES) - 2 * MOST
    lab.knobs.errors = {"DescribeAddresses": "InternalError"}
    lab.run_for(400)
    assert metric("nodes", state="held") == len(NAMES) - 2 * MOST
    lab.knobs.errors = {}
    confirm(lab, at(lab))
    lab.run(lab.is_clean, 120, "clean")

    assert (lab.elastic(), metric("nodes", state="held")) == ([], 0)


def test_what_is_no_word_of_now_confirms_nothing() -> None:
    """No time, a time without a zone, an old one as in a snapshot, one to come."""
    lab = copied(*NAMES)
    lab.run_for(60)
    for word in ("yes", at(lab).removesuffix("Z"), at(lab, -HOUR - 1), at(lab, 2 * HOUR)):
        confirm(lab, word)
        lab.run_for(400)
        assert bound(lab) == len(NAMES) - MOST, word


@pytest.mark.parametrize(("state", "kept"), [("TERMINATING", 0), ("STOPPED", 20), ("not listed", 0)])
def test_a_scale_in_is_never_held_up(state: str, kept: int) -> None:
    names = [f"n{number}" for number in range(20)]
    pool = Pool.model_validate({"retain": {"enabled": kept > 0, "count": kept or 10}})
    settings = SETTINGS.model_copy(update={"pool": pool})
    lab = open_lab(*names, settings=settings, instance_end_unbinds=False)
    for name in names:
        lab.leave(name)
        if state == "not listed":
            lab.world.end_instance(f"ins-{name}")
        else:
            lab.world.add_instance(f"ins-{name}", state=state)
    lab.run(lab.is_settled, 60, "settled")

    assert bound(lab) == 0
    assert len(lab.elastic()) == kept


def test_where_it_cannot_be_read_whether_an_instance_runs_it_counts_as_running() -> None:
    lab = copied(*NAMES, denied=["DescribeInstances"])
    lab.run_for(HOUR / 2)

    assert "still runs, or its state cannot be read" in dict(lab.recorder.events)["AnycastIpReleaseHeld"]
    assert bound(lab) == len(NAMES) - MOST


def test_labels_that_are_removed_from_all_nodes_by_mistake_cost_few_their_addresses() -> None:
    settings = SETTINGS.model_copy(update={"release_on_label_removal": True})
    lab = open_lab(*NAMES, settings=settings)
    before = {each.id for each in lab.elastic()}
    for name in NAMES:
        lab.edit(name, {"metadata": {"labels": {NEED_LABEL: None}}})
    lab.run_for(HOUR / 2)
    assert bound(lab) == len(NAMES) - MOST
    for name in NAMES:
        lab.edit(name, {"metadata": {"labels": {NEED_LABEL: "true"}}})
    lab.run(lab.all_open, 120, "open")

    assert len(before & {each.id for each in lab.elastic()}) == len(NAMES) - MOST
    assert metric("nodes", state="held") == 0


def test_an_unbinding_that_is_tried_again_counts_once() -> None:
    lab = copied(*NAMES[:1])
    lab.world.knobs.throttled, lab.world.knobs.faulty_actions = 1.0, ["DisassociateAddress"]
    lab.run_for(300)
    assert lab.count("DisassociateAddress") > MOST
    lab.world.knobs.throttled = 0.0
    lab.run(lab.is_clean, 120, "clean")

    assert lab.elastic() == []
