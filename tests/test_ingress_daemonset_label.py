"""Nodes that are detached by the label by which load balancers leave them out, which others set, too."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from api.health_checks import SCHEDULED
from api.ingress_daemonset import DETACHED_BY, FINALIZER
from api.ingress_daemonset.template import EXCLUDED
from api.ingress_daemonset.types import RollingUpdate, resource
from controllers.ingress_daemonset.detachment import (
    attach_node,
    attach_node_for_all,
    deployment_mark_of,
    detach_node,
    holders_of,
)
from controllers.ingress_daemonset.readers import (
    STATUSES,
    Announcements,
    announcements,
    with_announcements,
)
from dev.fake_api import FakeAPI, merged, refusal
from dev.fake_api.kinds import BUILT_IN, Kind
from kube.errors import Forbidden
from kube.types import ObjectMeta
from tests.factories import DEEP, NOW
from tests.ingress_daemonset_leader import Leader, outdated
from tests.ingress_daemonset_world import DETACHED, World, raw_resource

Raw = dict[str, Any]
LABELLING = {"maxUnavailableNodes": 1, "labelNodeToDetach": True}
BOTH = LABELLING | {"annotateNodeToDetach": {"key": DETACHED, "value": "true"}}
OFF = {EXCLUDED: ""}


def rolling(**fields: Any) -> RollingUpdate:
    given = resource(raw_resource(rolling=LABELLING | fields))
    return given.spec.update_strategy.rolling_update


def world(*names: str, **fields: Any) -> World:
    """That has come to rest with its first template, before another one is rolled out."""
    created = World(raw_resource(rolling=LABELLING | fields), *(names or ("n1", "n2")))
    created.settle()
    created.retemplate("proxy:2")
    return created


def labels(here: World, name: str = "n1") -> Raw:
    found: Raw = here.nodes[name]["metadata"]["labels"]
    return found


def off(here: World) -> set[str]:
    return {name for name in here.nodes if EXCLUDED in labels(here, name)}


def test_one_after_the_other_bears_the_label_while_its_pods_are_replaced() -> None:
    here = world()
    planned = here.turn()
    [written] = [each for each in planned.actions if each.target.kind == "Node"]
    assert written.body["metadata"]["labels"] == OFF
    assert DETACHED_BY in written.body["metadata"]["annotations"], "in the same write"
    assert off(here) == {"n1"}

    assert here.plan().requeue_at == here.now + timedelta(seconds=60)
    here.later(59)
    here.turn()
    assert here.updated() == set()
    here.later(1)
    here.turn()
    assert (here.updated(), off(here)) == ({"n1"}, {"n1"})
    assert here.status()["unavailableNodes"] == here.status()["detachedNodes"] == 1

    here.settle()
    assert (here.updated(), off(here)) == ({"n1", "n2"}, set())
    assert not [each for each in here.nodes.values() if each["metadata"]["annotations"]]


def test_a_node_that_others_left_out_counts_and_is_left_out_afterwards() -> None:
    here = world("n1", "n2")
    labels(here, "n2")[EXCLUDED] = ""
    here.settle()

    assert here.updated() == {"n2"}, "it uses up the budget, and is updated within it"
    assert off(here) == {"n2"}
    assert here.status()["unavailableNodes"] == 1

    del labels(here, "n2")[EXCLUDED]
    here.settle()
    assert (here.updated(), off(here)) == ({"n1", "n2"}, set())


@pytest.mark.parametrize("when", ["detaching", "updating"])
def test_a_label_that_is_removed_in_mid_rollout_comes_back(when: str) -> None:
    here = world("n1")
    here.turn()
    if when == "updating":
        here.later(60)
        here.turn()
        assert here.updated() == {"n1"}
    here.later(30)
    del labels(here)[EXCLUDED]
    here.turn()

    assert off(here) == {"n1"}
    here.later(59)
    here.turn()
    assert here.updated() == ({"n1"} if when == "updating" else set()), "load balancers have the whole time"
    here.settle()
    assert (here.updated(), off(here)) == ({"n1"}, set())


def test_a_label_that_somebody_else_gives_another_value_stays() -> None:
    here = world("n1")
    here.turn()
    labels(here)[EXCLUDED] = "true"
    here.settle()

    assert here.updated() == {"n1"}
    assert labels(here) == {EXCLUDED: "true"}
    assert here.status()["unavailableNodes"] == 1


def test_a_node_that_was_left_out_before_and_no_longer_is_gets_our_label() -> None:
    here = world("n1")
    labels(here)[EXCLUDED] = ""
    here.turn()
    del labels(here)[EXCLUDED]
    here.turn()
    assert off(here) == {"n1"}
    here.settle()
    assert off(here) == set()


def test_switched_off_in_mid_rollout_it_leaves_nothing_behind() -> None:
    here = world("n1")
    here.turn()
    here.raw["spec"]["updateStrategy"]["rollingUpdate"]["labelNodeToDetach"] = False
    here.settle()

    assert (here.updated(), off(here)) == ({"n1"}, set())


@pytest.mark.parametrize("way", [EXCLUDED, DETACHED])
def test_a_detached_node_that_leaves_is_attached_after_its_pods_have_gone(way: str) -> None:
    here = World(raw_resource(rolling=BOTH, nodeSelector={"edge": "yes"}), "n1")
    labels(here)["edge"] = "yes"
    here.settle()
    here.retemplate("proxy:2")
    here.turn()
    del labels(here)["edge"]

    def is_detached() -> bool:
        metadata = here.nodes["n1"]["metadata"]
        return way in metadata["labels"] | metadata["annotations"]

    while here.deployments:
        assert is_detached()
        assert FINALIZER in here.raw["metadata"]["finalizers"]
        here.turn()
        here.later(1)
    here.settle()
    assert not is_detached()
    assert here.raw["metadata"]["finalizers"] == []


def test_without_detaching_no_node_is_labelled() -> None:
    here = world("n1", maxUnavailableNodes=0)
    here.settle()
    assert here.updated() == {"n1"}
    assert not rolling(maxUnavailableNodes=0).labels_node


def node(**labels: str) -> ObjectMeta:
    return ObjectMeta("n1", labels=labels)


def patched(held: ObjectMeta, changes: Raw) -> ObjectMeta:
    after = merged({"labels": held.labels, "annotations": held.annotations}, changes)
    return ObjectMeta("n1", labels=after["labels"], annotations=after["annotations"])


def test_the_label_goes_with_the_last_that_wants_it() -> None:
    held = node()
    for uid in ("a", "b"):
        held = patched(held, detach_node(held, uid, rolling(), NOW))
    with_annotation = rolling(labelNodeToDetach=False, annotateNodeToDetach={"key": DETACHED})
    held = patched(held, detach_node(held, "c", with_annotation, NOW))

    held = patched(held, attach_node(held, "a"))
    assert held.labels == OFF
    held = patched(held, attach_node(held, "b"))
    assert (held.labels, DETACHED in held.annotations) == ({}, True)
    held = patched(held, attach_node(held, "c"))
    assert held == node()


def test_of_two_the_one_that_labels_the_node_again_does_not_take_it_from_the_other() -> None:
    held = ObjectMeta("n1", labels={EXCLUDED: ""})
    for uid in ("a", "b"):
        held = patched(held, detach_node(held, uid, rolling(), NOW))
    held = patched(held, {"labels": {EXCLUDED: None}})
    held = patched(held, detach_node(held, "a", rolling(), NOW))

    held = patched(held, attach_node(held, "a"))
    assert held.labels == OFF
    assert patched(held, attach_node(held, "b")) == node()


@pytest.mark.parametrize("value", [None, "", "true"])
def test_the_job_before_an_uninstall_removes_what_is_ours(value: str | None) -> None:
    """The label was there with *value* before, or came with the first of two."""
    before = {} if value is None else {EXCLUDED: value}
    held = ObjectMeta("n1", labels=before)
    for uid in ("a", "b"):
        held = patched(held, detach_node(held, uid, rolling(), NOW))
    assert EXCLUDED in held.labels

    assert patched(held, attach_node_for_all(held)).labels == before


def test_an_older_mark_is_read_and_wants_no_label() -> None:
    old = {"a": {"at": "2026-01-01T00:00:00Z", "key": DETACHED}}
    held = ObjectMeta("n1", labels=OFF, annotations={DETACHED: "", DETACHED_BY: json.dumps(old)})
    assert patched(held, attach_node(held, "a")) == ObjectMeta("n1", labels=OFF)


@pytest.mark.parametrize(
    "mark",
    [
        pytest.param("{", id="no JSON"),
        pytest.param('{"at":"2026-07-01T08:00:00"}', id="a time without its zone"),
        pytest.param(f'{{"at":"2026-07-01T08:00:00Z","deep":{DEEP}}}', id="nested too deeply"),
    ],
)
def test_a_mark_that_cannot_be_read_is_another_writers(mark: str) -> None:
    assert holders_of({DETACHED_BY: f'{{"a":{mark}}}'}) == {}
    assert deployment_mark_of({SCHEDULED: mark}) is None


# What MetalLB says


def labelled(**fields: Any) -> Leader:
    """Its first node bears the label, since load balancers' time to follow it is over."""
    here = outdated("n1", "n2", rolling=LABELLING | {"confirmTimeoutSeconds": 5} | fields)
    here.announced = {"n1": "edge/web", "n2": "edge/web"}
    here.looks(60)
    return here


