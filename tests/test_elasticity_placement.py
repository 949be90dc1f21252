"""Where each pod of an owner and revision belongs, and what is written to it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from api.elasticity import BURST, PLACEMENT, TAINT_KEY
from controllers.elasticity.planner import Past, plan
from controllers.elasticity.pods import Pod, PodIndex, decode, facets, oldest_first
from controllers.elasticity.room import TOTAL, Places, Quota, SuperNodes, counts
from controllers.elasticity.snapshot import ClusterState, Location, Snapshot, location_of, ordinal_of
from controllers.elasticity.sources import PodCache
from kube.types import key_of
from settings.elasticity import Budget, MaxSuperPods
from tests.elasticity_world import AWAY, HOME, STUCK, Feed, cap_of, fleet, raw_of, raw_pod
from tests.factories import NOW
from tests.tables import table


def pod(name: str = "web-1", **parts: Any) -> Pod:
    return decode(raw_of(raw_pod(name, **parts)))


def quota(limits: MaxSuperPods, *there: Pod, now: datetime = NOW) -> Quota:
    def count(places: Places, place: str, _: object) -> int:
        return sum(place in places.of(each) for each in there)

    return Quota(Places(limits, frozenset()), count, now)


def taken(quota: Quota, pod: Pod) -> str:
    """Nothing when there was room, and it is *pod*'s now."""
    if refusal := quota.refusal(pod):
        return refusal
    quota.add(pod)
    return ""


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


def test_a_decision_that_places_no_pod_counts_none() -> None:
    """After each change of the leader there is one for each workload, and there may be thousands."""
    read = list[str]()

    def count(_: Places, place: str, without: object) -> int:
        read.append(place)
        return 0

    bound, eligibility = pod(gated=False, spec={"nodeName": HOME}), cast(Any, None)
    snapshot = Snapshot([bound], {}, ClusterState(fleet(), cap_of(1), None, lambda _: None), NOW)
    super_nodes = SuperNodes(snapshot, PodIndex.of(()), eligibility, count)
    plan(snapshot, super_nodes, Past())
    assert not read

    assert super_nodes.quota.refusal(bound) is None
    assert read == [TOTAL]


@table(
    "kind, api_version, label, key",
    {
        "of a Deployment": ("ReplicaSet", "apps/v1", "pod-template-hash", "shop/owner-web/a"),
        "of an Argo Rollout": ("ReplicaSet", "apps/v1", "rollouts-pod-template-hash", "shop/owner-web/"),
        "of a StatefulSet": ("StatefulSet", "apps/v1", "controller-revision-hash", "shop/owner-web/a"),
        "of OpenKruise": (
            "CloneSet",
            "apps.kruise.io/v1alpha1",
            "controller-revision-hash",
            "shop/owner-web/a",
        ),
        "of a Job": ("Job", "batch/v1", "", "shop/owner-web/"),
        "of an unknown kind": ("Fleet", "example.com/v1", "", "shop/owner-web/"),
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
    assert bool(used.refused) == bool(full)

    unused = quota(limits)
    assert (taken(unused, pod()), taken(unused, pod())) == ("", full)


def test_each_pod_on_super_nodes_or_on_its_way_counts_once_and_no_daemon_pod() -> None:
    there = pod("there", gated=False, spec={"nodeName": AWAY})
    tolerant = {"tolerations": [{"key": TAINT_KEY, "operator": "Exists"}]}
    sent = pod("sent", gated=False, annotations={PLACEMENT: "super"}, spec=tolerant)
    daemon = pod("daemon", gated=False, kind="DaemonSet", spec={"nodeName": AWAY})
    forged = pod(
        "forged", gated=False, annotations={BURST: "allowed"}
    )  # tolerates none, so it never comes there
    pods = [there, sent, daemon, forged, pod("home", gated=False, spec={"nodeName": HOME}), pod("going")]
    feed = Feed(decode)
    cache = PodCache(cast(Any, None), feed.informer)
    for each in pods:
        feed.informer.store(key_of(each.metadata), each)
    for most, is_full in ((3, True), (4, False)):
        places = Places(MaxSuperPods(total=most), frozenset({AWAY}))
        assert bool(Quota(places, cache.count, NOW, [sent, pods[-1]]).refusal(pod())) is is_full

    assert [counts(each, {AWAY}) for each in pods] == [True, True, False, False, False, False]


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
