"""Where each pod of an owner and revision belongs, and what is written to it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from api.elasticity import COST, GATE, OUR_COST, PLACEMENT
from controllers.elasticity.nodes import Nodes
from controllers.elasticity.patches import (
    TO_SUPER_NODES,
    TOLERATION,
    Action,
    Kind,
    to_local_nodes,
    to_super_node,
)
from controllers.elasticity.planner import Past, Plan, plan
from controllers.elasticity.pods import Pod, decode, facets, oldest_first
from controllers.elasticity.room import Objections, Quota, counted, counts
from controllers.elasticity.snapshot import ClusterState, Location, Snapshot, location_of, ordinal_of
from settings import ElasticitySettings
from settings.elasticity import Budget, HomeFailover, MaxSuperPods
from tests.elasticity_world import AWAY, HOME, STUCK, fleet, index_of, raw_of, raw_pod
from tests.factories import NOW
from tests.tables import table

UNLIMITED = MaxSuperPods()
SUPER_ONLY = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["eklet"]}
NONE, NO_GPU = Objections(), Objections(misfit="no super node has gpu=true")


def pod(name: str = "web-1", **parts: Any) -> Pod:
    return decode(raw_of(raw_pod(name, **parts)))


def quota(limits: MaxSuperPods, *there: Pod, now: datetime = NOW) -> Quota:
    return Quota(limits, there, now)


def taken(quota: Quota, pod: Pod) -> str:
    """Nothing when there was room, and it is *pod*'s now."""
    if refusal := quota.refusal(pod):
        return refusal
    quota.add(pod)
    return ""


class Sky:
    """Super nodes that answer each pod the same, and whether they were asked about one that is *bound* to them."""

    def __init__(self, found: Objections | None = NONE, *, asks: bool = False) -> None:
        self._found, self._asks, self.quota, self.bound = found, asks, quota(UNLIMITED), list[bool]()

    def objections(self, pod: Pod, *, bound: bool) -> Objections | None:
        self.bound.append(bound)
        return self._found

    def add(self, pod: Pod, *, bound: bool) -> None:
        self.bound.append(bound)
        self.quota.add(pod)

    def first_tier(self, pod: Pod) -> None:
        """All are of one."""

    def is_asked_for(self, pod: Pod) -> bool:
        return self._asks

    def gpus(self, pod: Pod) -> None:
        return None


ONE_READY = fleet()


def planned(
    *pods: Pod, sky: Any = None, switch: bool = True, nodes: Nodes = ONE_READY, **settings: Any
) -> Plan:
    cluster = ClusterState(nodes, ElasticitySettings(**settings), switch, lambda _: None)
    return plan(Snapshot(pods, {}, cluster, NOW), sky or Sky(), Past())


@table(
    "parts, asks, bound",
    {
        "beyond N": ({"n": "0"}, False, True),
        "it asks for super nodes": ({"n": "2"}, True, True),
        "it tolerates super nodes": ({"n": None, "spec": {"tolerations": [TOLERATION]}}, False, False),
        "it has no local room": ({"n": None, "gated": False}, False, False),
    },
)
def test_a_pod_is_judged_as_it_will_be(parts: dict[str, Any], asks: bool, bound: bool) -> None:
    status = {} if parts.get("gated", True) else {"status": {"conditions": [STUCK]}}
    sky = Sky(asks=asks)
    (action,) = planned(decode(raw_of(raw_pod("web-1", **parts) | status)), sky=sky).actions

    assert action.kind in TO_SUPER_NODES
    assert set(sky.bound) == {bound}


@table(
    "replicas, local, gated, kinds",
    {
        "the first N stay": ("2", 0, 4, [Kind.LOCAL, Kind.LOCAL, Kind.SUPER, Kind.SUPER]),
        "one is there": ("2", 1, 2, [Kind.LOCAL, Kind.SUPER]),
        "none is local": ("0", 0, 1, [Kind.SUPER]),
        "no number": (None, 2, 1, [Kind.LOCAL]),
    },
)
def test_the_first_n_stay_and_the_others_go(
    replicas: str | None, local: int, gated: int, kinds: list[Kind]
) -> None:
    there = [pod(f"there-{number}", gated=False, spec={"nodeName": HOME}) for number in range(local)]
    made = planned(*there, *(pod(f"web-{number}", n=replicas) for number in range(gated)))

    assert [action.kind for action in made.actions] == kinds


FAILOVER = {"home_failover": HomeFailover(enabled=True), "nodes": Nodes()}


