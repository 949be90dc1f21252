"""The edge: nodes behind a load balancer, and the rollouts that take them off it one by one."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dev.judge.judge import Invariant, Since
from dev.judge.observation import (
    Observation,
    condition,
    is_open,
    is_ready,
    is_super,
    is_terminating,
    labels,
    name,
    notes,
)

Raw = dict[str, Any]
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
DETACHED_BY = "drawbridge.io/detached-by"
NODE_LABEL, CHECKER = "ingress-daemon-for-node", "drawbridge.io/health-checker-for"
SETTLED = 120.0
"""Seconds for which a node has been Ready and selected before it counts."""
PROBE = 2.0
"""Seconds for which a node may fail its checks: a load balancer takes it off after the second failure in a row."""
FLICKER = 10.0
"""Seconds for which a node may be without its label and still be the same."""
SOON = 30.0
"""Seconds after which the leader must know that a node is out of service or back, and its last writes have arrived."""
FORGIVEN = 90.0
"""Seconds for which a node is excused after others have interfered with it or its pods."""
DRAIN, LINGER = 90.0, 60.0
"""Seconds for which a node that was drained stays detached: `drainTimeoutSeconds`, and these more: documented."""
DEADLINE, CONFIRMED = 600.0, 60.0
DONE = ("Complete",)


def selected(node: Raw, resource: Raw) -> bool:
    spec = resource["spec"]
    wanted = (spec["template"].get("spec") or {}).get("nodeSelector") or {}
    wanted = {**wanted, **(spec.get("nodeSelector") or {})}
    return wanted.items() <= labels(node).items()


def takes_pods(node: Raw, resource: Raw) -> bool:
    """A node that is still closed for want of its address takes none."""
    return selected(node, resource) and is_open(node)


def share(value: object, of: int) -> int:
    """Of *of* nodes; a percentage is rounded up."""
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(int(value[:-1]) * of / 100)
    return int(str(value))


def rolling_of(resource: Raw) -> Raw:
    return (resource["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}


def detach_key(resource: Raw) -> str:
    """Of the annotation of nodes."""
    return str((rolling_of(resource).get("annotateNodeToDetach") or {}).get("key", ""))


def budget(resource: Raw, nodes: int) -> int:
    """How many nodes may be off, at most."""
    rolling = rolling_of(resource)
    detached = share(rolling.get("maxUnavailableNodes", 0), nodes)
    degraded = share(rolling.get("maxDegradedNodes", 0 if detached else 1), nodes)
    return max(1, detached + degraded)


def longest(resource: Raw) -> float:
    """Seconds for which the update of a node goes on at most, pod by pod."""
    spec = resource["spec"]
    deadline = spec.get("progressDeadlineSeconds", DEADLINE) + spec.get("minReadySeconds", 0)
    return float(spec.get("podsPerNode", 1) * deadline)


def drain_timeout(resource: Raw) -> float:
    return float(resource["spec"].get("drainTimeoutSeconds", DRAIN))


def detaches(resource: Raw) -> bool:
    """Without, pods are replaced one by one on nodes that serve."""
    return share(rolling_of(resource).get("maxUnavailableNodes", 0), 100) > 0


def confirms(resource: Raw) -> bool:
    """Whether a node that was attached counts until its health checker answers 200."""
    return bool(rolling_of(resource).get("confirm") != "off")


class Budgets:
    """One that was lowered holds as before for a while, and until the end of updates that were under way."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, float]] = {}

    def of(self, resource: Raw, nodes: int, at: float, updating: Iterable[float] = ()) -> int:
        """*updating* is for how many seconds nodes have been off that lack pods."""
        uid, now = resource["metadata"]["uid"], budget(resource, nodes)
        before, until = self._known.get(uid, (now, at))
        if at > until + FORGIVEN:
            before = min(before, sum(at - seconds <= until + SOON for seconds in updating))
        if now >= before:
            self._known[uid] = now, at
        return max(now, before)