def has_begun(here: Leader) -> bool:
    return here.image_by_node()["n1"] == "proxy:2"


def test_pods_stay_while_it_announces_a_service_from_their_node() -> None:
    here = labelled()
    assert here.api.objects["Node", "n1"]["metadata"]["labels"].items() >= OFF.items()
    assert not has_begun(here)
    assert "load balancer MetalLB announces edge/web from the node" in json.dumps(here.status)

    here.announced = {"n2": "edge/web"}
    here.looks(10)
    assert has_begun(here)


@pytest.mark.parametrize(
    ("announced", "fields", "begins"),
    [
        ({"n1": "edge/web"}, {"confirm": "off"}, True),
        ({"n1": "edge/web"}, {"confirm": "preferred"}, True),
        (Forbidden(403, "Forbidden", "no role"), {}, False),
        ({}, {}, True),
    ],
)
def test_whether_pods_wait_for_it(announced: Announcements, fields: Raw, begins: bool) -> None:
    here = labelled(**fields)
    here.announced = announced
    here.looks(10)
    assert has_begun(here) is begins


def test_pods_stay_until_it_was_asked() -> None:
    known = with_announcements({}, ["n1"], None)
    assert [each.detach_doubt for each in known["n1"]] == ["load balancer MetalLB has not been read yet"]

    here = labelled(confirmTimeoutSeconds=0)
    assert not has_begun(here), "though the whole time for load balancers was over before it was asked"
    here.announced = {"n2": "edge/web"}
    here.looks(10)
    assert has_begun(here)


def test_both_of_its_modes_are_read_and_where_it_is_not_installed_nothing_is_announced() -> None:
    assert announcements(FakeAPI().client()) == {}

    api = FakeAPI(*BUILT_IN, *(Kind(each, each.plural) for each in STATUSES))
    for number, of in enumerate(STATUSES):
        status = {"node": f"n{number}", "serviceName": "web", "serviceNamespace": "edge"}
        api.put(of, {"metadata": {"name": "status-1", "namespace": "metallb-system"}, "status": status})
    assert announcements(api.client()) == {"n0": "edge/web", "n1": "edge/web"}

    api.fault = lambda call: refusal(403, "Forbidden", "no role")
    assert isinstance(announcements(api.client()), Forbidden)