@table(
    "found, others, kind, why",
    {
        "the switches keep it": (NONE, {"switch": False}, Kind.LOCAL, ": must stay local"),
        "the rules keep it": (
            Objections(("one", "two")),
            {},
            Kind.LOCAL,
            ": stays local, it cannot run on super nodes: one; two",
        ),
        "no super node takes it": (NO_GPU, {}, Kind.LOCAL, f": stays local, {NO_GPU.misfit}"),
        "none would take it": (NONE, FAILOVER, Kind.LOCAL, ", no super node is ready: stays local"),
        "its volumes are not known yet": (None, {}, Kind.WAIT, ": its volumes are being checked"),
        "nothing keeps it": (NONE, {}, Kind.SUPER, ": to super node"),
    },
)
def test_a_pod_beyond_n(found: Objections | None, others: dict[str, Any], kind: Kind, why: str) -> None:
    made = planned(pod(n="0"), sky=Sky(found), **others)

    switch = "false" if "switch" in others else "true"
    said = f"global={switch} local=unset LOCAL_REPLICAS=0, 0 local{why}"
    assert [(action.kind, action.why) for action in made.actions] == (
        [] if kind is Kind.WAIT else [(kind, said)]
    )
    assert [*made.waits.values()] == ([said] if kind is Kind.WAIT else [])


@table(
    "limits, there, full",
    {
        "all": ({"total": 2}, ["a", "b"], "maxSuperPods.total limits pods on super nodes to 2"),
        "of a namespace": (
            {"per_namespace": 1},
            ["shop", "b"],
            "maxSuperPods.perNamespace limits pods of shop on super nodes to 1",
        ),
        "there is room": ({"total": 3, "per_namespace": 2}, ["shop", "b"], ""),
    },
)
def test_a_limit_that_is_reached_is_named(limits: dict[str, int], there: list[str], full: str) -> None:
    pods = [pod(f"there-{number}", namespace=each) for number, each in enumerate(there)]
    assert taken(quota(MaxSuperPods(**limits), *pods), pod()) == full


@table(
    "kind, api_version, label, key",
    {
        "of a Deployment": ("ReplicaSet", "apps/v1", "pod-template-hash", "owner-web/a"),
        "of an Argo Rollout": ("ReplicaSet", "apps/v1", "rollouts-pod-template-hash", "owner-web/"),
        "of a StatefulSet": ("StatefulSet", "apps/v1", "controller-revision-hash", "owner-web/a"),
        "of OpenKruise": ("CloneSet", "apps.kruise.io/v1alpha1", "controller-revision-hash", "owner-web/a"),
        "of a Job": ("Job", "batch/v1", "", "owner-web/"),
        "of an unknown kind": ("Fleet", "example.com/v1", "", "owner-web/"),
    },
)
def test_pods_are_counted_by_owner_and_revision_whatever_their_owner_is(
    kind: str, api_version: str, label: str, key: str
) -> None:
    """A ReplicaSet is a revision: those of an Argo Rollout need no label."""
    raw = raw_pod("web-1", kind=kind)
    raw["metadata"]["ownerReferences"][0]["apiVersion"] = api_version
    raw["metadata"]["labels"] = {label: "a"} if label else {}

    assert decode(raw_of(raw)).key == key


@table(
    "kind, api_version, number",
    {
        "a StatefulSet": ("StatefulSet", "apps/v1", 1),
        "OpenKruise's StatefulSet": ("StatefulSet", "apps.kruise.io/v1beta1", None),
        "a ReplicaSet": ("ReplicaSet", "apps/v1", None),
    },
)
def test_ordinals_count_for_kubernetes_own_stateful_sets_alone(
    kind: str, api_version: str, number: int | None
) -> None:
    raw = raw_pod("web-1", kind=kind)
    raw["metadata"]["ownerReferences"][0]["apiVersion"] = api_version

    assert ordinal_of(decode(raw_of(raw))) == number


SHOP, ONE_LABEL = {"namespaces": ["shop"]}, {"labels": {"pod-template-hash": "1"}}
BANK, BOTH = {"namespaces": ["bank"]}, {"namespaces": ["bank", "shop"]}
BUDGETS = {
    "of its namespace": (SHOP, "pods of shop"),
    "of its label": (ONE_LABEL, "pods with pod-template-hash=1"),
    "of its label in its namespace": (ONE_LABEL | BOTH, "pods with pod-template-hash=1 of bank, shop"),
    "of another namespace": (BANK, ""),
    "of its label in another namespace": (ONE_LABEL | BANK, ""),
    "of another value of its label": ({"labels": {"pod-template-hash": "2"}}, ""),
    "of another label": ({"labels": {"tier": "1"}}, ""),
}


@table("of, those", BUDGETS)
def test_a_budget_concerns_the_pods_that_it_names(of: dict[str, Any], those: str) -> None:
    full = f"maxSuperPods.budgets limits {those} on super nodes to 1" if those else ""
    limits = MaxSuperPods(budgets=(Budget(max_pods=1, **of),))

    used = quota(limits, pod("there"))
    assert taken(used, pod()) == full
    assert used.was_short == bool(full)

    unused = quota(limits)
    assert (taken(unused, pod()), taken(unused, pod())) == ("", full)


