"""Pods on nodes and super nodes: what the scheduler does, and what is paid by the pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from dev.judge.judge import Invariant
from dev.judge.observation import (
    SUPER_TYPE,
    Observation,
    condition,
    is_missed,
    is_ready,
    is_super,
    is_terminating,
    labels,
    name,
    notes,
    owner,
)

Raw = dict[str, Any]
LOCAL_REPLICAS = "LOCAL_REPLICAS"
GATE = "drawbridge.io/placement"
REASON = "drawbridge.io/placement-reason"
SWITCH = "AUTO_SCALE_EKS"
FIXED_IP, MODE = "cni.projectcalico.org/ipAddrs", "drawbridge.io/placement-mode"
BURST = "drawbridge.io/burst"
TAKEN = 5.0
"""Seconds for which a pod that has a place under the cap may be on its way to it."""
FOR_A_NODE = "ingress-daemon-for-node"
OVER = ("Succeeded", "Failed")
KEPT_OFF, IN_FORCE = 30.0, 90.0
"""Seconds around which the cap was full when a pod is kept off for that; and until a new cap is in force everywhere."""
SUPER_TAINT = "eks.tke.cloud.tencent.com/eklet"
SUPER_NODES, OPENED = "super nodes", 30.0
"""What others close to pods, and seconds in which a leader sees that they are open again."""
TWO_LEAD = 30.0
"""Seconds until nothing that two leaders decided comes any more, after the Lease was deleted: documented."""


def is_gated(pod: Raw) -> bool:
    gates = (pod.get("spec") or {}).get("schedulingGates") or []
    return any(each["name"] == GATE for each in gates)


def waits_for_us(pod: Raw) -> bool:
    """Whether it is gated, and others hold it back no more: they may make another pod of it until then."""
    return is_gated(pod) and len(pod["spec"]["schedulingGates"]) == 1


def is_kept_home(raw: Raw) -> bool:
    """Of a pod, or a template: super nodes do not support fixed IPs, and the first N may be pinned."""
    return FIXED_IP in notes(raw) or notes(raw).get(MODE) == "pin"


class NeverMoreThanNLocal(Invariant):
    """While *cap* pods are on super nodes, one more is local at a time, so that a rollout goes on: documented."""

    name = "placement: never more than N replicas of a workload's revision on local nodes"
    sees = ("nodes", "pods")

    def __init__(self, cap: int | None = None) -> None:
        self._cap = cap
        self._extra: dict[str, int] = {}
        """By workload: how many came on top of N while the cap was full, or two led; they stay until they go."""
        self._is_full, self._full_at = False, float("-inf")
        self._ours: set[str] = set()
        """The uids of pods that were gated while a super node would take them: of others none is ours to send."""

    def look(self, seen: Observation) -> Iterator[str]:
        local, coming = Counter[str](), Counter[str]()
        """By workload; those of a node that is not there may come back to it."""
        limits: dict[str, int] = {}
        for uid, pod in seen.pods.items():
            if is_gated(pod):
                (self._ours.add if _may_leave(pod, seen) else self._ours.discard)(uid)
            node = seen.nodes.get(pod["spec"].get("nodeName", ""))
            controller = owner(pod, "ReplicaSet") or owner(pod, "StatefulSet")
            limit = notes(pod).get(LOCAL_REPLICAS, "")
            if controller is None or not limit.isdecimal() or uid not in self._ours or _ends(pod):
                continue
            limits[controller["name"]] = int(limit)
            if node is None:
                coming[controller["name"]] += not is_gated(pod)
            elif not is_super(node):
                local[controller["name"]] += 1
        was_full, self._is_full = self._is_full, _is_full(self._cap, seen)
        if was_full or self._is_full:
            self._full_at = seen.at
        may_be_more = seen.at - self._full_at <= TAKEN or _two_lead(seen)
        for workload, extra in self._extra.items():
            there = local[workload] + coming[workload] - limits.get(workload, 0)
            self._extra[workload] = max(0, min(extra, there))
        for workload, count in local.items():
            extra = self._extra.get(workload, 0)
            if count == limits[workload] + extra + 1 and may_be_more:
                self._extra[workload] = extra + 1
            elif count > limits[workload] + extra:
                yield f"{count} pods of {workload} are local, {limits[workload]} may be"


def _may_leave(pod: Raw, seen: Observation) -> bool:
    """Whether it is allowed to, and a super node is open to it."""
    if seen.disturbances.within(OPENED, seen.at, SUPER_NODES):
        return False
    wanted = (pod["spec"].get("nodeSelector") or {}).items()
    fits = any(wanted <= labels(each).items() for each in seen.nodes.values() if _is_open(each))
    return fits and FIXED_IP not in notes(pod) and notes(pod).get(SWITCH) != "false"


def _is_open(node: Raw) -> bool:
    return is_super(node) and is_ready(node) and not node["spec"].get("unschedulable")


def _ends(pod: Raw) -> bool:
    return is_terminating(pod) or pod["status"].get("phase") in OVER


class TheFirstStayHome(Invariant):
    """Of pods that were gated: one may tolerate super nodes by itself, and come while no webhook answers."""

    name = "placement: no pod is on a super node that must be local"
    sees = ("nodes", "pods")

    def __init__(self) -> None:
        self._was_gated: set[str] = set()
        self._others: set[str] = set()
        """The uids of pods on super nodes that came there when N others were local: these may be gone since."""

    def look(self, seen: Observation) -> Iterator[str]:
        for uid, pod in seen.pods.items():
            if is_gated(pod):
                self._was_gated.add(uid)
            elif uid in self._was_gated - self._others and _is_billed(pod, seen) and self._must_be_local(pod):
                if BURST in notes(pod) and _is_beyond(pod, seen):
                    self._others.add(uid)
                else:
                    yield name(pod)

    def _must_be_local(self, pod: Raw) -> bool:
        """One of the first N goes there where local nodes have no room, unless it is pinned."""
        ordinal, limit = name(pod).rpartition("-")[2], notes(pod).get(LOCAL_REPLICAS, "")
        is_first = owner(pod, "StatefulSet") and limit.isdecimal() and int(ordinal) < int(limit)
        return is_kept_home(pod) if BURST in notes(pod) else FIXED_IP in notes(pod) or bool(is_first)


def _is_beyond(pod: Raw, seen: Observation) -> bool:
    """Whether N others of its revision are local, or wait for a local node: these are pinned instead."""
    limit, own = notes(pod).get(LOCAL_REPLICAS, ""), owner(pod, "ReplicaSet")
    others = [each for each in seen.pods.values() if own and owner(each, "ReplicaSet") == own]
    local = sum(_is_local(each, seen) for each in others)
    return FIXED_IP not in notes(pod) and limit.isdecimal() and local >= int(limit)


def _is_local(pod: Raw, seen: Observation) -> bool:
    if not pod["spec"].get("nodeName"):
        return not (pod["spec"].get("schedulingGates") or _ends(pod) or _may_be_billed(pod))
    node = seen.nodes.get(pod["spec"]["nodeName"])
    return node is not None and not is_super(node)


class NeverMoreThanTheCap(Invariant):
    """*cap* is of all pods on super nodes; None for no cap. One that was *lowered* sends none away, and stops none that
    the scheduler may bind by then.

    Of pods that come while no webhook server answers, or none that knows of a leader, none waits: documented.
    """

    name = "placement: never more pods on super nodes than the cap, terminating ones included"
    sees = ("nodes", "pods")

    def __init__(self, cap: int | None, *, lowered: bool = False) -> None:
        self._cap = cap
        self._missed, self._known = set[str](), set[str]()
        """The uids of pods: those that did not wait, and all."""
        self._there = set[str]()
        """The uids of pods that have been on a super node: its Node may go, and come back."""
        self._stay: int | None = None if lowered else cap
        """How many may be there; None before the first look."""

    def look(self, seen: Observation) -> Iterator[str]:
        if self._cap is None:
            return
        new = seen.pods.keys() - self._known
        self._missed |= {uid for uid in new if is_missed(seen.pods[uid], seen)}
        if self._stay is None:
            self._missed |= {uid for uid in new if _may_get_there(seen.pods[uid], seen)}
        self._known |= new
        self._there |= {uid for uid, pod in seen.pods.items() if _is_billed(pod, seen)} - self._missed
        self._there &= {uid for uid, pod in seen.pods.items() if pod["status"].get("phase") not in OVER}
        there = [seen.pods[uid] for uid in self._there]
        before = len(there) if self._stay is None or _two_lead(seen) else self._stay
        self._stay = max(self._cap, min(before, len(there)))
        if len(there) > self._stay:
            yield f"{len(there)} of {self._cap}: {', '.join(sorted(name(each) for each in there))}"


def _may_get_there(pod: Raw, seen: Observation) -> bool:
    """Whether the scheduler may bind it, or its Node is gone, and may be a super node that comes back."""
    return not is_gated(pod) and pod["spec"].get("nodeName", "") not in seen.nodes


def _two_lead(seen: Observation) -> bool:
    return seen.disturbances.within(TWO_LEAD, seen.at, "lease")


def _is_full(cap: int | None, seen: Observation) -> bool:
    return cap is not None and sum(_is_billed(pod, seen) for pod in seen.pods.values()) >= cap


def _is_billed(pod: Raw, seen: Observation) -> bool:
    node = seen.nodes.get(pod["spec"].get("nodeName", ""))
    return node is not None and is_super(node) and pod["status"].get("phase") not in OVER


class NoneWaitsBehindAGate(Invariant):
    """But for those that must: *cap* pods are on super nodes, and N others of the workload are local; or others hold
    it."""

    name = "placement: no pod waits behind our gate for ever while the cap has room"

    def __init__(self, cap: int | None) -> None:
        self._cap = cap

    def rest(self, seen: Observation) -> Iterator[str]:
        is_full = _is_full(self._cap, seen)
        for pod in seen.pods.values():
            if waits_for_us(pod) and not (is_full and not _is_among_the_first(pod, seen)):
                yield f"{name(pod)}: {notes(pod).get(REASON, 'no reason given')}"


def _is_among_the_first(pod: Raw, seen: Observation) -> bool:
    """Whether fewer than N others are local, or may be, and a local node has the labels that it requires."""
    limit, wanted = notes(pod).get(LOCAL_REPLICAS, ""), (pod["spec"].get("nodeSelector") or {}).items()
    has_node = any(not is_super(each) and wanted <= labels(each).items() for each in seen.nodes.values())
    if not has_node or not limit.isdecimal():
        return False
    if owner(pod, "StatefulSet"):
        return int(name(pod).rpartition("-")[2]) < int(limit)
    own = owner(pod, "ReplicaSet")
    beside = [each for each in seen.pods.values() if own and owner(each, "ReplicaSet") == own]
    local = sum(not (is_gated(each) or _is_billed(each, seen) or _ends(each)) for each in beside)
    return own is not None and local < int(limit)


def _is_kept_off(pod: Raw) -> bool:
    """By affinity, as one that tolerates super nodes itself."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [each.get("matchExpressions") or () for each in required.get("nodeSelectorTerms") or ()]
    kept = {"key": SUPER_TYPE[0], "operator": "NotIn", "values": [SUPER_TYPE[1]]}
    return bool(terms) and all(kept in each for each in terms)


