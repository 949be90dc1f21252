"""What `drawbridge simulate join` foresees is what joining nodes bring."""

from __future__ import annotations

from dev.lab.session import Lab
from tests.cluster.anycast import Fleet
from tests.cluster.test_cli import shown

COUNT = 12


def test_as_many_addresses_are_ordered_as_were_foreseen_and_each_node_is_closed(
    cloud_lab: Lab, fleet: Fleet
) -> None:
    fleet.join("first")
    fleet.await_open("first")
    found = shown(cloud_lab, "simulate", "join", str(COUNT), "--like", fleet.name_of("first"))
    before = len(fleet.addresses())

    joined = [fleet.join(f"n{number}") for number in range(COUNT)]
    fleet.await_open(*(f"n{number}" for number in range(COUNT)))

    orders = found["orders"]
    assert orders["needed"] == len(fleet.addresses()) - before == COUNT
    for node in joined:
        taints = [f"{each.key}={each.value}:{each.effect}" for each in node.spec.taints]
        assert set(taints) >= set(found["taints"])
    assert found["admission"].startswith("allowed; changed")
