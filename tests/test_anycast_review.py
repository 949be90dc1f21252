"""Faults that coincide and cost money or service: stale lists, edits by hand, wrong accounts, restored backups."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from api.anycast_ip import ADDRESS, ADDRESS_ID, BOUND, is_tainted, wanted
from controllers.anycast_ip.claim import ORPHAN, Claim, claim_for, data, name_of
from controllers.anycast_ip.sources import ClaimStore
from dev.lab.cloud import Knobs
from dev.lab.cloud.world import World
from kube.errors import AlreadyExists, Conflict, ServerError
from settings.anycast_ip import NEED_LABEL, ReverseReconcile
from tests.anycast_world import SETTINGS, Killed, Kube, Lab, config_map, failing, open_lab, original, plenty
from tests.factories import DEEP, NOW
from tests.fakes import FakeClock
from tests.tables import table
from tests.test_anycast_pool import pooling


@pytest.mark.parametrize("restarted", [False, True])
def test_what_the_tags_still_list_is_not_gone(restarted: bool) -> None:
    lab = open_lab("n1", "n2")
    before = sorted(each.id for each in lab.elastic())
    lab.sender.instead = lambda action, params: (
        {"AddressSet": [], "TotalCount": 0}
        if action == "DescribeAddresses" and "AddressIds" in params
        else None
    )
    if restarted:
        lab.knobs.instances_exist = False
        lab.start()
    lab.edit("n1", {"spec": {"taints": None}})
    lab.sources.inventory.is_wanted = True
    lab.run_for(1800)

    assert sorted(each.id for each in lab.elastic()) == before
    assert lab.all_open()


def test_an_absence_that_cannot_be_judged_keeps_no_other_node() -> None:
    lab = open_lab("n1", denied=["DescribeInstances"], tag_lag_seconds=600)
    lab.vanish(lab.on()[0].id)
    lab.run(lambda: lab.count("DescribeInstances") > 2, 4000, "asked without an answer")
    lab.join("n2")
    lab.run(lambda: lab.is_open("n2"), 60, "open")


def test_without_the_label_a_node_is_freed_though_the_cloud_cannot_be_asked() -> None:
    lab = Lab(Knobs(denied=["DescribeAddresses"]))
    lab.join()
    lab.run_for(30)
    lab.edit("n1", {"metadata": {"labels": {NEED_LABEL: None}}})
    lab.run(lambda: not is_tainted(lab.node()), 30, "let go")


def test_a_slip_releases_nothing_after_the_labels_of_nodes_were_exchanged() -> None:
    releasing = SETTINGS.model_copy(update={"release_on_label_removal": True})
    lab = open_lab(settings=releasing)
    lab.edit("n1", {"metadata": {"labels": {"edge": "true"}}})
    lab.settings = releasing.model_copy(update={"node_labels": {"edge": "true"}})
    lab.run_for(30)
    lab.edit("n1", {"metadata": {"labels": {NEED_LABEL: None}}})
    lab.run_for(30)
    lab.settings = releasing.model_copy(update={"node_labels": {"misspelt": "true"}})
    lab.run_for(400)
    assert lab.count("DisassociateAddress", "ReleaseAddresses") == 0
    lab.edit("n1", {"metadata": {"labels": {"edge": None}}})
    lab.run(lambda: not lab.elastic() and not lab.claims.claims, 120, "released")


def test_a_node_without_a_claim_is_open_while_its_instance_is_not_known() -> None:
    """As in a copy of a control plane, whose former nodes are still listed."""
    lab = Lab(plenty(instances_exist=False))
    lab.join("n1", gated=False)
    lab.edit("n1", {"metadata": {"annotations": {ADDRESS_ID: "eip-old"}}})
    lab.join("n2")
    lab.world.add_instance("ins-n2")
    lab.run_for(400)

    assert not is_tainted(lab.node("n1"))
    assert [each.instance_id for each in lab.elastic()] == ["ins-n2"]


def test_keys_of_another_account_close_no_node_of_the_original_and_order_nothing_there() -> None:
    lab = Lab()
    for name in ("n1", "n2"):
        lab.join(name, gated=False)
        address = lab.add_address(f"ins-{name}", tags=original(name))
        lab.edit(name, {"metadata": {"annotations": {ADDRESS_ID: address}}})
    ours, another = lab.world, World(Knobs(instances_exist=False), lab.clock)
    lab.sender.world = another
    lab.run_for(2 * SETTINGS.resync_period)
    assert [each for each in lab.nodes() if is_tainted(each)] == []
    assert (another.addresses, lab.recorder.reasons) == ({}, ["FailedAllocateAnycastIp"] * 2)

    lab.sender.world = ours
    lab.run(lab.all_open, 400, "proven")
    assert {each.address for each in lab.claims.claims.values()} == {each.id for each in lab.elastic()}


def test_keys_of_another_account_order_nothing_for_a_node_that_joins() -> None:
    lab = Lab()
    ours, another = lab.world, World(Knobs(instances_exist=False), lab.clock)
    lab.sender.world = another
    lab.join()
    lab.run_for(60)
    assert (another.addresses, lab.recorder.reasons) == ({}, ["FailedAllocateAnycastIp"])

    lab.sender.world = ours
    lab.run(lab.all_open, 120, "proven")
    assert len(lab.elastic()) == 1


def test_a_slip_releases_no_address_that_is_taken_over() -> None:
    releasing = SETTINGS.model_copy(update={"release_on_label_removal": True})
    lab = Lab(settings=releasing.model_copy(update={"node_labels": {"misspelt": "true"}}))
    lab.join(gated=False)
    address = lab.add_address("ins-n1", tags=original())
    lab.edit("n1", {"metadata": {"annotations": {ADDRESS_ID: address}}})
    lab.run_for(400)
    assert lab.count("DisassociateAddress", "ReleaseAddresses") == 0
    lab.settings = releasing
    lab.run(lab.is_open, 60, "open")
    lab.edit("n1", {"metadata": {"labels": {NEED_LABEL: None}}})
    lab.run(lambda: not lab.elastic() and not lab.claims.claims, 120, "released")


def test_a_release_that_has_begun_ends_when_the_setting_is_turned_off_meanwhile() -> None:
    lab = open_lab(settings=SETTINGS.model_copy(update={"release_on_label_removal": True}))
    lab.edit("n1", {"metadata": {"labels": {NEED_LABEL: None}}})
    lab.run(lambda: not lab.elastic(), 120, "released")
    assert lab.claims.claims
    lab.settings = SETTINGS

    lab.run(lambda: not lab.claims.claims, 120, "its claim to go")
    assert lab.tag_values("aia-node-name") == set()


def test_an_address_of_ours_is_taken_back_after_its_type_was_changed_in_the_settings() -> None:
    lab = open_lab("n1")
    (address,) = lab.on()
    del lab.kube.objects["configmaps", name_of(lab.node().metadata.uid)]
    lab.settings = SETTINGS.model_copy(update={"address_type": "EIP"})
    lab.clock.advance(30)
    lab.start()
    lab.run(lambda: bool(lab.claims.claims), 60, "adopted")
    assert lab.is_open()
    lab.leave()
    lab.run(lab.is_clean, 120, "clean")

    assert address.id not in lab.world.addresses


MARKS = {ADDRESS_ID, ADDRESS, BOUND}


@table(
    "change, expected",
    {
        "blocked for a while": ({"blocked": True}, MARKS),
        "lost": ({"status": "UNBIND", "instance_id": ""}, set()),
    },
)
def test_a_node_without_its_label_shows_its_address_as_long_as_that_is_bound(
    change: dict[str, Any], expected: set[str]
) -> None:
    lab = open_lab("n1")
    lab.edit("n1", {"metadata": {"labels": {NEED_LABEL: None}}})
    lab.run_for(10)
    lab.world.alter(lab.on("n1")[0].id, **change)
    lab.run_for(2 * SETTINGS.resync_period)

    assert MARKS & lab.node("n1").metadata.annotations.keys() == expected
    assert lab.claims.claims


def held(kube: Kube) -> ClaimStore:
    return ClaimStore(kube, "drawbridge", FakeClock(), "")


def test_a_cluster_that_was_restored_from_anothers_backup_takes_none_of_its_addresses_for_orphans() -> None:
    release = ReverseReconcile.model_validate({"mode": "release"})
    lab = open_lab(settings=SETTINGS.model_copy(update={"reverse_reconcile": release}))
    (claim,) = lab.claims.claims.values()
    lab.kube.place("configmaps", config_map(replace(claim, cluster="there")))
    lab.leave("n1")
    lab.join("n2")
    lab.cluster = "here"
    lab.start()
    lab.run_for(4000)

    assert lab.on("n1")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"asked": "2026-01-01T00:00:00"}, id="a time of no zone"),
        pytest.param({"node": ""}, id="no node"),
        pytest.param({"uid": "u2"}, id="a copy of another"),
        pytest.param({"deep": "DEEP"}, id="nested too deeply"),
    ],
)
def test_a_claim_that_a_user_spoilt_stops_nothing(change: dict[str, str]) -> None:
    kube = Kube()
    claim = Claim(uid="u1", node="n1", instance="ins-1", token="t", name="a", asked=NOW)
    text = json.dumps(json.loads(data(claim)["claim"]) | change).replace('"DEEP"', DEEP)
    kube.place("configmaps", config_map(claim, text))

    assert not held(kube).claims


ORDER = Claim(uid="u1", node="n1", instance="ins-1", token="t", name="a", asked=NOW)
RECORDED = replace(ORDER, token="t of another leader", address="eip-1")


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param(lambda ours: ours.put(replace(ORDER, token="another t")), id="renewed"),
        pytest.param(lambda ours: ours.drop("u1"), id="dropped"),
    ],
)
def test_what_is_known_of_an_order_goes_with_it_and_not_before(ends: Callable[[ClaimStore], None]) -> None:
    kube = Kube()
    ours = held(kube)
    ours.put_order(ORDER)
    ours.refused.add("t")
    ours.put(replace(ORDER, labels={"need": "true"}))
    assert (ours.unsent, ours.refused) == ({"t"}, {"t"})
    ends(ours)

    assert (ours.unsent, ours.refused) == (set(), set())


def order_again(ours: ClaimStore) -> None:
    ours.put_order(replace(ORDER, token="another t"))


@pytest.mark.parametrize(
    ("known", "change"),
    [
        pytest.param(None, order_again, id="made meanwhile, ordered"),
        pytest.param(ORDER, order_again, id="written meanwhile, ordered"),
        pytest.param(ORDER, lambda ours: ours.drop("u1"), id="written meanwhile, dropped"),
    ],
)
def test_what_another_leader_has_made_of_a_claim_stays(
    known: Claim | None, change: Callable[[ClaimStore], None]
) -> None:
    kube = Kube()
    if known:
        kube.place("configmaps", config_map(known))
    ours, others = held(kube), held(kube)
    others.put(RECORDED)

    with pytest.raises((AlreadyExists, Conflict)):
        change(ours)

    assert ours.get("u1") == held(kube).get("u1") == RECORDED


def settled(lab: Lab) -> bool:
    """Each labelled node is open, and no other address is left."""
    labelled = [each.metadata.name for each in lab.nodes() if wanted(each, lab.settings)]
    return all(map(lab.is_open, labelled)) and len(lab.elastic()) == len(lab.claims.claims) == len(labelled)


def assert_none_is_shown_twice(lab: Lab) -> None:
    opened = [each for each in lab.nodes() if lab.is_open(each.metadata.name)]
    shown = [each.metadata.annotations[ADDRESS_ID] for each in opened]
    assert len(shown) == len(set(shown))


def test_an_address_that_was_moved_to_another_node_is_not_adopted_there_before_its_own_has_given_it_up() -> (
    None
):
    lab = open_lab("n1", "n3")
    (address,) = lab.on("n1")
    lab.kube.after = lambda verb: assert_none_is_shown_twice(lab)
    lab.world.alter(address.id, instance_id="ins-n2")
    lab.join("n2")
    lab.run_for(60)
    assert not lab.is_open("n2")
    lab.run(lambda: settled(lab), SETTINGS.resync_period + 60, "settled")

    assert [each.id for each in lab.on("n2")] == [address.id]


@pytest.mark.parametrize(
    ("moved", "to"),
    [
        ("long before the node leaves", {"instance_id": "ins-x"}),
        ("just before", {"instance_id": "nat-x"}),
        ("afterwards", {"status": "BIND_ENI", "instance_id": "", "network_interface_id": "eni-x"}),
    ],
    ids=["to another instance, long before the node leaves", "to a NAT gateway, just before", "to an interface, after"],
)  # fmt: skip
def test_an_address_that_a_user_moved_is_left_to_them_and_keeps_no_claim(
    moved: str, to: dict[str, str]
) -> None:
    lab = open_lab("n1", "n2")
    (address,) = lab.on("n1")
    if moved != "afterwards":
        lab.world.alter(address.id, **to)
    if moved == "long before the node leaves":
        lab.run(lambda: lab.on("n1") != [], SETTINGS.resync_period + 60, "another one for the node")
    lab.leave("n1")
    if moved == "afterwards":
        lab.world.alter(address.id, **to)
    lab.run(lambda: {each.node for each in lab.claims.claims.values()} == {"n2"}, 120, "no claim of n1")
    lab.run_for(3 * SETTINGS.reverse_reconcile.grace)

    (theirs,) = (each for each in lab.elastic() if each.instance_id != "ins-n2")
    assert (theirs.id, theirs.instance_id, theirs.tags) == (address.id, to["instance_id"], address.tags)
    assert theirs.status == to.get("status", "BIND")
    assert "OrphanedAnycastIp" not in lab.recorder.reasons


def test_an_order_with_an_unknown_end_is_looked_up_by_its_name_when_it_is_old() -> None:
    lab = Lab(plenty(client_token_seconds=60))
    lab.sender.after = failing("AllocateAddresses", Killed())
    lab.join()
    with pytest.raises(Killed):
        lab.run_for(30)
    lab.sender.after = lambda action: None
    lab.clock.advance(3600)
    lab.start()
    lab.run(lab.all_open, 60, "open")

    assert len(lab.elastic()) == 1


@pytest.mark.parametrize("by_hand", [False, True], ids=["bound by us", "bound by a user"])
def test_an_address_that_was_not_released_after_all_is_missed_again_when_it_vanishes(by_hand: bool) -> None:
    lab = open_lab(faulty_actions=["ReleaseAddresses"], server_errors=1.0)
    lab.leave()
    lab.run(lambda: claim_of(lab, "n1").releasing, 30, "not released")
    if by_hand:
        lab.world.alter(claim_of(lab, "n1").address, status="BIND", instance_id="ins-n1")
    lab.join("n2", "ins-n1")
    lab.run(lab.all_open, 60, "open again")

    assert [each.id for each in lab.elastic()] == [claim_of(lab, "n2").address]
    assert not claim_of(lab, "n2").releasing


def fail_once(lab: Lab, verb: str) -> None:
    """The next write of this kind to the API server."""
    failing = iter([True])

    def fail(sent: str) -> None:
        if sent == verb and next(failing, False):
            raise ServerError(500, "InternalError", "etcd")

    lab.kube.before = fail


def test_a_claim_that_could_not_be_deleted_at_once_is_deleted_without_another_proof() -> None:
    lab = open_lab()
    fail_once(lab, "delete")
    lab.leave()
    lab.run(lab.is_clean, 60, "clean")


def test_a_claim_that_could_not_be_renewed_at_once_is_renewed_without_another_proof() -> None:
    lab = open_lab("n1", "n2")
    lab.vanish(lab.on()[0].id)
    lab.run(lambda: not lab.is_open(), 500, "closed")
    fail_once(lab, "write")
    lab.run(lab.all_open, 30, "open")


@pytest.mark.parametrize("at_once", [False, True])
def test_what_is_ordered_though_a_backup_is_older_than_the_nodes_address_is_released(at_once: bool) -> None:
    def called(verb: str) -> None:
        # As another worker, while the answer is awaited.
        for uid in lab.claims.claims if at_once and verb == "delete" else ():
            if uid.startswith(ORPHAN):
                lab.reconciler.reconcile(uid)

    lab = open_lab("n1", "n2", settings=pooling(count=1), quota_total=2)
    lab.join("n3")
    lab.run(lambda: "FailedAllocateAnycastIp" in lab.recorder.reasons, 60, "refused")
    backup = [config_map(each) for each in lab.claims.claims.values()]
    lab.leave("n1")
    lab.run(lab.all_open, 60, "open")
    lab.knobs.quota_total = 9
    for uid in lab.claims.claims:
        del lab.kube.objects["configmaps", name_of(uid)]
    for each in backup:
        lab.kube.place("configmaps", each)
    lab.start()
    lab.kube.before = called
    lab.run_for(1000)

    assert lab.all_open()
    assert len(lab.elastic()) == 2
    assert lab.is_clean()


def claim_of(lab: Lab, name: str) -> Claim:
    (claim,) = (each for each in lab.claims.claims.values() if each.node == name)
    return claim


@pytest.mark.parametrize("order", [("n1", "n2"), ("n2", "n1")])
def test_two_nodes_of_one_instance_with_a_claim_each_cost_one_address(order: tuple[str, str]) -> None:
    """A claim that was given up for its time-out may arrive after the other node has made its own."""
    lab = Lab()
    for name in order:
        node = lab.join(name, instance="ins-n1")
        lab.kube.place("configmaps", config_map(claim_for(node, lab.settings, NOW)))
    lab.start()
    lab.run_for(1800)

    assert len(lab.elastic()) == 1
    assert sorted(map(lab.is_open, order)) == [False, True]
    assert "DuplicateInstanceID" in lab.recorder.reasons
    stays = next(name for name in order if lab.is_open(name))
    lab.leave(stays, scaled_in=False)
    lab.run(lambda: lab.all_open() and len(lab.elastic()) == 1, 600, "the other one opens")


def test_an_address_that_a_user_binds_while_another_is_ordered_is_adopted_and_the_ordered_one_released() -> (
    None
):
    lab = Lab(plenty(quota_total=0))
    lab.join()
    lab.run_for(30)
    theirs = lab.add_address("ins-n1")
    lab.knobs.quota_total = 10
    lab.run(lambda: lab.is_open() and lab.is_clean(), 600, "open with theirs, and nothing else is left")

    assert lab.node().metadata.annotations[ADDRESS_ID] == theirs
    assert lab.count("AllocateAddresses") > 1


def test_a_node_whose_address_a_user_exchanged_leaves_no_tags_behind() -> None:
    lab = open_lab("n1", "n2")
    lab.vanish(lab.on("n1")[0].id)
    theirs = lab.add_address("ins-n1")
    lab.run(lambda: lab.node().metadata.annotations.get(ADDRESS_ID) == theirs, 600, "theirs is adopted")
    lab.leave("n1")
    lab.run(lambda: lab.is_clean([theirs]), 600, "clean")

    assert lab.tag_values("aia-node-name") == {"n2"}
    assert lab.tag_values("aia-node-ins-id") == {"ins-n2"}


@pytest.mark.parametrize("dies", [False, True])
def test_an_address_that_a_user_binds_while_a_quota_refuses_is_adopted(dies: bool) -> None:
    lab = Lab(plenty(quota_total=0))
    lab.join()
    lab.run_for(30)
    if dies:
        lab.start()
    theirs = lab.add_address("ins-n1")
    lab.run(lab.is_open, 900, "open with theirs")

    assert lab.node().metadata.annotations[ADDRESS_ID] == theirs
    assert not lab.tag_values("aia-node-name")


def test_an_order_in_doubt_is_not_mistaken_for_an_earlier_one_that_the_node_gave_up() -> None:
    lab = open_lab("n1", "n2")
    (first,) = lab.on("n1")
    lab.knobs.lost, lab.knobs.faulty_actions = 1.0, ["AllocateAddresses"]
    lab.world.alter(first.id, instance_id="ins-9")
    lab.run(lambda: len(lab.elastic()) == 3, 600, "another is ordered")
    lab.world.alter(first.id, status="UNBIND", instance_id="")
    lab.run(lab.is_open, 900, "found by its name")

    claimed = {each.address for each in lab.claims.claims.values()}
    assert claimed == {each.id for each in lab.elastic()} - {first.id}