class EdgeServes(Invariant):
    """Nodes of a new template whose pods fail by themselves, after they were available, come on top of those that are
    off by then: as many as the budget once more for each such template, and one for each whose kubelet did not report
    it, or as began before the first one failed, where nodes are not detached. And so do nodes whose health checker is
    being replaced, until the next probe: documented. With `confirm: off`, none waits until the checker of the one
    before has seen that it is attached: documented, too. Pods that crash on a node which has never served with others
    would crash without us, too."""

    name = "edge: as many nodes answer 200 as could without us, less the budget"

    def __init__(self, settled: float = SETTLED) -> None:
        self._settled, self._could, self._off, self._checked = settled, Since(), Since(), Since()
        self._dark, self._complete = Since(), Since()
        self._selected: dict[str, float] = {}
        """When each node was last seen selected: one whose label is off for a moment is the same node."""
        self._budgets = Budgets()
        self._first = dict[str, frozenset[str]]()
        """With which images each node answered 200 for the first time."""
        self._served: set[str] = set()
        """Nodes that have answered 200 for it since they were selected, and since they were cordoned while they did
        not: a drained one gets no traffic while it is cordoned."""
        self._uid = ""
        self._cordoned: set[str] = set()
        self._drained_by_hand: dict[str, float] = {}
        """When nodes were last cordoned that were asked for a pod: such a drain waits for no budget, documented."""
        self._failed: set[str] = set()
        """Nodes with a pod that has crashed, until they answer 200 with others."""
        self._late = dict[str, frozenset[str]]()
        """The images of those whose kubelet was silent until then: other nodes were updated meanwhile."""
        self._gradual_until = float("-inf")
        self._gradual: set[frozenset[str]] = set()
        """The images of nodes that failed until then, which were not detached: what was updated so fails on."""

    def look(self, seen: Observation) -> Iterator[str]:
        for resource in seen.ingress_daemon_sets:
            if is_terminating(resource):
                continue
            ready = [
                each
                for each, node in seen.nodes.items()
                if is_ready(node) and not is_terminating(node) and selected(node, resource)
            ]
            if not resource["spec"].get("healthCheckNodePorts"):  # its owner has taken all checks away
                self._served -= set(ready)
                continue
            if self._uid != (uid := resource["metadata"]["uid"]):  # or created it again
                self._served, self._first, self._uid = set(), {}, uid
            self._selected = {each: at for each, at in self._selected.items() if seen.at - at <= FLICKER}
            self._selected |= dict.fromkeys(ready, seen.at)
            since = self._could.of(self._selected, seen.at)
            good = {each for each in ready if seen.answers.get(each) == 200}
            cordoned = {each for each, node in seen.nodes.items() if node["spec"].get("unschedulable")}
            images, crashed = _images(seen), _crashed(seen)
            self._first = {each: found for each, found in self._first.items() if each in self._selected}
            self._first |= {each: images.get(each, frozenset()) for each in good - self._first.keys()}
            self._served = (self._served & self._selected.keys()) - (cordoned - self._cordoned) | good
            self._cordoned = cordoned
            forgiven = FORGIVEN + resource["spec"].get("minReadySeconds", 0)
            drained = forgiven + drain_timeout(resource) + LINGER
            asked = {
                each for each in cordoned if seen.disturbances.within(drained, seen.at, f"eviction on {each}")
            }
            recent = {each: at for each, at in self._drained_by_hand.items() if seen.at - at <= forgiven}
            self._drained_by_hand = recent | dict.fromkeys(asked | (recent.keys() & cordoned), seen.at)
            could = [
                each
                for each in ready
                if since[each] > self._settled
                and each not in self._drained_by_hand
                and each in self._served
                and not (each in crashed and self._first[each] == images.get(each))
                and not seen.disturbances.within(forgiven, seen.at, each)
                and not seen.disturbances.within(drained, seen.at, f"drain of {each}")
            ]
            lasting = self._off.of([each for each in could if each not in good], seen.at)
            off = [each for each, seconds in lasting.items() if seconds > PROBE]
            dark = self._dark.of(seen.nodes.keys() - good, seen.at)
            complete = self._complete.of(_complete(seen), seen.at)
            updating = [dark[each] for each in off if complete.get(each, 0.0) <= SOON]
            allowed = self._budgets.of(resource, len(ready), seen.at, updating)
            if not detaches(resource):
                self._gradual_until = seen.at + longest(resource)
            checked = self._checked.of(seen.nodes.keys() - _unchecked(seen), seen.at)
            self._late = {each: found for each, found in self._late.items() if found == images.get(each)}
            self._late |= {
                each: images.get(each, frozenset())
                for each in crashed - self._failed
                if seen.disturbances.within(SOON, seen.at, each)
            }
            self._failed = self._failed - good | crashed
            failed = Counter(images.get(each, frozenset()) for each in self._failed.intersection(off))
            if seen.at <= self._gradual_until:
                self._gradual |= failed.keys()
            late = Counter(self._late.values())
            of_templates = sum(
                count if each in self._gradual else min(allowed + late[each], count)
                for each, count in failed.items()
            )
            excused = sum(
                checked.get(each, 0.0) <= PROBE
                or (not confirms(resource) and complete.get(each, math.inf) <= FORGIVEN)
                for each in off
            )
            allowed += of_templates + min(allowed, excused)
            if len(off) > allowed:
                yield f"{len(off)} of {len(could)} nodes do not answer 200, {allowed} may: {', '.join(off)}"


