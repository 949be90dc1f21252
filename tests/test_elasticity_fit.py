"""What a super node takes, by the rules of the scheduler: nothing is sent where no node can take it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from controllers.elasticity.filters import Reach, Request
from controllers.elasticity.nodes import WatchedNode, matters, sorted_out
from controllers.elasticity.patches import as_burst, as_sent
from controllers.elasticity.pods import Pod, PodSpec, decode
from controllers.elasticity.room import Fleet
from tests.elasticity_world import AWAY, HOME, fleet, index_of, node, raw_of, raw_pod, super_node
from tests.tables import table

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OTHER = "eklet-subnet-2"
ONE, TWO = (super_node(),), (super_node(), super_node(OTHER))
APP = {"matchLabels": {"app": "web"}}


def pod(name: str = "web-1", *, labels: dict[str, str] | None = None, **parts: Any) -> Pod:
    raw = raw_pod(name, **parts)
    raw["metadata"]["labels"] |= {"app": "web"} if labels is None else labels
    return decode(raw_of(raw))


def there(
    name: str, at: str = AWAY, *, labels: dict[str, str] | None = None, namespace: str = "shop", **spec: Any
) -> Pod:
    """A pod that runs on a node."""
    return pod(name, labels=labels, gated=False, namespace=namespace, spec={"nodeName": at, **spec})


def required(*expressions: dict[str, Any], fields: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    term = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}


def term(key: str = HOSTNAME, selector: Any = APP, **more: Any) -> dict[str, Any]:
    return {REQUIRED: [{"topologyKey": key, "labelSelector": selector, **more}]}


def apart(*key: str, **more: Any) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": term(*key, **more)}}


def together(*key: str, **more: Any) -> dict[str, Any]:
    return {"affinity": {"podAffinity": term(*key, **more)}}


def spread(key: str = HOSTNAME, **more: Any) -> dict[str, Any]:
    fields = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": APP}
    return {"topologySpreadConstraints": [{**fields, **more}]}


def ports(*given: dict[str, Any], **container: Any) -> dict[str, Any]:
    return {"containers": [{"name": "app", "image": "app", "ports": list(given), **container}]}


def asking(resource: str, *amounts: str) -> dict[str, Any]:
    """One container for each of *amounts*."""
    requests = [{"resources": {"requests": {resource: each}}} for each in amounts]
    return {
        "containers": [
            {"name": f"app-{index}", "image": "app", **each} for index, each in enumerate(requests)
        ]
    }


LARGE = super_node(allocatable={"cpu": "1k", "memory": "1Ti", "pods": "1M"})


def fleet_of(nodes: Sequence[WatchedNode], pods: Sequence[Pod] = ()) -> Fleet:
    """Of *nodes*, and of three local in another zone."""
    home = [node(f"home-{number}", {ZONE: "own"}) for number in (1, 2, 3)]
    return Fleet(sorted_out([*nodes, *home]), index_of(*pods))


def sent(wanted: Pod, *volumes: Reach) -> Request:
    return Request(wanted, msgspec.convert(as_sent(wanted), PodSpec), volumes)


def why_not(
    spec: dict[str, Any], nodes: Sequence[WatchedNode] = ONE, pods: Sequence[Pod] = (), *volumes: Reach
) -> str:
    return fleet_of(nodes, pods).why_not(sent(pod(spec=spec), *volumes)) or ""


# A node by itself

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


@table(
    "spec, nodes, why",
    {
        "a pod that asks for nothing": ({}, ONE, ""),
        "no super node": ({}, (), "there is no super node"),
        "the usual selector": ({"nodeSelector": {"kubernetes.io/os": "linux"}}, ONE, ""),
        "a node of another system": (
            {"nodeSelector": {"kubernetes.io/os": "linux"}},
            (super_node(labels={"kubernetes.io/os": "windows"}),),
            "no super node has kubernetes.io/os=linux",
        ),
        "only what is missing is named": (
            {"nodeSelector": {"gpu": "yes", "disk": "ssd"}},
            (super_node(labels={"disk": "ssd"}),),
            "no super node has gpu=yes",
        ),
        "one": ({"nodeSelector": {"gpu": "yes"}}, (ONE[0], super_node(OTHER, {"gpu": "yes"})), ""),
        "each lacks something else": (
            {"nodeSelector": {"a": "1"}},
            (super_node(), super_node(OTHER, {"a": "1"}, unschedulable=True)),
            "no super node does all: has a=1; is schedulable",
        ),
        "required affinity for another zone": (
            {"affinity": required({"key": ZONE, "operator": "In", "values": ["own", "b"]})},
            ONE,
            (
                "no super node meets its required node affinity (topology.kubernetes.io/zone In [own, b] and"
                " node.kubernetes.io/instance-type In [eklet])"
            ),
        ),
        "NotIn": ({"affinity": required({"key": ZONE, "operator": "NotIn", "values": ["own"]})}, ONE, ""),
        "by the name of another node": (
            {"affinity": required(fields=[{"key": "metadata.name", "operator": "In", "values": [OTHER]}])},
            ONE,
            (
                "no super node meets its required node affinity (node.kubernetes.io/instance-type In [eklet] and"
                f" metadata.name In [{OTHER}])"
            ),
        ),
        "an empty term matches nothing": (
            {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}},
            ONE,
            "no super node meets its required node affinity (an empty term)",
        ),
        "cordoned": ({}, (super_node(unschedulable=True),), "no super node is schedulable"),
        "cordoned and tolerated": (
            {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]},
            (super_node(unschedulable=True),),
            "",
        ),
        "not ready": (
            {},
            (super_node(taints=[NOT_READY]),),
            "no super node is without taint node.kubernetes.io/not-ready:NoSchedule",
        ),
        "it tolerates everything": (
            {"tolerations": [{"operator": "Exists"}]},
            (super_node(taints=[NOT_READY, {"key": "x", "effect": "NoExecute"}]),),
            "",
        ),
        "another effect is tolerated": (
            {"tolerations": [{"key": "x", "operator": "Equal", "value": "1", "effect": "NoSchedule"}]},
            (super_node(taints=[{"key": "x", "value": "1", "effect": "NoExecute"}]),),
            "no super node is without taint x:NoExecute",
        ),
        "a preference": ({}, (super_node(taints=[{"key": "x", "effect": "PreferNoSchedule"}]),), ""),
        "a device": (asking("nvidia.com/gpu", "1"), (LARGE,), "no super node has 1 nvidia.com/gpu"),
        "as much as there is": (asking("cpu", "999500m"), (LARGE,), ""),
        "more than that": (asking("cpu", "1001", "500m"), (LARGE,), "no super node has 1001.5 cpu"),
        "memory": (asking("memory", "1.5Ti"), (LARGE,), "no super node has 1649267441664 memory"),
        "an init container": (
            {"initContainers": asking("cpu", "2k")["containers"], **asking("cpu", "1")},
            (LARGE,),
            "no super node has 2000 cpu",
        ),
        "a node that has not said what it has": (asking("nvidia.com/gpu", "1"), ONE, ""),
    },
)
def test_a_node_is_judged_as_the_scheduler_does(
    spec: dict[str, Any], nodes: Sequence[WatchedNode], why: str
) -> None:
    assert why_not(spec, nodes) == why


# A node with what is on it

APART = f"no super node is without pods that anti-affinity keeps it apart from (by {HOSTNAME})"
ALONE = f"no super node has pods that its affinity asks for (by {HOSTNAME})"
SKEWED = f"no super node keeps maxSkew 1 (by {HOSTNAME})"
DB = {"matchLabels": {"app": "db"}}


@table(
    "spec, pods, why",
    {
        "a host port that is free": (ports({"hostPort": 80}), [], ""),
        "a host port that is taken, on one address": (
            ports({"hostPort": 80}),
            [there("a", **ports({"hostPort": 80, "hostIP": "10.0.0.1"}))],
            "no super node has host port 80/TCP free",
        ),
        "a host port of another address": (
            ports({"hostPort": 80, "hostIP": "10.0.0.2"}),
            [there("a", **ports({"hostPort": 80, "hostIP": "10.0.0.1"}))],
            "",
        ),
        "UDP": (ports({"hostPort": 80}), [there("a", **ports({"hostPort": 80, "protocol": "UDP"}))], ""),
        "taken local": (ports({"hostPort": 80}), [there("a", HOME, **ports({"hostPort": 80}))], ""),
        "a host port of a sidecar": (
            {"initContainers": [{"name": "i", "restartPolicy": "Always", "ports": [{"hostPort": 80}]}]},
            [there("a", **ports({"hostPort": 80}))],
            "no super node has host port 80/TCP free",
        ),
        "a host port of an init container, which ends": (
            {"initContainers": [{"name": "i", "ports": [{"hostPort": 80}]}]},
            [there("a", **ports({"hostPort": 80}))],
            "",
        ),
        "anti-affinity by hostname, and one is there": (apart(), [there("a")], APART),
        "the other is local": (apart(), [there("a", HOME)], ""),
        "a key that no node has": (apart("rack"), [there("a")], ""),
        "a pod of another namespace": (apart(), [there("a", namespace="other")], ""),
        "a namespace that it names": (apart(namespaces=["other"]), [there("a", namespace="other")], APART),
        "all namespaces": (apart(namespaceSelector={}), [there("a", namespace="other")], APART),
        "namespaces by labels, which may be any": (
            apart(namespaceSelector={"matchLabels": {"team": "x"}}),
            [there("a", namespace="other")],
            APART,
        ),
        "an absent selector selects nothing": (apart(selector=None), [there("a")], ""),
        "one that is there wants none of its like": (
            {},
            [there("a", labels={"app": "b"}, affinity={"podAntiAffinity": term()})],
            APART,
        ),
        "one that is local does": (
            {},
            [there("a", HOME, labels={"app": "b"}, affinity={"podAntiAffinity": term()})],
            "",
        ),
        "affinity to a pod local": (together(selector=DB), [there("db", HOME, labels={"app": "db"})], ALONE),
        "affinity to a pod that is there": (together(selector=DB), [there("db", labels={"app": "db"})], ""),
        "the first that ask for each other": (together(), [], ""),
        "the second of them": (together(), [there("a", HOME)], ALONE),
        "spread over one super node": (spread(), [there("a"), there("b")], ""),
        "spread over all nodes, and those local are empty": (
            spread(nodeAffinityPolicy="Ignore"),
            [there("a")],
            SKEWED,
        ),
        "spread as a preference": (
            spread(nodeAffinityPolicy="Ignore", whenUnsatisfiable="ScheduleAnyway"),
            [there("a")],
            "",
        ),
        "a greater skew": (
            spread(nodeAffinityPolicy="Ignore", nodeTaintsPolicy="Honor", maxSkew=2),
            [there("a")],
            "",
        ),
        "too few domains": (spread(minDomains=2), [there("a")], SKEWED),
        "spread by a label that is not there": (
            spread("rack"),
            [],
            "no super node keeps maxSkew 1 (by rack)",
        ),
        "spread of each revision by itself": (
            spread(minDomains=2, matchLabelKeys=["pod-template-hash"]),
            [there("a", labels={"app": "web", "pod-template-hash": "0"})],
            "",
        ),
    },
)
def test_pods_stand_to_each_other_as_the_scheduler_has_it(
    spec: dict[str, Any], pods: Sequence[Pod], why: str
) -> None:
    assert why_not(spec, ONE, pods) == why


def test_of_two_super_nodes_the_empty_one_takes_a_pod_unless_their_zone_is_asked_for() -> None:
    assert why_not(apart(), TWO, [there("a")]) == ""
    assert why_not(spread(), TWO, [there("a"), there("b")]) == ""
    assert why_not(apart(ZONE), TWO, [there("a")]) == APART.replace(HOSTNAME, ZONE)


def test_what_is_on_its_way_takes_its_place() -> None:
    over = fleet_of(TWO)
    found = []
    for number in range(3):
        request = sent(pod(f"web-{number}", spec=apart()))
        found.append(over.why_not(request) or "")
        if not found[-1]:
            over.add(request)

    assert found == ["", "", APART]


def test_what_an_earlier_turn_sent_takes_its_place() -> None:
    spec = apart()
    before = pod("web-0", gated=False, annotations={"drawbridge.io/placement": "super"}, spec=spec)
    over = Fleet(fleet(), index_of(before))

    assert over.why_not(sent(pod(spec=spec))) == APART


def test_a_burst_is_not_bound_to_super_nodes_so_the_spread_counts_all_nodes() -> None:
    wanted = pod(spec=spread())
    over = fleet_of(ONE, [there("a")])

    assert over.why_not(Request(wanted, msgspec.convert(as_burst(wanted), PodSpec))) == (SKEWED)


@table(
    "spec, asks",
    {
        "for nothing": ({}, False),
        "by selector": ({"nodeSelector": {"node.kubernetes.io/instance-type": "eklet"}}, True),
        "by name": ({"affinity": required({"key": HOSTNAME, "operator": "In", "values": [AWAY]})}, True),
        "for what all nodes have": ({"nodeSelector": {"kubernetes.io/os": "linux"}}, False),
        "for what no node has": ({"nodeSelector": {"gpu": "yes"}}, False),
        "for local nodes": ({"nodeSelector": {ZONE: "own"}}, False),
    },
)
def test_a_pod_asks_for_super_nodes_when_no_other_node_suits_it(spec: dict[str, Any], asks: bool) -> None:
    wanted = pod(spec=spec)

    assert fleet_of(ONE).is_asked_for(Request(wanted, msgspec.convert(spec, PodSpec))) is asks


@table(
    "old, new, news",
    {
        "a super node comes": (None, super_node(), True),
        "a label": (super_node(), super_node(labels={"gpu": "yes"}), True),
        "a taint": (super_node(), super_node(taints=[NOT_READY]), True),
        "it is closed": (super_node(), super_node(unschedulable=True), True),
        "it says what it has": (super_node(), LARGE, True),
        "anything else": (super_node(), super_node(providerID="x"), False),
        "another node": (node(HOME), node(HOME, {"gpu": "yes"}), False),
    },
)
def test_what_decides_about_a_fit_is_news(old: WatchedNode | None, new: WatchedNode, news: bool) -> None:
    assert matters(old, new) is news