class NoneWaitsForRoom(Invariant):
    """But for those that must be local, and what is for one node: *cap* pods are on super nodes, or these have room.

    One that tolerates super nodes itself is kept off for good if it came while the cap was full, those that may get
    there included, or if no super node had the labels that it requires: documented.
    """

    name = "placement: no pod waits for ever where super nodes have room"
    sees = ("nodes", "pods")

    def __init__(self, cap: int | None) -> None:
        self._cap = cap
        self._since: float | None = None
        self._full_at = float("-inf")
        self._kept_off: dict[str, float] = {}
        """Since when pods are, by uid; and which of them rightly."""
        self._rightly: set[str] = set()

    def look(self, seen: Observation) -> Iterator[str]:
        if self._cap is None:
            return
        self._since = seen.at if self._since is None else self._since
        if sum(_is_billed(pod, seen) or _may_be_billed(pod) for pod in seen.pods.values()) >= self._cap:
            self._full_at = seen.at
        for uid in [uid for uid, pod in seen.pods.items() if _is_kept_off(pod)]:
            is_new, at = uid not in self._kept_off, self._kept_off.setdefault(uid, seen.at)
            was_full = seen.at - at <= KEPT_OFF and seen.at - self._full_at <= KEPT_OFF
            was_before = at - self._since <= IN_FORCE
            if was_full or was_before or (is_new and not _is_asked_for(seen.pods[uid], seen)):
                self._rightly.add(uid)
        yield from ()

    def rest(self, seen: Observation) -> Iterator[str]:
        are_open = any(
            is_super(each) and not each["spec"].get("unschedulable") for each in seen.nodes.values()
        )
        if not are_open or _is_full(self._cap, seen):
            return
        for uid, pod in seen.pods.items():
            waits = not pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates")
            if (
                waits
                and not is_kept_home(pod)
                and uid not in self._rightly
                and FOR_A_NODE not in labels(pod)
                and not owner(pod, "DaemonSet")
            ):
                yield f"{name(pod)}: {condition(pod, 'PodScheduled').get('message', '')}"