def _images(seen: Observation) -> dict[str, frozenset[str]]:
    """Of all pods, by their nodes."""
    found = dict[str, frozenset[str]]()
    for pod in seen.pods.values():
        if NODE_LABEL in labels(pod):
            node = pod["spec"].get("nodeName", "")
            found[node] = found.get(node, frozenset()) | {each["image"] for each in pod["spec"]["containers"]}
    return found


def _crashed(seen: Observation) -> set[str]:
    """Nodes with a pod whose container has ended by itself."""
    found = set()
    for pod in seen.pods.values():
        statuses = (pod.get("status") or {}).get("containerStatuses") or ()
        if NODE_LABEL in labels(pod) and any(each.get("restartCount") for each in statuses):
            found.add(pod["spec"].get("nodeName", ""))
    return found


def _unchecked(seen: Observation) -> set[str]:
    """Nodes whose health checker is not there, or not ready yet."""
    starting = {
        pod["spec"].get("nodeName", "")
        for pod in seen.pods.values()
        if CHECKER in labels(pod) and not is_ready(pod)
    }
    return starting | {node for node, status in seen.answers.items() if status == 0}


def settling(resource: Raw) -> float:
    """Seconds for which a node that was attached counts at most as if it was not: documented."""
    rolling = rolling_of(resource)
    return float(
        max(rolling.get("attachGracePeriodSeconds", 0), rolling.get("confirmTimeoutSeconds", CONFIRMED))
    )


class DetachedWithinTheBudget(Invariant):
    """By the annotation of nodes, or our label. One that takes no traffic, lacks pods, has some that crashed, lost some
    in a rollout less than progressDeadlineSeconds ago, or was just attached counts already, so it may be detached at
    any time. A NotReady node whose Deployment a person has deleted is one that is yet to join, as with a DaemonSet."""

    name = "edge: no node that serves is detached while as many as the budget allows are out of service"
    sees = ("nodes", "workloads")

    def __init__(self) -> None:
        self._out, self._serves, self._budgets = Since(), Since(), Budgets()
        self._detached: set[str] = set()
        self._attached: dict[str, float] = {}
        """When nodes were, that still count."""
        self._whole: set[str] = set()
        self._lacking: set[str] = set()
        """Nodes that lack pods which they lost while they were attached."""
        self._lost: dict[str, float] = {}
        """When nodes last did in a rollout, that still count."""

    def look(self, seen: Observation) -> Iterator[str]:
        for resource in seen.ingress_daemon_sets:
            key = detach_key(resource)
            nodes = {
                each: node
                for each, node in seen.nodes.items()
                if takes_pods(node, resource) and not is_super(node) and not is_terminating(node)
            }
            before, self._detached = (
                self._detached,
                {each for each, node in nodes.items() if key in notes(node) or is_excluded_by_us(node)},
            )
            having = {labels(each).get(NODE_LABEL) for each in seen.workloads.values()}
            idle = {
                each for each, node in nodes.items() if _is_idle(node) and (is_ready(node) or each in having)
            }
            lacking = {each for each in nodes.keys() & having if is_ready(nodes[each])} - _complete(seen)
            known = _settled(self._out, idle | lacking, seen.at)
            off = known | self._detached - idle  # one may have been cordoned while a write was under way
            whole, self._whole = self._whole, nodes.keys() & _complete(seen)
            deadline = resource["spec"].get("progressDeadlineSeconds", DEADLINE)
            self._lost = {each: at for each, at in self._lost.items() if seen.at - at <= deadline}
            self._lacking = (whole | self._lacking) - self._whole - before
            if condition(resource, "Progressing").get("reason") not in DONE:
                self._lost |= dict.fromkeys(self._lacking, seen.at)
            serves = _settled(self._serves, self._whole - idle, seen.at) - _crashed(seen) - self._lost.keys()
            counts = SOON + settling(resource)
            self._attached = {each: at for each, at in self._attached.items() if seen.at - at <= counts}
            self._attached |= dict.fromkeys(before - self._detached, seen.at)
            allowed = self._budgets.of(resource, len(nodes), seen.at)
            for each in sorted(serves & self._detached - before - self._attached.keys()):
                if len(out := off - {each}) >= allowed:
                    yield f"{each}, while {', '.join(sorted(out))} are out of service, and {allowed} may be"


