"""What the objects say: a person with kubectl finds out there why something waits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from dev.judge.edge import DONE, NODE_LABEL, selected, takes_pods
from dev.judge.judge import Invariant, Since
from dev.judge.observation import (
    ADDRESS_READY,
    Observation,
    condition,
    is_open,
    is_open_without,
    is_ready,
    is_super,
    labels,
    name,
    needs_address,
    notes,
    owner,
)
from dev.judge.placement import REASON, is_gated, waits_for_us

Raw = dict[str, Any]
UNEXPLAINED, EXPLAINED = "AnycastIpPending", 900.0
"""What says nothing; and seconds until something is said: documented."""
BACK_OFF = 360.0
"""Seconds from one crash to the next, at most."""
ROLLING = {"Outdated", "Detaching", "Updating", "Attaching"}
PODS = re.compile(r"(\d+) of (\d+) pods are available")


class WaitsSayWhy(Invariant):
    name = (
        f"truth: each closed node and each gated pod says what it waits for, a node within {EXPLAINED:.0f} s"
    )
    sees = ("nodes",)

    def __init__(self) -> None:
        self._silent = Since()

    def look(self, seen: Observation) -> Iterator[str]:
        for each, seconds in self._silent.of(_silent(seen), seen.at).items():
            if seconds > EXPLAINED:
                yield f"{each} is closed for {seconds:.0f} s"

    def rest(self, seen: Observation) -> Iterator[str]:
        for each in _silent(seen):
            yield f"{each} is closed"
        for pod in seen.pods.values():
            if is_gated(pod) and not notes(pod).get(REASON):
                yield f"{name(pod)} is gated"


def _silent(seen: Observation) -> list[str]:
    """Nodes that are closed, and do not say why."""
    return [
        key
        for key, node in seen.nodes.items()
        if needs_address(node) and is_ready(node) and not is_open(node)
        if condition(node, ADDRESS_READY).get("status") != "False"
        or condition(node, ADDRESS_READY).get("reason") == UNEXPLAINED
    ]


class WaitingIsTrue(Invariant):
    """Of what `waitingFor` and the conditions of an IngressDaemonSet name, whatever can be seen."""

    name = "truth: at rest, what an IngressDaemonSet says that it waits for is so"

    def rest(self, seen: Observation) -> Iterator[str]:
        for resource in seen.ingress_daemon_sets:
            progressing = condition(resource, "Progressing")
            waiting = (resource.get("status") or {}).get("waitingFor") or []
            for each in waiting:
                if not _is_so(each["phase"], each["reason"], each["node"], resource, seen):
                    yield f"{name(resource)}: {each['node']} is {each['phase']}: {each['reason']}"
            if progressing.get("reason") == "Paused" and not resource["spec"].get("paused"):
                yield f"{name(resource)} is not paused: {progressing['message']}"
            if progressing.get("reason") in DONE and {each["phase"] for each in waiting} & ROLLING:
                yield f"{name(resource)} is complete, and waits for {waiting}"


def _is_so(phase: str, reason: str, key: str, resource: Raw, seen: Observation) -> bool:
    node, count = seen.nodes.get(key), PODS.match(reason)
    own = [each for each in seen.workloads.values() if labels(each).get(NODE_LABEL) == key]
    there = {(each["status"].get("availableReplicas", 0), each["spec"]["replicas"]) for each in own}
    if phase == "Leaving" or node is None:
        return phase == "Leaving" and bool(own) and not (node and selected(node, resource))
    is_drained = any(node["spec"].get(each) for each in ("unschedulable", "taints"))
    is_counted = not count or not there or any_crash(seen) or (int(count[1]), int(count[2])) in there
    return (
        ("; the node is NotReady" in reason) != is_ready(node)
        and bool(own or selected(node, resource))
        and (phase != "Draining" or is_drained or key in (resource["status"].get("drainRequests") or ()))
        and ("the rollout is paused" not in reason or bool(resource["spec"].get("paused")))
        and is_counted
    )


class StatusIsTrue(Invariant):
    name = "truth: at rest, `drawbridge status` shows the leader, nodes, pods, reservations and rollouts as they are"

    def rest(self, seen: Observation) -> Iterator[str]:
        report = seen.report
        if report and not (report["leader"] or {}).get("holder"):
            yield "no leader is shown"
        for part, facts in _facts(seen).items():
            yield from _differences(part, facts, report.get(part) or {})
        resources, listed = seen.ingress_daemon_sets, report.get("ingressDaemonSets")
        if listed is not None and len(listed) != len(resources):
            yield f"{len(listed)} of {len(resources)} IngressDaemonSets are shown"
        for shown in listed or ():
            resource = next(each for each in resources if name(each) == shown["name"])
            own = _edge_facts(resource, seen)
            if any_crash(seen):  # what is ready changes from moment to moment
                del own["readyNodes"]
            yield from _differences(shown["name"], own, shown)
            serving = sum(
                takes_pods(node, resource) and seen.answers.get(key) == 200
                for key, node in seen.nodes.items()
            )
            if shown["desiredNodes"] - shown["detachedNodes"] < serving:
                yield f"{shown['name']}: {shown['detachedNodes']} are detached, and {serving} nodes answer 200"


class MetricsAreTrue(Invariant):
    name = "truth: at rest, gauges of nodes, pods and reservations are what they count"

    def rest(self, seen: Observation) -> Iterator[str]:
        facts, gone = _facts(seen), set(seen.reserved) - seen.assigned.keys()
        counted = {
            "anycastIp": {"drawbridge_anycast_ip_nodes open": facts["anycastIp"]["open"] - _without(seen)},
            "elasticity": {"drawbridge_elasticity_pods gated": facts["elasticity"]["gated"]},
            "ipReservation": {"ip_reserve_count": len(gone)},
        }
        for part, values in counted.items():
            if seen.report.get(part):
                yield from _differences("metrics", values, seen.metrics)


def _without(seen: Observation) -> int:
    return sum(needs_address(node) and is_open_without(node) for node in seen.nodes.values())


def _facts(seen: Observation) -> Mapping[str, Mapping[str, Any]]:
    """By parts of the report."""
    need = {key for key, node in seen.nodes.items() if needs_address(node)}
    closed = sorted(key for key in need if not is_open(seen.nodes[key]))
    away = {key for key, node in seen.nodes.items() if is_super(node)}
    pods = [
        pod for pod in seen.pods.values() if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
    ]
    return {
        "anycastIp": {"nodes": len(need), "open": len(need) - len(closed), "tainted": closed},
        "elasticity": {
            "pods": len(pods),
            "gated": sum(map(waits_for_us, pods)),
            "onSuperNodes": sum(pod["spec"].get("nodeName") in away for pod in pods),
            "superNodes": len(away),
        },
        "ipReservation": {"addresses": len(seen.reserved)},
    }


def any_crash(seen: Observation) -> bool:
    """A pod that crashes over and over is a world that does not stand still."""
    return any(_may_crash(pod, seen.now) for pod in seen.pods.values())


def _may_crash(pod: Raw, now: datetime) -> bool:
    """Whether it has restarted, and was not ready for long since: a reboot of its node is no crash."""
    restarts = any(
        each.get("restartCount") for each in (pod.get("status") or {}).get("containerStatuses") or ()
    )
    since = condition(pod, "Ready").get("lastTransitionTime")
    lasts = is_ready(pod) and since and (now - datetime.fromisoformat(since)).total_seconds() > BACK_OFF
    return restarts and not lasts


def _edge_facts(resource: Raw, seen: Observation) -> dict[str, Any]:
    """By its Deployments: a node that waits for its turn has all of its pods if it has those of the former template."""
    own = [each for each in seen.workloads.values() if owner(each, "IngressDaemonSet")]
    having = {(each["spec"]["template"]["spec"]).get("nodeName") for each in own}
    return {
        "desiredNodes": sum(
            takes_pods(node, resource) or (selected(node, resource) and key in having)
            for key, node in seen.nodes.items()
        ),
        "readyNodes": sum(
            each["status"].get("availableReplicas", 0) >= each["spec"]["replicas"] for each in own
        ),
    }


def _differences(part: str, facts: Mapping[str, Any], shown: Mapping[str, Any]) -> Iterator[str]:
    """Nothing is shown of a feature that is off."""
    for key, value in facts.items() if shown else ():
        if shown.get(key) != value:
            yield f"{part}.{key} is {shown.get(key)}, and there are {value}"
