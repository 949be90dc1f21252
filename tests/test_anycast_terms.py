"""Bandwidth and payment by the labels of a node: what is ordered, what is changed, and what is not taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from api.anycast_ip import HAS_ONE, LABEL, TAINT
from cloud.types import Terms
from controllers.anycast_ip.claim import claim_for, order_for, terms_for
from controllers.anycast_ip.planner import bound_annotations, plan
from controllers.anycast_ip.snapshot import Action, Seen, Snapshot
from dev.lab.cloud.envelope import Fault
from kube.types import Node, Taint
from settings import AnycastIPSettings
from settings.anycast_ip import NEED_LABEL
from tests.anycast_world import SETTINGS, UUID, Lab, a_node, an_address, plenty
from tests.factories import NOW
from tests.tables import table
from tests.test_anycast_pool import idle, pool

WIDE = {"nodeSelector": {"net": "wide"}, "bandwidth": 500}
NARROW = {"nodeSelector": {"net": "wide", "a": "b"}, "bandwidth": 7}
PACKAGE = {"internetChargeType": "BANDWIDTH_PACKAGE", "bandwidthPackageID": "bwp-1"}
PACKAGED = {"nodeSelector": {"net": "package"}, **PACKAGE}
BY_TRAFFIC = {"nodeSelector": {"a": "b"}, "internetChargeType": "TRAFFIC_POSTPAID_BY_HOUR"}


def with_entries(*entries: dict[str, Any], **fields: Any) -> AnycastIPSettings:
    given = {"enabled": True, "clusterID": "cls-abc", "addresses": entries, **fields}
    return AnycastIPSettings.model_validate(given)


BOTH = with_entries(WIDE, PACKAGED)


def node(*taints: Taint, annotations: dict[str, str] | None = None, **labels: str) -> Node:
    return a_node(*taints, annotations=annotations, labels={NEED_LABEL: "true", **labels})


@table(
    "settings, labels, expected",
    {
        "no entries": (SETTINGS, {"net": "wide"}, Terms(100)),
        "no entry selects it": (BOTH, {}, Terms(100)),
        "a bandwidth": (BOTH, {"net": "wide"}, Terms(500)),
        "a package": (BOTH, {"net": "package"}, Terms(100, "BANDWIDTH_PACKAGE", "bwp-1")),
        "the first one that selects it": (with_entries(NARROW, WIDE), {"net": "wide", "a": "b"}, Terms(7)),
        "another way to pay has not the package of all": (
            with_entries(BY_TRAFFIC, **PACKAGE),
            {"a": "b"},
            Terms(100, "TRAFFIC_POSTPAID_BY_HOUR"),
        ),
        "what it does not set is as for all": (
            with_entries(WIDE, **PACKAGE),
            {"net": "wide"},
            Terms(500, "BANDWIDTH_PACKAGE", "bwp-1"),
        ),
    },
)
def test_the_labels_of_a_node_decide_about_its_terms(
    settings: AnycastIPSettings, labels: dict[str, str], expected: Terms
) -> None:
    assert terms_for(node(**labels), settings) == expected


def test_an_order_that_is_repeated_is_the_same_whatever_the_settings_became() -> None:
    claim = claim_for(node(net="wide"), BOTH, NOW)
    assert order_for(claim, BOTH, UUID).terms == Terms(500)
    assert order_for(claim, SETTINGS, UUID).terms == Terms(500)


BOUND = an_address(terms=Terms(100))
SHOWING = bound_annotations(node(), BOUND)
CLAIM = replace(claim_for(node(), SETTINGS, NOW), address="eip-1")
UNREPAIRED = BOTH.model_copy(update={"repair": False})


@pytest.mark.parametrize(
    ("settings", "labels", "claim", "bandwidth", "expected"),
    [
        pytest.param(SETTINGS, {"net": "wide"}, CLAIM, 5, Action.NOTHING, id="no entries"),
        pytest.param(BOTH, {"net": "wide"}, CLAIM, 100, Action.RESIZE, id="too narrow"),
        pytest.param(UNREPAIRED, {"net": "wide"}, CLAIM, 100, Action.RESIZE, id="without repair"),
        pytest.param(BOTH, {"net": "wide"}, CLAIM, 500, Action.NOTHING, id="right"),
        pytest.param(BOTH, {}, CLAIM, 500, Action.RESIZE, id="as for all others"),
        pytest.param(BOTH, {"net": "wide"}, CLAIM, 0, Action.NOTHING, id="not known"),
        pytest.param(BOTH, {"net": "wide"}, replace(CLAIM, ours=False), 100, Action.NOTHING, id="not ours"),
    ],
)
def test_the_bandwidth_of_an_open_node_is_corrected(
    settings: AnycastIPSettings, labels: dict[str, str], claim: Any, bandwidth: int, expected: Action
) -> None:
    opened = node(annotations=SHOWING, **{LABEL: HAS_ONE}, **labels)
    seen = replace(BOUND, terms=Terms(bandwidth))
    assert plan(Snapshot("u1", opened, claim, seen=Seen(seen)), settings).action is expected


def test_a_node_opens_before_its_bandwidth_is_corrected() -> None:
    snapshot = Snapshot("u1", node(TAINT, net="wide"), CLAIM, seen=Seen(BOUND))
    assert plan(snapshot, BOTH).action is Action.OPEN


def lab_with(settings: AnycastIPSettings = BOTH, **knobs: Any) -> Lab:
    return Lab(plenty(**knobs), settings)


def width(lab: Lab, name: str = "n1") -> int:
    (address,) = lab.on(name)
    return address.bandwidth


def test_a_refusal_delays_no_node_and_is_said() -> None:
    lab = lab_with(BOTH.model_copy(update={"pool": pool(count=1)}))
    lab.opened()
    lab.leave()
    lab.run(lambda: len(idle(lab)) == 1, 30, "kept")
    lab.knobs.denied = ["ModifyAddressesBandwidth"]
    lab.join("n2", net="wide")
    lab.run(lab.all_open, 30, "open")
    lab.run(lambda: "FailedResizeAnycastIp" in lab.recorder.reasons, 60, "an Event")
    assert lab.count("AllocateAddresses") == 1
    lab.knobs.denied = []
    lab.run(lambda: width(lab, "n2") == 500, 400, "wide")

    assert lab.is_open("n2")


@pytest.mark.parametrize("restarted", [False, True])
def test_terms_that_the_cloud_rejects_are_put_right_for_those_who_wait(restarted: bool) -> None:
    lab = lab_with(with_entries(PACKAGED))

    def reject(action: str, params: Mapping[str, Any]) -> None:
        if params.get("BandwidthPackageId") == "bwp-1":
            raise Fault("InvalidParameterValue.BandwidthPackageNotFound", "")

    lab.sender.instead = reject
    lab.join(net="package")
    lab.run(lambda: lab.said() == ("False", "FailedAllocateAnycastIp"), 60, "rejected")
    lab.settings = with_entries({**PACKAGED, "bandwidthPackageID": "bwp-2"})
    if restarted:
        lab.start()
    lab.run(lab.all_open, 300, "open")


def test_a_spare_that_serves_no_node_any_more_is_replaced() -> None:
    spare = {"pool": pool(idle=1, age="1h"), "internet_charge_type": "TRAFFIC_POSTPAID_BY_HOUR"}
    lab = lab_with(BOTH.model_copy(update=spare))
    lab.run(lambda: len(idle(lab)) == 1, 30, "a spare")
    lab.run_for(3600)
    (former,) = idle(lab)
    lab.settings = BOTH.model_copy(update=spare | {"internet_charge_type": "BANDWIDTH_POSTPAID_BY_HOUR"})
    lab.run_for(3000)
    assert idle(lab) == [former]  # the change may be a slip
    lab.run(lambda: idle(lab) and former not in lab.world.addresses, 1200, "replaced")
    ordered = lab.count("AllocateAddresses")
    lab.opened("n1")

    assert lab.on("n1")[0].charge_type == "BANDWIDTH_POSTPAID_BY_HOUR"
    assert ordered == 2


def test_an_idle_address_that_is_paid_otherwise_is_not_taken() -> None:
    lab = lab_with(BOTH.model_copy(update={"pool": pool(count=2)}))
    lab.opened("n1")
    lab.leave("n1")
    lab.run(lambda: len(idle(lab)) == 1, 30, "kept")
    lab.join("n2", net="package")
    lab.run(lab.all_open, 60, "open")
    assert len(idle(lab)) == 1
    lab.opened("n3")

    assert idle(lab) == []
    assert lab.count("AllocateAddresses") == 2