def _may_be_billed(pod: Raw) -> bool:
    """Whether it may get to a super node as it is."""
    is_free = not (pod["spec"].get("nodeName") or pod["spec"].get("schedulingGates") or _is_kept_off(pod))
    tolerations = pod["spec"].get("tolerations") or ()
    return is_free and any(each.get("key", SUPER_TAINT) == SUPER_TAINT for each in tolerations)


def _is_asked_for(pod: Raw, seen: Observation) -> bool:
    """Whether a super node has the labels that it requires."""
    wanted = (pod["spec"].get("nodeSelector") or {}).items()
    return any(is_super(each) and wanted <= labels(each).items() for each in seen.nodes.values())


class RolloutsOfWorkloadsEnd(Invariant):
    """While the *cap* is full, a pod beyond it and beyond N waits, but no update does.

    Unless local nodes are full, too, or no pod of the workload is placed: documented.
    """

    name = "placement: no workload's rollout stands still because of us"

    def __init__(self, cap: int | None = None) -> None:
        self._cap = cap

    def rest(self, seen: Observation) -> Iterator[str]:
        for workload in seen.workloads.values():
            strategy = (workload.get("spec") or {}).get("strategy")
            status = workload.get("status") or {}
            wanted = (workload.get("spec") or {}).get("replicas", 1)
            if strategy is None or owner(workload, "IngressDaemonSet"):
                continue
            is_full = _is_full(self._cap, seen)
            may_wait = is_full and (_lacks_room(workload, seen) or _is_gated_as_a_whole(workload, seen))
            if status.get("updatedReplicas", 0) < wanted and not may_wait:
                yield f"{name(workload)}: {status.get('updatedReplicas', 0)} of {wanted} are updated"
            waiting = condition(workload, "Progressing").get("reason") == "ProgressDeadlineExceeded"
            waits_rightly = is_full or is_kept_home(workload["spec"]["template"])
            if waiting and not waits_rightly and status.get("availableReplicas", 0) < wanted:
                yield f"{name(workload)}: {status.get('availableReplicas', 0)} of {wanted} are available"


def _is_of(deployment: Raw, pod: Raw) -> bool:
    made_by = owner(pod, "ReplicaSet")
    return made_by is not None and str(made_by["name"]).startswith(f"{name(deployment)}-")


def _is_gated_as_a_whole(workload: Raw, seen: Observation) -> bool:
    """Whether its pods, of whatever revision, wait for places, as those of a new workload do."""
    own = [pod for pod in seen.pods.values() if _is_of(workload, pod) and not _ends(pod)]
    return bool(own) and all(map(is_gated, own))


def _lacks_room(workload: Raw, seen: Observation) -> bool:
    """Whether a pod of its present template finds no room on local nodes."""
    template = workload["spec"]["template"]
    return any(
        not pod["spec"].get("nodeName")
        and not pod["spec"].get("schedulingGates")
        and _is_of(workload, pod)
        and pod["spec"]["containers"][0]["image"] == template["spec"]["containers"][0]["image"]
        and notes(pod).get(LOCAL_REPLICAS)
        == (template["metadata"].get("annotations") or {}).get(LOCAL_REPLICAS)
        for pod in seen.pods.values()
    )
