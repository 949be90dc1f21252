"""What a super node takes, by the rules of the scheduler: nothing is sent where no node can take it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from controllers.elasticity.filters import Reach
from controllers.elasticity.nodes import Nodes, WatchedNode, matters, sorted_out
from controllers.elasticity.pods import Pod, PodIndex, decode, facets
from controllers.elasticity.room import SuperNodes
from controllers.elasticity.sources import NodeCache
from kube.selectors import REQUIRED
from tests.elasticity_world import (
    AWAY,
    HOME,
    Feed,
    account,
    fleet,
    misfit,
    node,
    raw_of,
    raw_pod,
    super_node,
)
from tests.factories import NOT_READY
from tests.tables import table

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
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
    parts = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    term = {name: part for name, part in parts.items() if part}
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
    wanted = [{"requests": {resource: each}} for each in amounts]
    return {
        "containers": [
            {"name": f"app-{n}", "image": "app", "resources": each} for n, each in enumerate(wanted)
        ]
    }


LARGE = {"allocatable": {"cpu": "1k", "memory": "1Ti", "pods": "1M"}}


def account_of(nodes: Sequence[WatchedNode], pods: Sequence[Pod] = (), *volumes: Reach) -> SuperNodes:
    """Of *nodes*, and of three local in another zone."""
    home = [node(f"home-{number}", {ZONE: "own"}) for number in (1, 2, 3)]
    return account(sorted_out([*nodes, *home]), PodIndex.of(pods), *volumes)


def why_not(
    spec: dict[str, Any], nodes: Sequence[WatchedNode] = ONE, pods: Sequence[Pod] = (), *volumes: Reach
) -> str:
    return misfit(account_of(nodes, pods, *volumes), pod(spec=spec))


# A node by itself


NOT_EXECUTE = {"key": "x", "value": "1", "effect": "NoExecute"}
BY_NAME = [{"key": "metadata.name", "operator": "In", "values": [OTHER]}]
IN_ZONE = {"key": ZONE, "operator": "In", "values": ["own", "b"]}
SUPER = "node.kubernetes.io/instance-type In [eklet]"
AFFINITY = "meets its required node affinity"
ONE_EFFECT = {"key": "x", "operator": "Equal", "value": "1", "effect": "NoSchedule"}
OS = "kubernetes.io/os"
GPUS = asking("nvidia.com/gpu", "1")


@table(
    "spec, of_node, misses",
    {
        "a pod that asks for nothing": ({}, {}, ""),
        "the usual selector": ({"nodeSelector": {OS: "linux"}}, {}, ""),
        "another system": ({"nodeSelector": {OS: "linux"}}, {"labels": {OS: "windows"}}, f"has {OS}=linux"),
        "only what is missing is named": (
            {"nodeSelector": {"gpu": "yes", "disk": "ssd"}},
            {"labels": {"disk": "ssd"}},
            "has gpu=yes",
        ),
        "another zone": ({"affinity": required(IN_ZONE)}, {}, f"{AFFINITY} ({ZONE} In [own, b] and {SUPER})"),
        "NotIn": ({"affinity": required({**IN_ZONE, "operator": "NotIn"})}, {}, ""),
        "by the name of another node": (
            {"affinity": required(fields=BY_NAME)},
            {},
            f"{AFFINITY} ({SUPER} and metadata.name In [{OTHER}])",
        ),
        "an empty term matches nothing": ({"affinity": required()}, {}, f"{AFFINITY} (an empty term)"),
        "cordoned": ({}, {"unschedulable": True}, "is schedulable"),
        "cordoned and tolerated": (
            {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]},
            {"unschedulable": True},
            "",
        ),
        "not ready": ({}, {"taints": [NOT_READY]}, f"is without taint {NOT_READY['key']}:NoSchedule"),
        "all is tolerated": (
            {"tolerations": [{"operator": "Exists"}]},
            {"taints": [NOT_READY, NOT_EXECUTE]},
            "",
        ),
        "another effect is": (
            {"tolerations": [ONE_EFFECT]},
            {"taints": [NOT_EXECUTE]},
            "is without taint x:NoExecute",
        ),
        "a preference": ({}, {"taints": [{"key": "x", "effect": "PreferNoSchedule"}]}, ""),
        "a device": (GPUS, LARGE, "has 1 nvidia.com/gpu"),
        "a node that has not said what it has": (GPUS, {}, ""),
        "as much as there is": (asking("cpu", "999500m"), LARGE, ""),
        "more than that": (asking("cpu", "1001", "500m"), LARGE, "has 1001.5 cpu"),
        "memory": (asking("memory", "1.5Ti"), LARGE, "has 1649267441664 memory"),
        "an init container": ({"initContainers": asking("cpu", "2k")["containers"]}, LARGE, "has 2000 cpu"),
    },
)
def test_a_node_is_judged_as_the_scheduler_does(
    spec: dict[str, Any], of_node: dict[str, Any], misses: str
) -> None:
    assert why_not(spec, [super_node(**of_node)]) == (f"no super node {misses}" if misses else "")


def test_one_super_node_that_has_all_is_enough() -> None:
    wanted = {"nodeSelector": {"a": "1"}}
    closed = super_node(OTHER, {"a": "1"}, unschedulable=True)

    assert why_not(wanted, ()) == "there is no super node"
    assert why_not(wanted, (*ONE, super_node(OTHER, {"a": "1"}))) == ""
    assert why_not(wanted, (*ONE, closed)) == "no super node does all: has a=1; is schedulable"


# A node with what is on it

APART = f"no super node is without pods that anti-affinity keeps it apart from (by {HOSTNAME})"
ALONE = f"no super node has pods that its affinity asks for (by {HOSTNAME})"
SKEWED = f"no super node keeps maxSkew 1 (by {HOSTNAME})"
DB = {"matchLabels": {"app": "db"}}


HTTP, OF_ONE = {"hostPort": 80}, {"hostPort": 80, "hostIP": "10.0.0.1"}
TAKEN = "no super node has host port 80/TCP free"
SIDECAR = {"name": "i", "restartPolicy": "Always", "ports": [HTTP]}
SPREAD_OVER_ALL = {"nodeAffinityPolicy": "Ignore"}
REPELS = {"labels": {"app": "b"}, "affinity": {"podAntiAffinity": term()}}


@table(
    "spec, pods, why",
    {
        "a host port that is free": (ports(HTTP), [], ""),
        "a host port that is taken, on one address": (ports(HTTP), [there("a", **ports(OF_ONE))], TAKEN),
        "of another address": (ports({**HTTP, "hostIP": "10.0.0.2"}), [there("a", **ports(OF_ONE))], ""),
        "UDP": (ports(HTTP), [there("a", **ports({**HTTP, "protocol": "UDP"}))], ""),
        "taken local": (ports(HTTP), [there("a", HOME, **ports(HTTP))], ""),
        "a host port of a sidecar": ({"initContainers": [SIDECAR]}, [there("a", **ports(HTTP))], TAKEN),
        "of an init container, which ends": (
            {"initContainers": [{**SIDECAR, "restartPolicy": ""}]},
            [there("a", **ports(HTTP))],
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
        "one that is there wants none of its like": ({}, [there("a", **REPELS)], APART),
        "one that is local does": ({}, [there("a", HOME, **REPELS)], ""),
        "affinity to a pod local": (together(selector=DB), [there("db", HOME, labels={"app": "db"})], ALONE),
        "affinity to a pod that is there": (together(selector=DB), [there("db", labels={"app": "db"})], ""),
        "the first that ask for each other": (together(), [], ""),
        "the second of them": (together(), [there("a", HOME)], ALONE),
        "spread over one super node": (spread(), [there("a"), there("b")], ""),
        "spread over all nodes, and those local are empty": (spread(**SPREAD_OVER_ALL), [there("a")], SKEWED),
        "as a preference": (spread(**SPREAD_OVER_ALL, whenUnsatisfiable="ScheduleAnyway"), [there("a")], ""),
        "a greater skew": (spread(**SPREAD_OVER_ALL, nodeTaintsPolicy="Honor", maxSkew=2), [there("a")], ""),
        "too few domains": (spread(minDomains=2), [there("a")], SKEWED),
        "spread by a label that is not there": (spread("rack"), [], SKEWED.replace(HOSTNAME, "rack")),
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
    assert why_not(apart(), (*ONE, super_node(OTHER, unschedulable=True)), [there("a")]) == APART


def test_pods_that_keep_others_off_local_nodes_alone_are_not_looked_at() -> None:
    """There may be thousands, and a decision on each workload."""
    seen = list[Pod]()
    pods = [there("a", HOME, **apart()), there("b", HOME, **apart())]

    def having(facet: str) -> Sequence[Pod]:
        found = [each for each in pods if facet in facets(each)]
        seen.extend(found)
        return found

    for spec in ({}, ports({"containerPort": 1, "hostPort": 1})):
        assert misfit(account(fleet(), PodIndex(having)), pod(spec=spec)) == ""

    assert seen == []


def test_what_is_on_its_way_takes_its_place() -> None:
    over = account_of(TWO)
    found = []
    for number in range(3):
        wanted = pod(f"web-{number}", spec=apart())
        found.append(misfit(over, wanted))
        if not found[-1]:
            over.add(wanted, bound=True)

    assert found == ["", "", APART]


def test_what_is_on_its_way_repels_all_that_come_later() -> None:
    over = account_of(ONE)
    over.add(pod("web-0", spec=apart()), bound=True)

    assert [misfit(over, pod(f"web-{number}")) for number in (1, 2)] == [APART, APART]


def test_what_an_earlier_turn_sent_takes_its_place() -> None:
    spec = apart() | {"tolerations": [{"operator": "Exists"}]}
    before = pod("web-0", gated=False, annotations={"drawbridge.io/placement": "super"}, spec=spec)

    assert misfit(account(fleet(), PodIndex.of([before])), pod(spec=spec)) == APART


def test_a_burst_is_not_bound_to_super_nodes_so_the_spread_counts_all_nodes() -> None:
    assert misfit(account_of(ONE, [there("a")]), pod(spec=spread()), bound=False) == SKEWED


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
    assert account_of(TWO).is_asked_for(pod(spec=spec)) is asks


@table(
    "old, new, news",
    {
        "a super node comes": (None, super_node(), True),
        "a label": (super_node(), super_node(labels={"gpu": "yes"}), True),
        "a taint": (super_node(), super_node(taints=[NOT_READY]), True),
        "it is closed": (super_node(), super_node(unschedulable=True), True),
        "it says what it has": (super_node(), super_node(**LARGE), True),
        "anything else": (super_node(), super_node(providerID="x"), False),
        "another node": (node(HOME), node(HOME, {"gpu": "yes"}), False),
    },
)
def test_what_decides_about_a_fit_is_news(old: WatchedNode | None, new: WatchedNode, news: bool) -> None:
    assert matters(old, new) is news


def test_what_nodes_report_all_the_time_costs_no_sorting_of_all() -> None:
    feed = Feed(msgspec.json.Decoder(WatchedNode).decode)
    shown = msgspec.to_builtins(node(HOME))
    nodes = NodeCache(feed.informer)

    def show(version: str, **parts: Any) -> Nodes:
        feed.list([{**shown, **parts, "metadata": {**shown["metadata"], "resourceVersion": version}}])
        return nodes()

    first = show("1")
    assert [each.metadata.name for each in first.local] == [HOME]
    disk = {"type": "DiskPressure", "status": "False"}
    again = {**shown["status"], "conditions": [*shown["status"]["conditions"], disk]}
    assert show("2", status=again) is first
    assert show("3", spec={"unschedulable": True}).local[0].spec.unschedulable