def _settled(since: Since, now: set[str], at: float) -> set[str]:
    return {each for each, seconds in since.of(now, at).items() if seconds > SOON}


def _complete(seen: Observation) -> set[str]:
    """Nodes whose Deployment has all of its pods."""
    return {
        labels(each)[NODE_LABEL]
        for each in seen.workloads.values()
        if NODE_LABEL in labels(each)
        and (each.get("status") or {}).get("availableReplicas", 0) >= max(1, each["spec"]["replicas"])
    }


def _is_idle(node: Raw) -> bool:
    is_excluded = EXCLUDED in labels(node) and not is_excluded_by_us(node)
    return not is_ready(node) or bool(node["spec"].get("unschedulable")) or is_excluded


def is_excluded_by_us(node: Raw) -> bool:
    return EXCLUDED in labels(node) and any(each.get("label") for each in holders_of(node).values())


def holders_of(node: Raw) -> dict[str, Raw]:
    """The marks of IngressDaemonSets that detach it, by their uids."""
    marks: dict[str, Raw] = json.loads(notes(node).get(DETACHED_BY, "{}"))
    return marks


def failing_for(resource: Raw) -> float:
    """Seconds for which load balancers can see it at least before pods are replaced: documented."""
    rolling = rolling_of(resource)
    if rolling.get("setWeightToDetach"):  # nothing but the weight counts
        return math.inf
    is_confirmed = rolling.get("confirm", "required") == "required"
    grace = (rolling.get("annotateDeploymentToDetach") or {}).get("gracePeriodSeconds", 0)
    labelled = rolling.get("confirmTimeoutSeconds", CONFIRMED) if rolling.get("labelNodeToDetach") else 0
    return float(max(grace if is_confirmed else 0, labelled))


class StoppedOnlyDetached(Invariant):
    """Where nodes are detached at all: otherwise pods are replaced one by one on nodes that serve, documented.

    And only where a load balancer has as many seconds as it *needs*: documented.
    """

    name = "edge: no ready pod is stopped by us on a node that the load balancer uses"
    sees = ("pods",)

    def __init__(self, needs: float = 0.0) -> None:
        self._needs = needs
        self._ready: Mapping[str, Raw] = {}
        self._was_gradual_at = float("-inf")

    def look(self, seen: Observation) -> Iterator[str]:
        if not all(detaches(each) and failing_for(each) >= self._needs for each in seen.ingress_daemon_sets):
            self._was_gradual_at = seen.at
        gradual_until = self._was_gradual_at + max(map(longest, seen.ingress_daemon_sets), default=0.0)
        before, self._ready = (
            self._ready,
            {
                uid: pod
                for uid, pod in seen.pods.items()
                if NODE_LABEL in labels(pod) and is_ready(pod) and not is_terminating(pod)
            },
        )
        for uid, pod in before.items() if seen.at >= gradual_until else ():
            node, now = pod["spec"].get("nodeName", ""), seen.pods.get(uid)
            stopped = now is None or is_terminating(now)
            if not stopped or node not in seen.uses or not is_ready(seen.nodes.get(node, {"metadata": {}})):
                continue
            if not seen.disturbances.within(FORGIVEN, seen.at, name(pod), node):
                yield f"{name(pod)} on {node}"


