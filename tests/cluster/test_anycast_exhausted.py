"""A node beyond the quota opens without an address, and gets one when it can: on a real control plane."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from api.anycast_ip import CONDITION, LABEL, is_open_without, is_tainted
from controllers.anycast_ip.claim import Claim, data, name_of, read
from controllers.anycast_ip.planner import EXHAUSTED
from dev.lab.session import Lab
from dev.lab.waiting import at_most
from kube.resources import CONFIG_MAPS
from kube.types import ConfigMap
from tests.cluster import anycast
from tests.cluster.anycast import DRAWBRIDGE, FLEET, Fleet

pytestmark = pytest.mark.nightly


@pytest.mark.promise
def test_a_node_beyond_the_quota_opens_without_an_address_and_gets_one_while_it_is_open(
    cloud_lab: Lab, fleet: Fleet
) -> None:
    """The ten minutes pass in its claim, from which the next leader goes on."""
    anycast.reconfigure(cloud_lab, whenExhausted="release")
    try:
        with cloud_lab.cloud.turned(quota_total=0):
            uid = fleet.join("a").metadata.uid
            claim = fleet.wait(lambda: refused(fleet, uid), "its order to be refused")
            assert is_tainted(fleet.node("a"))
            since = claim.refused and claim.refused - EXHAUSTED
            changed = {"data": data(replace(claim, refused=since))}
            fleet.client.patch(CONFIG_MAPS, name_of(uid), changed, DRAWBRIDGE)
            begin_again(cloud_lab)
            fleet.wait(lambda: is_open_without(fleet.node("a")), "the node to open without an address")
            assert nodes(fleet, "none") == [fleet.name_of("a")]
            fleet.wait(lambda: fleet.condition("a")["reason"] == "AnycastIpExhausted", "its condition")
            fleet.await_event("a", "AnycastIpExhausted")
            # No update of it brings the taint back.
            fleet.lab.kubectl("label", "node", fleet.name_of("a"), "zone=b")
            assert not is_tainted(fleet.node("a"))
        fleet.lab.kubectl("wait", f"--for=condition={CONDITION}", f"node/{fleet.name_of('a')}", at_most(120))
        assert nodes(fleet, "bound") == [fleet.name_of("a")]
        assert len(fleet.on("a")) == 1
    finally:
        anycast.reconfigure(cloud_lab)


def refused(fleet: Fleet, uid: str) -> Claim | None:
    found = fleet.client.find(CONFIG_MAPS, name_of(uid), DRAWBRIDGE, type=ConfigMap)
    claim = read(found) if found else None
    return claim if claim and claim.refused else None


def begin_again(lab: Lab) -> None:
    deployment = ("-n", DRAWBRIDGE, "rollout")
    lab.kubectl(*deployment, "restart", "deployment/drawbridge-controllers")
    lab.kubectl(*deployment, "status", "deployment/drawbridge-controllers", at_most(120))


def nodes(fleet: Fleet, value: str) -> list[str]:
    """As a nodeSelector finds them."""
    found = fleet.client.list(anycast.NODES, label_selector=f"{FLEET}={fleet.token},{LABEL}={value}").items
    return [each["metadata"]["name"] for each in found]
