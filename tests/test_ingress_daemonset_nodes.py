"""On which nodes an IngressDaemonSet runs."""

from __future__ import annotations

from typing import Any

import pytest

from api.ingress_daemonset.template import PodSpec, template_of, tolerations, where_of
from tests.ingress_daemonset_world import node, resource

ZONES = {"zone": "a", "size": "8"}
NO_SCHEDULE = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
NO_EXECUTE = {**NO_SCHEDULE, "effect": "NoExecute"}
CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    selector = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": selector}}


def asks(operator: str, *values: str, key: str = "zone") -> dict[str, Any]:
    return required({"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]})


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "b"}}, False),
        (asks("In", "a", "b"), True),
        (asks("NotIn", "a"), False),
        (asks("DoesNotExist"), False),
        (asks("Gt", "7", key="size"), True),
        (asks("Lt", "9"), False),  # not a number
        (asks("Near", "a"), False),
        (required({}), False),
        (required({}, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}), True),
    ],
)
def test_the_template_says_which_nodes(pod: dict[str, Any], expected: bool) -> None:
    assert where_of(resource(pod)).matches(node(labels=ZONES), runs=False) is expected


def test_both_selectors_count() -> None:
    both = resource({"nodeSelector": {"zone": "a"}}, nodeSelector={"size": "8"})
    assert where_of(both).matches(node(labels=ZONES), runs=False)
    assert not where_of(both).matches(node(labels={"zone": "a"}), runs=False)
    assert not where_of(both).matches(node(labels={"size": "8"}), runs=False)


@pytest.mark.parametrize(
    ("taint", "tolerated", "newcomer", "runs"),
    [
        (NO_SCHEDULE, [], False, True),
        (NO_EXECUTE, [], False, False),
        ({**NO_SCHEDULE, "effect": "PreferNoSchedule"}, [], True, True),
        (CORDONED, [], True, True),
        (NO_EXECUTE, [{"operator": "Exists"}], True, True),
        (NO_EXECUTE, [{"key": "gpu", "value": "yes"}], True, True),
        (NO_EXECUTE, [{"key": "gpu", "value": "no"}], False, False),
        (NO_EXECUTE, [{"key": "x", "operator": "Exists"}], False, False),
        (NO_EXECUTE, [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}], False, False),
    ],
)
def test_taints_count_as_for_daemon_sets(
    taint: dict[str, str], tolerated: list[dict[str, str]], newcomer: bool, runs: bool
) -> None:
    tainted, wanted = node(taints=[taint]), resource({"tolerations": tolerated})
    assert where_of(wanted).matches(tainted, runs=False) is newcomer
    assert where_of(wanted).matches(tainted, runs=True) is runs


def test_a_virtual_node_never_matches() -> None:
    virtual = node(labels={"node.kubernetes.io/instance-type": "eklet"})
    assert not where_of(resource({"tolerations": [{"operator": "Exists"}]})).matches(virtual, runs=True)


def test_a_node_that_is_being_deleted_does_not_match() -> None:
    assert not where_of(resource()).matches(node(deletionTimestamp="2026-01-02T03:04:05Z"), runs=True)


def test_a_node_without_a_network_is_for_pods_with_its_own_only() -> None:
    taint = {"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}
    assert where_of(resource({"hostNetwork": True})).matches(node(taints=[taint]), runs=False)
    assert not where_of(resource()).matches(node(taints=[taint]), runs=False)


def test_a_toleration_that_is_there_is_not_added_again() -> None:
    given = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    pod = template_of(resource({"tolerations": [given]}).spec).spec
    assert len(tolerations(pod)) == len(tolerations(PodSpec()))


def test_what_is_null_is_absent() -> None:
    pod = {"tolerations": None, "nodeSelector": None, "affinity": {"nodeAffinity": None}}
    assert where_of(resource(pod)).matches(node(), runs=False)