class HaltedStays(Invariant):
    """Writes under way arrive within SOON seconds. One that has the template before comes back to it. A halt ends when
    the node leaves, or is NotReady, because of which it was one."""

    name = "edge: while a rollout is halted, no further node gets its template"

    def __init__(self) -> None:
        self._halted = Since()
        self._images: dict[str, str] = {}
        """Of our Deployments, by uid."""

    def look(self, seen: Observation) -> Iterator[str]:
        before, self._images = self._images, {}
        for uid, each in seen.workloads.items():
            if NODE_LABEL in labels(each):
                self._images[uid] = image_of(each["spec"]["template"])
        halted = {}
        for each in seen.ingress_daemon_sets:
            if condition(each, "Progressing").get("reason") == "Halted":
                nodes = sorted(
                    key for key, node in seen.nodes.items() if is_ready(node) and selected(node, each)
                )
                key = f"{name(each)} {each['metadata'].get('generation')} {nodes}"
                halted[key] = image_of(each["spec"]["template"])
        for key, seconds in self._halted.of(halted, seen.at).items():
            for uid, image in self._images.items() if seconds > SOON else ():
                if image == halted[key] != before.get(uid, image):
                    yield f"{name(seen.workloads[uid])} gets {image} after {seconds:.0f} s"


class AttachedInTheEnd(Invariant):
    name = "edge: in the end no node is detached for an IngressDaemonSet that is gone"

    def rest(self, seen: Observation) -> Iterator[str]:
        known = {each["metadata"]["uid"] for each in seen.ingress_daemon_sets}
        for node in seen.nodes.values():
            if holders_of(node).keys() - known:
                yield name(node)


class RolloutsEnd(Invariant):
    name = "edge: every rollout ends, or says on the object what it waits for"

    def rest(self, seen: Observation) -> Iterator[str]:
        for resource in seen.ingress_daemon_sets:
            progressing = condition(resource, "Progressing")
            if progressing.get("reason") == "RollingOut":
                yield f"{name(resource)} is still RollingOut: {progressing.get('message')}"


class CompleteIsTrue(Invariant):
    """But for pods that fail later, of which Degraded tells."""

    name = "truth: Complete means that every selected Ready node runs the template, available and attached"

    def rest(self, seen: Observation) -> Iterator[str]:
        for resource in seen.ingress_daemon_sets:
            is_degraded = condition(resource, "Degraded").get("status") == "True"
            if condition(resource, "Progressing").get("reason") not in DONE:
                continue
            wanted = resource["spec"].get("podsPerNode", 1)
            image = image_of(resource["spec"]["template"])
            for node, raw in seen.nodes.items():
                if not is_ready(raw) or not takes_pods(raw, resource) or is_super(raw):
                    continue
                there = [
                    pod
                    for pod in seen.pods.values()
                    if labels(pod).get(NODE_LABEL) == node and is_ready(pod) and not is_terminating(pod)
                ]
                old = [each for each in there if image_of(each) != image]
                if (len(there) < wanted and not is_degraded) or old:
                    yield f"{name(resource)} on {node}: {len(there)} of {wanted} pods are ready, {len(old)} of them old"
                elif is_degraded:
                    continue
                elif detach_key(resource) in notes(raw) and not raw["spec"].get("unschedulable"):
                    yield f"{name(resource)} on {node}: it is detached"
                elif resource["spec"].get("healthCheckNodePorts") and seen.answers.get(node) != 200:
                    yield f"{name(resource)} on {node}: its health check answers {seen.answers.get(node)}"


class CompleteIsCurrent(Invariant):
    """What an abort, a rollback and a node that joins go by says the same."""

    name = "truth: with Complete, currentRevision is that of the template of the spec"
    sees = ("ingress_daemon_sets",)

    def __init__(self) -> None:
        self._templates: dict[tuple[str, str], str] = {}

    def look(self, seen: Observation) -> Iterator[str]:
        for resource in seen.ingress_daemon_sets:
            metadata, status = resource["metadata"], resource.get("status") or {}
            is_complete = condition(resource, "Progressing").get("reason") in DONE
            if not is_complete or status.get("observedGeneration") != metadata.get("generation"):
                continue
            template, revision = (
                json.dumps(resource["spec"]["template"], sort_keys=True),
                status.get("currentRevision"),
            )
            if not revision:
                yield f"{name(resource)} is complete, and has no currentRevision"
            elif self._templates.setdefault((metadata["uid"], revision), template) != template:
                yield f"{name(resource)} is complete, and currentRevision {revision} is of another template"


def image_of(pod: Raw) -> str:
    """Of a pod or a template; a policy may have it pulled from elsewhere."""
    return str(pod["spec"]["containers"][0]["image"]).rpartition("/")[2]
