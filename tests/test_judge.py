"""Each invariant of the judge can fail: a world is broken by hand, and it says so; a good world passes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from certs.issue import new_ca, new_leaf
from dev.judge import (
    Disturbances,
    Invariant,
    Judge,
    Observation,
    Promise,
    address,
    certificates,
    edge,
    placement,
    reservation,
    truth,
)
from dev.judge.observation import CloudAddress
from dev.simulator.promises import promises
from dev.simulator.scenario import values_of

Raw = dict[str, Any]
History = list[Observation]
READY = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
NEEDS = {"tke.cloud.tencent.com/need-aia-ip": "true"}
EDGE = {"edge": "true"}
LEADS = {"holder": "controllers-0"}


def node(name: str = "node-1", tainted: bool = False, super_node: bool = False, **labels: str) -> Raw:
    own = {"cloud.tencent.com/node-instance-id": f"ins-{name}"}
    if super_node:
        own = {"node.kubernetes.io/instance-type": "eklet"}
    taints = [{"key": "tke.cloud.tencent.com/no-aia-ip", "effect": "NoSchedule"}] if tainted else []
    return {"metadata": {"name": name, "labels": own | labels}, "spec": {"taints": taints}, "status": READY}


def needing(name: str = "node-1", tainted: bool = False) -> Raw:
    return node(name, tainted, **NEEDS)


def showing(ip: str) -> Raw:
    found = needing()
    return {
        **found,
        "metadata": found["metadata"] | {"annotations": {"tke.cloud.tencent.com/anycast-ip-address": ip}},
    }


def without(status: str = "False") -> Raw:
    found = node("node-1", tainted=False, **NEEDS, **{"drawbridge.io/anycast-ip": "none"})
    said = {"type": "AnycastIPReady", "status": status}
    return {**found, "status": {"conditions": [*found["status"]["conditions"], said]}}


def pod(name: str, on: str = "node-1", ip: str = "", image: str = "web:1", **metadata: Any) -> Raw:
    return {
        "metadata": {"name": name, "uid": name, **metadata},
        "spec": {"nodeName": on, "containers": [{"image": image}]},
        "status": READY | {"podIP": ip},
    }


def addressed(ip: str) -> Raw:
    """With what it has as the address of its node."""
    return pod("game", annotations={"drawbridge.io/node-anycast-ip": ip})


def redis(ip: str) -> Raw:
    return pod("redis-0", ip=ip, labels={"statefulset.kubernetes.io/pod-name": "redis-0"})


OPTED_OUT = redis("10.0.0.1")
OPTED_OUT["metadata"]["annotations"] = {"drawbridge.io/reserve-ip": "false"}
EPOCH = "0123456789abcdef"
MARKED = redis("10.0.0.1")
MARKED["metadata"]["annotations"] = {"drawbridge.io/reserved": f"{EPOCH}/redis-0/10.0.0.1"}
MARKED["status"] = {**MARKED["status"], "podIPs": [{"ip": "10.0.0.1"}]}
CONDITION = {"name": "not-reserved-already", "expression": f"oldObject.metadata.name != '{EPOCH}/' + '...'"}
AHEAD = {"webhooks": [{"name": "ip-reservation.drawbridge.io", "matchConditions": [CONDITION]}]}


def replica(name: str, on: str = "node-1", gated: bool = False, local: int = 1) -> Raw:
    raw = pod(name, on, annotations={"LOCAL_REPLICAS": str(local)})
    raw["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "web-1", "controller": True}]
    if gated:
        raw["spec"] |= {"nodeName": "", "schedulingGates": [{"name": "drawbridge.io/placement"}]}
    return raw


def pinned(name: str, on: str = "node-1", gated: bool = False) -> Raw:
    raw = replica(name, on, gated)
    raw["metadata"]["annotations"] |= {"drawbridge.io/placement-mode": "pin", "drawbridge.io/burst": "true"}
    return raw


def on_its_way(name: str) -> Raw:
    """One that may go to a super node."""
    raw = pinned(name, on="")
    raw["spec"]["tolerations"] = [{"key": "eks.tke.cloud.tencent.com/eklet", "operator": "Exists"}]
    return raw


def half_updated(*pods: Raw, old: bool = True) -> Observation:
    """A Deployment of two, whose former template has a pod on a super node, which is *old*; others fill the cap."""
    template = {"metadata": replica("")["metadata"], "spec": {"containers": [{"image": "web:1"}]}}
    web = {"metadata": {"name": "web"}, "spec": {"replicas": 2, "strategy": {}, "template": template}}
    web["status"] = {"updatedReplicas": 1}
    former = [{"kind": "ReplicaSet", "name": "web-0", "controller": True}] if old else []
    placed = pod("old", "eklet", image="web:0", ownerReferences=former)
    return see(0, SUPER, pods=(placed, *pods), workloads={"web": web})


def fixed(on: str, gated: bool = False) -> Raw:
    raw = replica("web-1", on, gated)
    raw["metadata"]["annotations"]["cni.projectcalico.org/ipAddrs"] = "[]"
    return raw


def proxy(name: str, on: str, image: str = "proxy:1", **metadata: Any) -> Raw:
    return pod(name, on, image=image, labels={"ingress-daemon-for-node": on}, **metadata)


def proxies(image: str = "proxy:1", *, restarts: int) -> tuple[Raw, ...]:
    """On the first three nodes."""
    status = {"containerStatuses": [{"restartCount": restarts}]}
    return tuple(proxy(f"p{n}", f"node-{n}", image) | {"status": status} for n in range(3))


CRASHED = (proxy("p", "node-0") | {"status": {"containerStatuses": [{"restartCount": 1}]}},)


def resource(reason: str = "Complete", image: str = "proxy:1", current: str = "1", **rolling: Any) -> Raw:
    template = {"spec": {"nodeSelector": EDGE, "containers": [{"image": image}]}}
    conditions = [{"type": "Progressing", "status": "True", "reason": reason, "message": "2 of 3"}]
    return {
        "metadata": {"name": "web", "uid": "web"},
        "spec": {
            "podsPerNode": 1,
            "healthCheckNodePorts": [10080],
            "template": template,
            "updateStrategy": {"rollingUpdate": {"maxUnavailableNodes": 1, **rolling}},
        },
        "status": {"conditions": conditions, "currentRevision": current},
    }


def cloud(*bound: str, status: str = "BIND") -> dict[str, CloudAddress]:
    return {
        f"eip-{each}-{n}": CloudAddress(f"eip-{each}-{n}", status, f"ins-{each}", True)
        for n, each in enumerate(bound)
    }


ORDERED = {"eip-2": CloudAddress("eip-2", "UNBIND", "", True, ordered_for="ins-node-1")}
HAS_ADDRESS = {"eip-1": CloudAddress("eip-1", "BIND", "ins-node-1", True, ip="203.0.113.1")}


def see(at: float, *nodes: Raw, pods: tuple[Raw, ...] = (), **seen: Any) -> Observation:
    return Observation(
        at,
        nodes={each["metadata"]["name"]: each for each in nodes},
        pods={each["metadata"]["uid"]: each for each in pods},
        **seen,
    )


def edge_of(
    at: float,
    off: int,
    cordoned: int = 0,
    most: int = 1,
    confirm: str = "required",
    uid: str = "web",
    **seen: Any,
) -> Observation:
    """Six nodes, the first of which answer 503, or are cordoned, with a budget of *most*."""
    names = [f"node-{n}" for n in range(6)]
    nodes = [node(name, **EDGE) for name in names]
    for each in nodes[:cordoned]:
        each["spec"]["unschedulable"] = True
    answers = {name: 503 if n < off else 200 for n, name in enumerate(names)}
    edges = [resource(maxUnavailableNodes=most, confirm=confirm)]
    edges[0]["metadata"]["uid"] = uid
    return see(at, *nodes, answers=answers, ingress_daemon_sets=edges, **seen)


def just_updated(confirm: str) -> History:
    """The first node has its new pods, and the second one is detached before the health check of the first succeeds."""
    pods = proxy("p", "node-0") | {"spec": {"replicas": 1}, "status": {"availableReplicas": 1}}
    return [
        edge_of(0, 0, confirm=confirm),
        *(edge_of(at, 2, workloads={"d": pods}, confirm=confirm) for at in (200, 203)),
    ]


def disturbed(subject: str, at: float = 0) -> Disturbances:
    found = Disturbances()
    found.note(subject, at)
    return found


ASKED = disturbed("eviction on node-0")
DRAINED, UNSEEN = disturbed("drain of node-0"), disturbed("redis-0", 45)
SILENT = disturbed("node-0", 199)
UNSEEN.note(reservation.NO_LEADER, 80)


def beside_a_cordoned_node(
    at: float, pods: int = 1, restarts: int = 0, reason: str = "Complete", **notes: str
) -> Observation:
    """Two nodes, one of which is cordoned and the other one has a pod and annotations, with a budget of one."""
    idle, serving, held = node("idle", **EDGE), node("serving", **EDGE), proxy("p", "serving")
    idle["spec"]["unschedulable"], serving["metadata"]["annotations"] = True, notes
    held["status"] = READY | {"containerStatuses": [{"restartCount": restarts}]}
    deployment = {**held, "spec": {"replicas": 1}, "status": {"availableReplicas": pods}}
    edge = [resource(reason, annotateNodeToDetach={"key": "off"})]
    return see(at, idle, serving, pods=(held,), workloads={"d": deployment}, ingress_daemon_sets=edge)


def labelled_beside_a_cordoned_node(at: float) -> Observation:
    seen = beside_a_cordoned_node(at, **{edge.DETACHED_BY: '{"uid": {"label": true}}'})
    seen.nodes["serving"]["metadata"]["labels"][edge.EXCLUDED] = ""
    return seen


def lost_and_back(reason: str) -> History:
    """The pod of a node, which is detached within progressDeadlineSeconds."""
    return [
        beside_a_cordoned_node(0),
        beside_a_cordoned_node(40, pods=0, reason=reason),
        beside_a_cordoned_node(50),
        beside_a_cordoned_node(640, off="true"),
    ]


def bound_for_a_minute() -> History:
    return [see(at, needing(), addresses=cloud("node-1")) for at in (0, 60)]


NOW = datetime(2026, 1, 1, tzinfo=UTC)
CA, OTHER = (new_ca("ca", NOW, NOW + timedelta(days=1)) for _ in range(2))
LEAF = new_leaf(CA, ["webhook"], [], NOW, NOW + timedelta(hours=1))


def served(at: float, trusted: bytes) -> Observation:
    secret = {"metadata": {"name": "tls"}, "data": {"tls.crt": b64encode(LEAF.certificate).decode()}}
    webhook = {"clientConfig": {"caBundle": b64encode(trusted).decode()}}
    configuration = {"metadata": {"name": "ours"}, "webhooks": [webhook]}
    now = NOW + timedelta(seconds=at)
    return see(at, secrets=[secret], webhook_configurations=[configuration], now=now)


SUPER = node("eklet", super_node=True)
TWO = tuple(pod(each, "eklet") for each in "ab")
PAID = pod("paid", "eklet")
KEPT_OFF = pod("a", "")
NOT_SUPER = {"key": "node.kubernetes.io/instance-type", "operator": "NotIn", "values": ["eklet"]}
REQUIRED = {"nodeSelectorTerms": [{"matchExpressions": [NOT_SUPER]}]}
KEPT_OFF["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": REQUIRED}}
GATED = replica("a", gated=True), replica("b", gated=True)
ON = node("n", **EDGE)
DEGRADED = resource()
DEGRADED["status"]["conditions"].append({"type": "Degraded", "status": "True"})
RESTORED = disturbed("etcd", 10)
HAS, GONE = {"10.0.0.1": "redis-0"}, dict[str, str]()
LIVES, BACK = (see(at, pods=(redis("10.0.0.1"),), assigned=HAS) for at in (0, 60))
IS_AHEAD = see(0, pods=(redis("10.0.0.1"),), assigned=HAS, reserved={"10.0.0.1"})
OPTS_OUT = see(1, pods=(OPTED_OUT,), assigned=HAS, reserved={"10.0.0.1"})
KEPT = partial(reservation.KeptOutOfCirculation, 120.0)
FREED = partial(reservation.FreeInTime, 120.0)
POOL_OF_A = {"spec": {"cidr": "10.0.0.0/24", "nodeSelector": "zone == 'a'"}}
STOPPED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
ENDED = redis("10.0.0.1")
ENDED["metadata"]["namespace"] = "shop"
ENDED["status"] = {**ENDED["status"], "phase": "Succeeded"}
KEEPS = {"metadata": {"name": "shop", "annotations": {"drawbridge.io/reserve-finished": "true"}}}


def finished() -> History:
    """A pod that was reserved ahead, of a namespace that asks for such ones."""
    was = {"reserved": {"10.0.0.1"}, "namespaces": [KEEPS]}
    return [
        see(0, pods=(redis("10.0.0.1"),), assigned=HAS, **was),
        see(50, pods=(ENDED,), assigned=GONE, **was),
    ]


def edge_with(
    at: float, reason: str = "", image: str = "proxy:1", phase: str = "Outdated", node: Raw = ON
) -> Observation:
    """A halted rollout to `proxy:1`, whose node has *image* and waits for a *reason*."""
    halted, held = resource("Halted"), {"metadata": {"name": "web-n", "labels": {edge.NODE_LABEL: "n"}}}
    halted["status"]["waitingFor"] = [{"node": "n", "phase": phase, "reason": reason}] if reason else []
    held |= {"spec": {"replicas": 2, "template": {"spec": {"containers": [{"image": image}]}}}}
    return see(at, node, workloads={"d": held | {"status": {}}}, ingress_daemon_sets=[halted])


BROKEN: dict[str, tuple[Callable[[], Invariant], History]] = {
    "an address is unbound from a living node": (
        address.BoundStaysBound,
        [*bound_for_a_minute(), see(61, needing())],
    ),
    "addresses of instances that run are unbound, one after the other": (
        address.RunningKeepTheirs,
        [
            see(at, addresses=cloud(*map(str, range(left))), running={f"ins-{each}" for each in range(9)})
            for at, left in enumerate((5, 4, 3, 2, 1))
        ],
    ),
    "two addresses are bound to one instance": (
        address.BoundOnce,
        [see(0, needing(), addresses=cloud("node-1", "node-1"))],
    ),
    "an address is ordered and released again and again": (
        address.FewChanges,
        [see(at, needing(), addresses=cloud("node-1") if at % 2 else {}) for at in range(6)],
    ),
    "a node is open without its address for long": (
        address.OpenWithAddress,
        [see(at, needing(), addresses=cloud("node-2")) for at in (0, 400)],
    ),
    "a node is open without its address for long while none is bound": (
        address.OpenWithAddress,
        [see(at, needing()) for at in (0, 1300)],
    ),
    "a node is opened without an address": (
        address.OpenedWithAddress,
        [see(0, needing(tainted=True)), see(1, needing())],
    ),
    "an address is ordered for a node that is open": (
        address.OrderedForClosed,
        [see(0, needing()), see(1, needing(), addresses=ORDERED)],
    ),
    "a node is opened without an address, and it is not set so": (
        lambda: address.OpenedWithoutInTime(release=False),
        [see(at, needing(tainted=True)) for at in (0, 900)] + [see(901, without())],
    ),
    "a node is opened without an address too early": (
        lambda: address.OpenedWithoutInTime(release=True),
        [see(0), see(200, needing(tainted=True)), see(700, needing(tainted=True)), see(701, without())],
    ),
    "a node that is opened without an address does not say so": (
        lambda: address.OpenedWithoutInTime(release=True),
        [see(0, without("True")), see(181, without("True"))],
    ),
    "a node stays open without an address, and it is not set so": (
        address.OpenWithAddress,
        [see(at, without(), addresses=cloud("node-2")) for at in (0, 400)],
    ),
    "a pod has an address that its node never had": (
        address.PodsKnowTheirs,
        [
            see(0, needing(), addresses=HAS_ADDRESS),
            see(1, needing(), pods=(addressed("203.0.113.2"),), addresses=HAS_ADDRESS),
        ],
    ),
    "a pod has an address that its node had long ago": (
        address.PodsKnowTheirs,
        [
            see(0, needing(), addresses=HAS_ADDRESS),
            see(1, needing()),
            see(400, needing(), pods=(addressed("203.0.113.1"),)),
        ],
    ),
    "a node joins open": (address.JoinsClosed, [see(0), see(1, needing())]),
    "a node that joined open stays so": (address.JoinsClosed, [see(0, needing()), see(61, needing())]),
    "an address of a pod that is gone is free": (KEPT, [LIVES, see(50, assigned=GONE)]),
    "an address of a pod that was deleted by force is free when its sandbox goes": (
        KEPT,
        [LIVES, see(10, assigned=HAS), see(100, assigned=GONE)],
    ),
    "an address of a pod that is gone is given away": (
        KEPT,
        [LIVES, see(50, assigned={"10.0.0.1": "b"}, reserved={"10.0.0.1"})],
    ),
    "an address of a pod that finished is given away where such ones count": (
        KEPT,
        [*finished(), see(60, pods=(ENDED,), assigned={"10.0.0.1": "b"}, reserved={"10.0.0.1"}, namespaces=[KEEPS])],
    ),
    "an address of a pod that did not ask is reserved": (
        reservation.OnlySelected,
        [
            see(at, pods=(pod("web-1", ip="10.0.0.1"),), assigned={"10.0.0.1": "web-1"}, reserved=reserved)
            for at, reserved in enumerate((set(), {"10.0.0.1"}))
        ],
    ),
    "an address of a pod that does not ask any more stays reserved": (
        reservation.OnlySelected,
        [
            see(at, pods=(asks,), assigned=HAS, reserved={"10.0.0.1"})
            for at, asks in ((0, redis("10.0.0.1")), (1, OPTED_OUT), (170, OPTED_OUT))
        ],
    ),
    "an address of a pod that did not ask any more when it went stays reserved": (
        reservation.OnlySelected,
        [IS_AHEAD, OPTS_OUT, *(see(at, assigned=GONE, reserved={"10.0.0.1"}) for at in (2, 313))],
    ),
    "a pod whose deletion is not reviewed is not reserved": (
        reservation.MarkedAreReserved,
        [
            see(at, pods=(MARKED,), assigned=HAS, reserved=reserved, webhook_configurations=[AHEAD])
            for at, reserved in ((0, {"10.0.0.1"}), (1, set()))
        ],
    ),
    "an address is free early while few are reserved": (
        lambda: reservation.KeptOutOfCirculation(120.0, most=2),
        [LIVES, see(50, assigned=GONE, reserved={"10.0.0.2"})],
    ),
    "an address of a pod that is gone stays reserved": (
        FREED,
        [see(at, reserved={"10.0.0.1"}) for at in (0, 50, 181)],
    ),
    "a pod has an address that is for another node": (
        reservation.OfItsPool,
        [
            see(at, node(zone="b"), pods=(redis("10.0.0.1"),), assigned=assigned, pools=[POOL_OF_A])
            for at, assigned in enumerate(({}, {"10.0.0.1": "redis-0"}))
        ],
    ),
    "an API server does not trust what is served": (
        certificates.ServedIsTrusted,
        [served(0, CA.certificate), served(60, OTHER.certificate)],
    ),
    "the certificate that is served has ended": (
        certificates.ServedIsTrusted,
        [served(0, CA.certificate), served(3601, CA.certificate)],
    ),
    "a pod with a fixed IP is on a super node": (
        placement.TheFirstStayHome,
        [see(0, SUPER, pods=(fixed("", gated=True),)), see(1, SUPER, pods=(fixed("eklet"),))],
    ),
    "one of the first N pods, which are pinned, is on a super node": (
        placement.TheFirstStayHome,
        [see(0, SUPER, pods=(pinned("a", gated=True),)), see(1, SUPER, pods=(pinned("a", "eklet"),))],
    ),
    "one of the first N pods, which are pinned, is on a super node, and another one may go there": (
        placement.TheFirstStayHome,
        [
            see(0, SUPER, pods=(pinned("a", on=""), pinned("b", gated=True))),
            see(1, SUPER, pods=(on_its_way("a"), pinned("b", "eklet"))),
        ],
    ),
    "more than N pods are local": (
        placement.NeverMoreThanNLocal,
        [
            see(0, node(), SUPER, pods=GATED),
            see(1, node(), SUPER, pods=(replica("a"), replica("b"))),
        ],
    ),
    "more than N pods are local, which once were so while the cap was full": (
        lambda: placement.NeverMoreThanNLocal(1),
        [
            see(0, node(), SUPER, pods=(PAID, *GATED)),
            see(1, node(), SUPER, pods=(PAID, replica("a"), replica("b"))),
            see(2, node(), SUPER, pods=(replica("a"), replica("c", gated=True))),
            see(20, node(), SUPER, pods=(replica("a"), replica("c"))),
        ],
    ),
    "more than N pods are local long after super nodes were opened": (
        placement.NeverMoreThanNLocal,
        [
            see(31, node(), SUPER, pods=GATED, disturbances=disturbed(placement.SUPER_NODES)),
            see(32, node(), SUPER, pods=(replica("a"), replica("b"))),
        ],
    ),
    "a terminating pod exceeds the cap": (
        lambda: placement.NeverMoreThanTheCap(1),
        [see(0, SUPER, pods=(pod("a", "eklet", **STOPPED), pod("b", "eklet")))],
    ),
    "a pod that was gated when the cap was lowered exceeds it": (
        lambda: placement.NeverMoreThanTheCap(1, lowered=True),
        [
            see(0, SUPER, pods=(TWO[0], replica("b", gated=True))),
            see(1, SUPER, pods=(TWO[0], replica("b", "eklet"))),
        ],
    ),
    "a pod exceeds the cap, since the super node of another is gone": (
        lambda: placement.NeverMoreThanTheCap(1),
        [
            see(0, SUPER, pods=TWO[:1]),
            see(1, node("other", super_node=True), pods=(TWO[0], pod("b", "other"))),
        ],
    ),
    "the cap is exceeded long after a person has deleted the Lease": (
        lambda: placement.NeverMoreThanTheCap(1),
        [see(0, SUPER, pods=TWO[:1]), see(31, SUPER, pods=TWO, disturbances=disturbed("lease"))],
    ),
    "more nodes are off than the budget": (edge.EdgeServes, [edge_of(0, 0), edge_of(200, 2), edge_of(203, 2)]),
    "more nodes are off than the budget, one of which was cordoned while it served": (
        edge.EdgeServes,
        [edge_of(0, 0), edge_of(200, 0, cordoned=1), edge_of(201, 2, cordoned=1), edge_of(204, 2, cordoned=1)],
    ),
    "more nodes are off than the budget, one of them long since that was lowered": (
        edge.EdgeServes,
        [
            edge_of(0, 0, most=2),
            edge_of(200, 1, most=2),
            edge_of(201, 1),
            edge_of(260, 2),
            edge_of(300, 2),
        ],
    ),
    "more nodes are off than the budget, long after one of them was drained": (
        edge.EdgeServes,
        [edge_of(0, 0), edge_of(250, 2, disturbances=DRAINED), edge_of(253, 2, disturbances=DRAINED)],
    ),
    "a cordoned node is detached beyond the budget though nothing was to be evicted": (
        edge.EdgeServes,
        [edge_of(0, 0), edge_of(198, 0, cordoned=1), *(edge_of(at, 2, cordoned=1) for at in (200, 203))],
    ),
    "nodes whose pods have crashed have served with others": (
        edge.EdgeServes,
        [
            edge_of(0, 0, pods=proxies("proxy:0", restarts=0)),
            *(edge_of(at, 3, pods=proxies(restarts=1)) for at in (200, 203)),
        ],
    ),
    "nodes crash with a template that came long after nodes were not detached": (
        edge.EdgeServes,
        [
            edge_of(0, 0, most=0),
            edge_of(700, 0, pods=proxies("proxy:0", restarts=0)),
            *(edge_of(at, 3, pods=proxies(restarts=1)) for at in (800, 803)),
        ],
    ),
    "a node is detached before the one that was updated answers 200": (edge.EdgeServes, just_updated("required")),
    "a node is detached beside a cordoned one": (
        edge.DetachedWithinTheBudget,
        [beside_a_cordoned_node(0), beside_a_cordoned_node(40, off="true")],
    ),
    "a node is detached by our label beside a cordoned one": (
        edge.DetachedWithinTheBudget,
        [beside_a_cordoned_node(0), labelled_beside_a_cordoned_node(40)],
    ),
    "a node that lost a pod while nothing rolled out, and got another one, is detached beside a cordoned one": (
        edge.DetachedWithinTheBudget,
        lost_and_back("Complete"),
    ),
    "a node is detached again beside a cordoned one": (
        edge.DetachedWithinTheBudget,
        [beside_a_cordoned_node(0, off="true"), beside_a_cordoned_node(9), beside_a_cordoned_node(110, off="")],
    ),
    "a pod is stopped on a node that the load balancer uses": (
        edge.StoppedOnlyDetached,
        [
            see(0, node("n", **EDGE), pods=(proxy("p", "n"),), uses={"n"}),
            see(1, node("n", **EDGE), pods=(proxy("p", "n", **STOPPED),), uses={"n"}),
        ],
    ),
    "a node gets the template with which a rollout is halted": (
        edge.HaltedStays,
        [edge_with(0, image="proxy:0"), edge_with(31)],
    ),
    "a closed node does not say why for long": (
        truth.WaitsSayWhy,
        [see(at, needing(tainted=True)) for at in (0, 901)],
    ),
    "a rollout is complete, and no template is current": (
        edge.CompleteIsCurrent,
        [see(0, ingress_daemon_sets=[resource(current="")])],
    ),
    "a rollout is complete, and the template before is current": (
        edge.CompleteIsCurrent,
        [see(at, ingress_daemon_sets=[resource(image=f"proxy:{at}")]) for at in (1, 2)],
    ),
}  # fmt: skip

REBOOTED = {
    "containerStatuses": [{"restartCount": 1}],
    "conditions": [{**READY["conditions"][0], "lastTransitionTime": "2026-01-01T00:00:00Z"}],
}
LOCAL_AND_GATED = see(0, node(), SUPER, pods=(PAID, replica("a", gated=True)))
OFF = {"annotations": {"off": "true"}}

BROKEN_AT_REST: dict[str, tuple[Callable[[], Invariant], Observation | History]] = {
    "one of the first N pods is still gated while the cap is full": (
        lambda: placement.NoneWaitsBehindAGate(1),
        LOCAL_AND_GATED,
    ),
    "a pod that tolerates super nodes is kept off while the cap has room": (
        lambda: placement.NoneWaitsForRoom(1),
        [see(0, SUPER), see(100, SUPER, pods=(KEPT_OFF,))],
    ),
    "an address that is ordered after etcd was restored is left": (
        address.CloudIsWhatNodesNeed,
        [see(0, disturbances=RESTORED), see(100, addresses=cloud("x"), disturbances=RESTORED)],
    ),
    "an address is bound to an instance that has ended, after many were unbound": (
        address.CloudIsWhatNodesNeed,
        [see(at, addresses=cloud(*"abcd"[:left])) for at, left in enumerate((4, 1))],
    ),
    "the command shows no gated pods": (
        truth.StatusIsTrue,
        see(0, report={"leader": LEADS, "elasticity": {"pods": 0, "onSuperNodes": 0, "superNodes": 0}}),
    ),
    "the command does not show an IngressDaemonSet": (
        truth.StatusIsTrue,
        see(0, ingress_daemon_sets=[resource()], report={"leader": LEADS, "ingressDaemonSets": []}),
    ),
    "an IngressDaemonSet waits for what is not so, and long ago a node rebooted": (
        truth.WaitingIsTrue,
        replace(
            edge_with(0, "1 of 2 pods are available", phase="Starting"),
            pods={"p": proxy("p", "m") | {"status": REBOOTED}},
            now=NOW + timedelta(hours=1),
        ),
    ),
    "a rollout is complete on a node that is detached": (
        edge.CompleteIsTrue,
        see(
            0,
            {**ON, "metadata": ON["metadata"] | OFF},
            pods=(proxy("p", "n"),),
            answers={"n": 200},
            ingress_daemon_sets=[resource(annotateNodeToDetach={"key": "off"})],
        ),
    ),
    "a rollout is complete with old pods, and degraded": (
        edge.CompleteIsTrue,
        see(0, ON, pods=(proxy("p", "n", "proxy:0"),), answers={"n": 200}, ingress_daemon_sets=[DEGRADED]),
    ),
    "a node is open without its address": (address.OpenWithAddress, see(0, needing())),
    "a node with its address is closed": (
        address.OpensInTheEnd,
        see(0, needing(tainted=True), addresses=cloud("node-1")),
    ),
    "a node has no address": (address.CloudIsWhatNodesNeed, see(0, needing(tainted=True))),
    "an address is bound to a node that is gone": (address.CloudIsWhatNodesNeed, see(0, addresses=cloud("x"))),
    "tags are left of a node that is gone": (address.CloudIsWhatNodesNeed, see(0, tagged={"ins-x"})),
    "an address of no node is paid for": (
        address.CloudIsWhatNodesNeed,
        see(0, addresses=cloud("x", status="UNBIND")),
    ),
    "a rollout stands still while the cap is full, and no pod of it waits for local nodes": (
        lambda: placement.RolloutsOfWorkloadsEnd(1),
        half_updated(replica("new", gated=True)),
    ),
    "a rollout stands still while local nodes are full, and no cap is": (
        placement.RolloutsOfWorkloadsEnd,
        half_updated(replica("new", on="")),
    ),
    "an address is still reserved": (reservation.ReservationsEnd, see(0, reserved={"10.0.0.1"})),
    "there is no certificate": (certificates.ServedIsTrusted, see(0)),
    "a closed node does not say why": (truth.WaitsSayWhy, see(0, needing(tainted=True))),
    **{
        f"an IngressDaemonSet waits for what is not so: {reason}": (
            truth.WaitingIsTrue,
            edge_with(0, reason, phase=phase),
        )
        for phase, reason in (
            ("Outdated", "it waits for its turn; the node is NotReady"),
            ("Outdated", "the rollout is paused"),
            ("Starting", "1 of 2 pods are available"),
            ("Draining", "it is detached to be drained: its pods may be evicted"),
            ("Leaving", "the node has left"),
        )
    },
    "the command shows a node as open that is closed": (
        truth.StatusIsTrue,
        see(0, needing(tainted=True), report={"leader": LEADS, "anycastIp": {"nodes": 1, "open": 1, "tainted": []}}),
    ),
    "the command shows no leader": (truth.StatusIsTrue, see(0, report={"leader": None})),
    "a gauge counts fewer reservations than there are": (
        truth.MetricsAreTrue,
        see(0, reserved={"10.0.0.1"}, report={"ipReservation": {"addresses": 1}}, metrics={"ip_reserve_count": 0}),
    ),
    "a pod is still gated": (lambda: placement.NoneWaitsBehindAGate(None), see(0, pods=(replica("a", gated=True),))),
    "a pod waits though a super node has room": (
        lambda: placement.NoneWaitsForRoom(None),
        see(0, SUPER, pods=(pod("a", ""),)),
    ),
    "a pod that tolerates super nodes waits for ever without a cap": (
        lambda: placement.NoneWaitsForRoom(None),
        see(0, SUPER, pods=(KEPT_OFF,)),
    ),
    "a node stays detached for an IngressDaemonSet that is gone": (
        edge.AttachedInTheEnd,
        see(0, {"metadata": {"name": "n", "annotations": {"drawbridge.io/detached-by": '{"uid-1": {}}'}}}),
    ),
    "a rollout is still under way": (edge.RolloutsEnd, see(0, ingress_daemon_sets=[resource("RollingOut")])),
    "a rollout is complete with old pods": (
        edge.CompleteIsTrue,
        see(0, ON, pods=(proxy("p", "n", "proxy:0"),), answers={"n": 200}, ingress_daemon_sets=[resource()]),
    ),
    "a rollout is complete on a node whose health check fails": (
        edge.CompleteIsTrue,
        see(0, ON, pods=(proxy("p", "n"),), answers={"n": 503}, ingress_daemon_sets=[resource()]),
    ),
}  # fmt: skip

GOOD: dict[str, tuple[Callable[[], Invariant], History]] = {
    "nodes crash with a template that came while nodes were not detached": (
        edge.EdgeServes,
        [
            edge_of(0, 0, most=0),
            edge_of(400, 0, most=0, pods=proxies("proxy:0", restarts=0)),
            *(edge_of(at, 3, pods=proxies(restarts=1)) for at in (800, 803, 2000)),
        ],
    ),
    "an address of a pod that is gone is free by a person's order": (
        KEPT,
        [LIVES, see(50, assigned=GONE, disturbances=disturbed("release of 10.0.0.1"))],
    ),
    "an address that was ordered before etcd was restored is left": (
        address.CloudIsWhatNodesNeed,
        [see(at, addresses=cloud("x"), disturbances=RESTORED) for at in (0, 100)],
    ),
    "a pod beyond the first N is gated while the cap is full": (
        lambda: placement.NoneWaitsBehindAGate(1),
        [see(0, node(), SUPER, pods=(PAID, replica("a"), replica("b", gated=True)))],
    ),
    "an address stays reserved while no leader works": (
        FREED,
        [
            see(at, reserved={"10.0.0.1"}, disturbances=disturbed(reservation.NO_LEADER, 25))
            for at in (0, 50, 181)
        ],
    ),
    "an address is free a moment after its pod went without admission": (
        KEPT,
        [LIVES, *(see(at, assigned=GONE, disturbances=disturbed("redis-0", 45)) for at in (50, 69))],
    ),
    "an address is free while none that leads can know that its pod went without admission": (
        KEPT,
        [LIVES, *(see(at, assigned=GONE, disturbances=UNSEEN) for at in (50, 90))],
    ),
    "a node waits for its pods": (truth.WaitingIsTrue, [edge_with(0, "0 of 2 pods are available")]),
    "a node got the template just when the rollout was halted": (
        edge.HaltedStays,
        [edge_with(0, image="proxy:0"), edge_with(30)],
    ),
    "a node gets the template once the one has left because of which the rollout was halted": (
        edge.HaltedStays,
        [edge_with(0, image="proxy:0"), edge_with(31, node=node("m", **EDGE))],
    ),
    "a pod that tolerates super nodes came while the cap was full": (
        lambda: placement.NoneWaitsForRoom(1),
        [
            see(0, SUPER, pods=(PAID,)),
            see(100, SUPER, pods=(PAID, KEPT_OFF)),
            see(200, SUPER, pods=(KEPT_OFF,)),
        ],
    ),
    "a person unbinds an address": (
        address.BoundStaysBound,
        [
            *bound_for_a_minute(),
            see(61, needing(), disturbances=(person := Disturbances())),
        ],
    ),
    "a node is opened without an address after its time": (
        lambda: address.OpenedWithoutInTime(release=True),
        [see(at, needing(tainted=True)) for at in (0, 650)] + [see(651, without()), see(1000, without())],
    ),
    "a node is open without an address, and says so": (
        lambda: address.OpenWithAddress(release=True),
        [see(at, without(), addresses=cloud("node-2")) for at in (0, 400)],
    ),
    "a node is open without its address while none is bound that would show that it is gone": (
        address.OpenWithAddress,
        [
            *(see(at, needing(), addresses=cloud("node-2", status="UNBIND")) for at in (0, 400, 800)),
            see(900, needing(tainted=True)),
        ],
    ),
    "another address was bound only just now": (
        address.OpenWithAddress,
        [
            see(0, needing()),
            *(see(at, needing(), addresses=cloud("node-2")) for at in (400, 600)),
            see(601, needing(tainted=True)),
        ],
    ),
    "a pod keeps the address that its node had when it was bound": (
        address.PodsKnowTheirs,
        [
            see(0, needing(), addresses=HAS_ADDRESS),
            see(1, needing(), pods=(addressed("203.0.113.1"),), addresses=HAS_ADDRESS),
            see(400, needing(), pods=(addressed("203.0.113.1"),)),
        ],
    ),
    "a node's address had gone before anyone looked": (
        address.PodsKnowTheirs,
        [see(0, showing("203.0.113.1")), see(1, showing("203.0.113.1"), pods=(addressed("203.0.113.1"),))],
    ),
    "a pod was bound before anyone looked": (
        address.PodsKnowTheirs,
        [see(at, needing(), pods=(addressed("203.0.113.1"),)) for at in (0, 400)],
    ),
    "a node joins open while no webhook server answers": (
        address.JoinsClosed,
        [see(0), see(60.5, needing(), disturbances=person), see(120, needing(tainted=True))],
    ),
    "an address of a pod that finished is given away where such ones do not count": (
        KEPT,
        [LIVES, see(50, pods=(ENDED,), assigned={"10.0.0.1": "b"})],
    ),
    "an address of a pod that finished is free when its namespace does not ask for it a moment later": (
        KEPT,
        [*finished(), see(60, pods=(ENDED,), assigned=GONE)],
    ),
    "an address of a pod that finished is free after its time": (
        KEPT,
        [*finished(), see(171, assigned=GONE, namespaces=[KEEPS])],
    ),
    "a reserved address of a pod that is gone": (
        KEPT,
        [LIVES, see(50, assigned=GONE, reserved={"10.0.0.1"}), see(171, assigned=GONE)],
    ),
    "a pod that opted out comes back to the address that is reserved for it": (
        reservation.OnlySelected,
        [see(0, reserved={"10.0.0.1"}), OPTS_OUT],
    ),
    "the webhook configuration is deleted a moment after a pod went, and again": (
        KEPT,
        [
            IS_AHEAD,
            see(9, assigned=GONE, reserved={"10.0.0.1"}),
            *(
                see(at, assigned=GONE, disturbances=disturbed(reservation.CONFIGURATION, last))
                for at, last in ((20, 20), (60, 45))
            ),
        ],
    ),
    "a pod that did not ask any more went while no leader worked": (
        reservation.OnlySelected,
        [IS_AHEAD, OPTS_OUT, *(see(at, assigned=GONE, reserved={"10.0.0.1"}) for at in (2, 140))],
    ),
    "an address of a pod that was deleted by force is free when its time is over, and its sandbox goes": (
        KEPT,
        [LIVES, see(10, assigned=HAS), see(135, assigned=GONE)],
    ),
    "a pod comes back with its address": (KEPT, [LIVES, see(50, assigned=GONE, reserved={"10.0.0.1"}), BACK]),
    "one of too many reservations ends early": (
        lambda: reservation.KeptOutOfCirculation(120.0, most=1),
        [LIVES, see(50, assigned=GONE, reserved={"10.0.0.2"})],
    ),
    "a certificate is served that API servers trust": (
        certificates.ServedIsTrusted,
        [served(0, OTHER.certificate), served(1, CA.certificate + OTHER.certificate)],
    ),
    "more than N pods are local that were placed while super nodes were closed": (
        placement.NeverMoreThanNLocal,
        [
            see(1, node(), SUPER, pods=GATED, disturbances=disturbed(placement.SUPER_NODES)),
            see(32, node(), SUPER, pods=(replica("a"), replica("b"))),
        ],
    ),
    "a pod beyond the first N, which are pinned, goes to a super node, and one of those goes": (
        placement.TheFirstStayHome,
        [
            see(0, node(), SUPER, pods=(pinned("a"), pinned("b", gated=True))),
            see(1, node(), SUPER, pods=(pinned("a"), pinned("b", "eklet"))),
            see(2, node(), SUPER, pods=(pinned("b", "eklet"),)),
        ],
    ),
    "a pod beyond the first N, which are pinned and wait, goes to a super node": (
        placement.TheFirstStayHome,
        [
            see(0, node(), SUPER, pods=(pinned("a", on=""), pinned("b", gated=True))),
            see(1, node(), SUPER, pods=(pinned("a", on=""), pinned("b", "eklet"))),
        ],
    ),
    "a rollout stands still while the cap and local nodes are full": (
        lambda: placement.RolloutsOfWorkloadsEnd(1),
        [half_updated(replica("new", on=""))],
    ),
    "a rollout stands still of which no pod is placed, while the cap is full": (
        lambda: placement.RolloutsOfWorkloadsEnd(1),
        [half_updated(replica("first", gated=True), replica("new", gated=True), old=False)],
    ),
    "a super node goes for a while after the cap was lowered": (
        lambda: placement.NeverMoreThanTheCap(1, lowered=True),
        [see(0, SUPER, pods=TWO), see(1, pods=TWO), see(2, SUPER, pods=TWO)],
    ),
    "a super node that was gone when the cap was lowered comes back": (
        lambda: placement.NeverMoreThanTheCap(1, lowered=True),
        [see(0, pods=TWO), see(1, SUPER, pods=TWO)],
    ),
    "a pod that was free to be bound when the cap was lowered exceeds it": (
        lambda: placement.NeverMoreThanTheCap(1, lowered=True),
        [see(0, SUPER, pods=(TWO[0], pod("b", on=""))), see(1, SUPER, pods=TWO)],
    ),
    "two leaders exceed the cap after a person has deleted the Lease": (
        lambda: placement.NeverMoreThanTheCap(1),
        [see(0, SUPER, pods=TWO[:1]), see(1, SUPER, pods=TWO, disturbances=disturbed("lease"))],
    ),
    "as many nodes are off as the budget allows": (edge.EdgeServes, [edge_of(0, 0), edge_of(200, 1)]),
    "nodes crash with a template one of which could not report it at first": (
        edge.EdgeServes,
        [
            edge_of(0, 0, pods=proxies("proxy:0", restarts=0)),
            *(edge_of(at, 3, pods=proxies(restarts=1), disturbances=SILENT) for at in (200, 600, 603)),
        ],
    ),
    "a node that was off when it was cordoned stays off beside as many as the budget allows": (
        edge.EdgeServes,
        [
            edge_of(0, 0),
            edge_of(200, 1),
            edge_of(201, 1, cordoned=1),
            edge_of(300, 2, cordoned=1),
            edge_of(303, 2, cordoned=1),
        ],
    ),
    "a node that is cordoned while an eviction from it waits is detached beyond the budget": (
        edge.EdgeServes,
        [
            edge_of(0, 0),
            edge_of(198, 0, cordoned=1, disturbances=ASKED),
            *(edge_of(at, 2, cordoned=1, disturbances=ASKED) for at in (200, 203, 270)),
        ],
    ),
    "a node that was drained stays off until drainTimeoutSeconds are over": (
        edge.EdgeServes,
        [edge_of(0, 0), edge_of(200, 2, disturbances=DRAINED), edge_of(203, 2, disturbances=DRAINED)],
    ),
    "nodes whose pods do not come up stay off after the budget was lowered": (
        edge.EdgeServes,
        [edge_of(0, 0, most=2), edge_of(200, 2, most=2), edge_of(201, 2), edge_of(400, 2)],
    ),
    "a node whose pod has crashed is updated, beside as many that are off as the budget allows": (
        edge.EdgeServes,
        [edge_of(0, 0), edge_of(200, 2, pods=CRASHED), edge_of(203, 2, pods=CRASHED), edge_of(206, 2)],
    ),
    "a node is detached before the one that was updated answers 200, with `confirm: off`": (
        edge.EdgeServes,
        just_updated("off"),
    ),
    "nodes whose pods have crashed have two templates": (
        edge.EdgeServes,
        [
            edge_of(0, 0, pods=proxies("proxy:0", restarts=0)),
            *(
                edge_of(at, 3, pods=(*proxies(restarts=1)[:2], *proxies("proxy:2", restarts=1)[2:]))
                for at in (200, 203)
            ),
        ],
    ),
    "nodes whose pods have crashed have never served with others": (
        edge.EdgeServes,
        [
            edge_of(0, 0, pods=proxies(restarts=0)),
            *(edge_of(at, 3, pods=proxies(restarts=1)) for at in (200, 203)),
        ],
    ),
    "nodes do not answer for an IngressDaemonSet that was created again": (
        edge.EdgeServes,
        [edge_of(0, 0), edge_of(200, 6, uid="again"), edge_of(203, 6, uid="again")],
    ),
    "new nodes do not answer yet": (edge.EdgeServes, [edge_of(0, 6), edge_of(60, 6)]),
    "a node is detached when another one was just cordoned": (
        edge.DetachedWithinTheBudget,
        [beside_a_cordoned_node(0), beside_a_cordoned_node(20, off="true")],
    ),
    "a node is detached again that was just attached, when another one is cordoned": (
        edge.DetachedWithinTheBudget,
        [
            beside_a_cordoned_node(0, off="true"),
            beside_a_cordoned_node(40),
            beside_a_cordoned_node(100, off="true"),
        ],
    ),
    "a node is detached that has just got its pods, when another one is cordoned": (
        edge.DetachedWithinTheBudget,
        [
            beside_a_cordoned_node(0, pods=0),
            beside_a_cordoned_node(40),
            beside_a_cordoned_node(41, off="true"),
        ],
    ),
    "a node is detached that lost a pod in a rollout and got another one, when another one is cordoned": (
        edge.DetachedWithinTheBudget,
        lost_and_back("RollingOut"),
    ),
    "a node is detached whose pod has crashed, when another one is cordoned": (
        edge.DetachedWithinTheBudget,
        [beside_a_cordoned_node(0), beside_a_cordoned_node(40, restarts=1, off="true")],
    ),
    "a pod is stopped on a node whose grace is shorter than its load balancer needs": (
        lambda: edge.StoppedOnlyDetached(4.0),
        [
            see(0, node("n", **EDGE), pods=(proxy("p", "n"),), uses={"n"}, ingress_daemon_sets=[resource()]),
            see(1, node("n", **EDGE), pods=(), uses={"n"}, ingress_daemon_sets=[resource()]),
        ],
    ),
    "a pod is stopped on a detached node": (
        edge.StoppedOnlyDetached,
        [
            see(0, node("n", **EDGE), pods=(proxy("p", "n"),)),
            see(1, node("n", **EDGE), pods=(proxy("p", "n", **STOPPED),)),
        ],
    ),
}
person.note("ins-node-1", 60.5)
person.note("admission of node-1", 60.5)


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_promise_is_found(what: str) -> None:
    make, history = BROKEN[what]
    judge = Judge([make()])

    for each in history[:-1]:
        judge.look(each)
    assert not judge.findings
    judge.look(history[-1])

    assert [each.at for each in judge.findings.values()] == [history[-1].at]


@pytest.mark.parametrize("what", BROKEN_AT_REST)
def test_a_promise_that_is_broken_at_rest_is_found(what: str) -> None:
    make, seen = BROKEN_AT_REST[what]
    history = seen if isinstance(seen, list) else [seen]
    judge = Judge([make()])

    for each in history:
        judge.look(each)
    assert not judge.findings
    judge.rest(history[-1])

    assert len(judge.findings) == 1


@pytest.mark.parametrize("what", GOOD)
def test_a_kept_promise_is_not_found_fault_with(what: str) -> None:
    make, history = GOOD[what]
    judge = Judge([make()])

    for each in history:
        judge.look(each)
    judge.rest(history[-1])

    assert not judge.findings


def test_what_is_promised_later_looks_at_what_has_not_changed_since() -> None:
    judge, seen = Judge([]), see(0, ingress_daemon_sets=[resource(current="")])
    judge.look(seen)

    judge.promise([Promise.of(edge.CompleteIsCurrent)])
    judge.look(seen)

    assert judge.findings


def test_a_reservation_is_promised_for_as_long_as_it_is_configured() -> None:
    values = values_of(["ip_reservation"], {"ipReservation": {"duration": "3m"}})
    terms = {each.make: dict(each.terms) for each in promises(values)}

    assert terms[reservation.KeptOutOfCirculation]["seconds"] == 180.0