def test_each_pod_on_super_nodes_or_on_its_way_counts_once_and_no_daemon_pod() -> None:
    there = pod("there", gated=False, spec={"nodeName": AWAY})
    sent = pod("sent", gated=False, annotations={PLACEMENT: "super"})
    daemon = pod("daemon", gated=False, kind="DaemonSet", spec={"nodeName": AWAY})
    pods = [there, sent, daemon, pod("home", gated=False, spec={"nodeName": HOME}), pod("going")]
    assumed = [Action(Kind.SUPER, each) for each in (sent, pods[-1])]

    found = counted(index_of(*pods), {AWAY}, assumed)
    assert sorted(each.metadata.name for each in found) == ["going", "sent", "there"]
    assert [counts(each, {AWAY}) for each in pods] == [True, True, False, False, False]


@table(
    "parts, what",
    {
        "gated": ({}, Location.GATED),
        "without a placement": ({"gated": False}, Location.LOCAL),
        "kept": ({"gated": False, "annotations": {PLACEMENT: "local"}}, Location.LOCAL),
        "sent": ({"gated": False, "annotations": {PLACEMENT: "super"}}, Location.SUPER),
        "local": ({"gated": False, "spec": {"nodeName": HOME}}, Location.LOCAL),
        "on a super node": ({"gated": False, "spec": {"nodeName": AWAY}}, Location.SUPER),
        "sent to a super node that is not known": (
            {"gated": False, "annotations": {PLACEMENT: "super"}, "spec": {"nodeName": "eklet-unknown"}},
            Location.SUPER,
        ),
    },
)
def test_a_pod_counts_as_what_it_is_or_will_be(parts: dict[str, Any], what: Location) -> None:
    assert location_of(pod(**parts), frozenset({AWAY})) is what


@table(
    "over",
    {
        "succeeded": {"status": {"phase": "Succeeded"}},
        "failed": {"status": {"phase": "Failed"}},
        "terminating": {"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}},
    },
)
def test_a_pod_that_is_over_counts_nowhere(over: dict[str, dict[str, Any]]) -> None:
    raw = raw_pod("web-1")
    ended = decode(raw_of({part: each | over.get(part, {}) for part, each in raw.items()}))

    assert location_of(ended, frozenset()) is Location.OVER
    assert [each for each in facets(ended) if not each.startswith("workload ")] == []


def test_the_oldest_come_first_and_of_one_second_the_lower_ordinals() -> None:
    pods = [pod("web-10"), pod("web-9"), pod("api-1", at=5.0)]

    assert [each.metadata.name for each in oldest_first(pods)] == ["web-9", "web-10", "api-1"]


def test_going_home_takes_the_gate_away_and_nothing_else() -> None:
    other = {"name": "others.example/gate"}
    patch = to_local_nodes(pod(spec={"schedulingGates": [other, {"name": GATE}]}), "why")

    assert patch["spec"] == {"schedulingGates": [other]}
    assert patch["metadata"]["annotations"] == {PLACEMENT: "local", "drawbridge.io/placement-reason": "why"}


def test_going_to_a_super_node_is_one_patch_for_that_version() -> None:
    term = {"matchExpressions": [{"key": "arch", "operator": "Exists"}]}
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term, {}]}}
    }
    held = raw_pod("web-1", spec={"tolerations": [{"key": "mine"}], "affinity": affinity})
    held["metadata"]["resourceVersion"] = "7"
    patch = to_super_node(decode(raw_of(held)), "why", with_cost=True)

    assert (patch["metadata"]["uid"], patch["metadata"]["resourceVersion"]) == ("uid-web-1", "7")
    assert patch["metadata"]["annotations"] == {
        PLACEMENT: "super",
        "drawbridge.io/placement-reason": "why",
        COST: "-100",
        OUR_COST: "-100",
    }
    assert patch["spec"]["schedulingGates"] == []
    assert patch["spec"]["tolerations"] == [{"key": "mine"}, TOLERATION]
    assert terms(patch["spec"]) == [{"matchExpressions": [*term["matchExpressions"], SUPER_ONLY]}, {}]


@table(
    "annotations, with_cost",
    {"it has one of the user's": ({COST: "5"}, True), "the order is left to chance": ({}, False)},
)
def test_no_cost_is_given_where_none_is_wanted(annotations: dict[str, str], with_cost: bool) -> None:
    patch = to_super_node(pod(annotations=annotations), "why", with_cost=with_cost)

    assert COST not in patch["metadata"]["annotations"]


@table(
    "status, stuck",
    {
        "no room": ({"conditions": [STUCK]}, True),
        "gated": ({"conditions": [{**STUCK, "reason": "SchedulingGated"}]}, False),
        "not looked at yet": ({"phase": "Pending"}, False),
    },
)
def test_a_pod_is_stuck_when_the_scheduler_says_so(status: dict[str, Any], stuck: bool) -> None:
    raw = raw_pod("web-1", gated=False) | {"status": status}

    assert decode(raw_of(raw)).stuck is stuck


def terms(spec: dict[str, Any]) -> list[dict[str, Any]]:
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    found: list[dict[str, Any]] = required["nodeSelectorTerms"]
    return found
