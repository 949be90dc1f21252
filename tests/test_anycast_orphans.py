"""Addresses whose nodes are gone without a claim: found for certain, reported, released when that is wished for."""

from __future__ import annotations

from typing import Any

import pytest

from cloud.types import Address
from controllers.anycast_ip.resync import due
from kube.errors import Unreachable
from settings.anycast_ip import ReverseReconcile
from tests.anycast_world import SETTINGS, Lab, failing, metric, original

GRACE = 1800.0


def lab_with(mode: str, **fields: Any) -> Lab:
    reverse = ReverseReconcile.model_validate({"mode": mode, **fields})
    return Lab(settings=SETTINGS.model_copy(update={"reverse_reconcile": reverse}))


def left_behind(lab: Lab, name: str = "gone", **fields: Any) -> str:
    return lab.add_address(f"ins-{name}", **{"tags": original(name), **fields})


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="still bound to its instance"),
        pytest.param({"status": "UNBIND", "instance_id": ""}, id="free"),
    ],
)
def test_an_orphan_is_released_with_its_tags_after_the_grace_period(fields: dict[str, Any]) -> None:
    lab = lab_with("release")
    lab.opened()
    orphan = left_behind(lab, **fields)
    lab.run_for(GRACE - 60)
    assert orphan in lab.world.addresses
    lab.run(lambda: orphan not in lab.world.addresses, 1500, "released")
    lab.run(lab.is_clean, 60, "clean")

    assert len(lab.on()) == 1


@pytest.mark.parametrize(("mode", "enabled"), [("report", True), ("release", False)], ids=["reported", "off"])
def test_without_a_wish_for_it_nothing_is_released_and_without_a_search_nothing_said(
    mode: str, enabled: bool
) -> None:
    lab = lab_with(mode, enabled=enabled)
    orphan = left_behind(lab)
    lab.join()
    lab.run_for(3 * GRACE)

    assert ("OrphanedAnycastIp" in lab.recorder.reasons) is enabled
    assert orphan in lab.world.addresses
    assert lab.count("DisassociateAddress", "ReleaseAddresses") == 0


def test_where_no_orphans_are_searched_for_any_more_none_are_counted() -> None:
    lab = lab_with("report")
    left_behind(lab)
    lab.join()
    lab.run(lambda: metric("orphans") == 1, 1200, "counted")
    lab.settings = SETTINGS.model_copy(update={"reverse_reconcile": ReverseReconcile(enabled=False)})
    lab.run(lambda: metric("orphans") == 0, 60, "counted no more")


KEPT = {
    "of a node that is there": {"tags": original("n1"), "status": "UNBIND"},
    "whose node's name is there": {"tags": original("gone", **{"aia-node-name": "n1"})},
    "whose instance is there": {"tags": original("gone", **{"aia-node-ins-id": "ins-n1"})},
    "of another cluster": {"tags": original("gone", **{"aia-official-cluster-id": "cls-b"})},
    "of another uuid": {"tags": {"aia-official-cluster-uuid": "b"}},
    "that names no node": {"tags": {**original("gone"), "aia-node-name": ""}},
    "bound elsewhere by another user": {"tags": original("gone"), "instance_id": "ins-b"},
}


def test_addresses_that_may_be_of_use_are_kept() -> None:
    lab = lab_with("release")
    kept = {lab.add_address("ins-gone", **fields): what for what, fields in KEPT.items()}
    lab.join()
    lab.edit("n1", {"metadata": {"labels": {"tke.cloud.tencent.com/need-aia-ip": None}}})
    lab.run_for(3 * GRACE)

    assert {what for address, what in kept.items() if address not in lab.world.addresses} == set()
    assert lab.count("DisassociateAddress", "ReleaseAddresses") == 0


def test_a_list_of_nodes_that_fails_or_is_empty_releases_nothing() -> None:
    lab = lab_with("release")
    orphan = left_behind(lab)
    lab.run_for(2 * GRACE)
    assert orphan in lab.world.addresses
    lab.join()
    lab.kube.before = failing("list", Unreachable("reset"))
    lab.run_for(3 * GRACE)

    assert orphan in lab.world.addresses


def test_only_so_many_are_released_in_each_round_the_longest_known_first() -> None:
    settings = ReverseReconcile.model_validate({"mode": "release", "maxPerRound": 2, "grace": "100s"})
    found = [Address(id=each, status="UNBIND") for each in "abcd"]

    assert [each.id for each in due(found, {"a": 3.0, "b": 2.0, "c": 1.0}, settings, 200.0)] == ["c", "b"]
    assert due(found, {"a": 101.0}, settings, 200.0) == []
    assert due(found, {}, settings, 1e9) == []


def test_each_is_reported_before_a_user_decides_about_all() -> None:
    lab = lab_with("report", maxPerRound=2)
    orphans = {left_behind(lab, f"gone{number}") for number in range(5)}
    lab.join()
    lab.run_for(2 * GRACE)

    assert {
        text.split()[0] for reason, text in lab.recorder.events if reason == "OrphanedAnycastIp"
    } == orphans
