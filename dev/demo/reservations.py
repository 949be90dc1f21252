"""Whatever ends a pod, its IP is reserved before, and released when its time is over, or when there are too many."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from calico.segment import IPReservation
from dev.demo.stage import HERE, SECONDS, Stage, restarts
from dev.judge import reservation
from dev.judge.observation import is_ready
from dev.lab.direct import urlopen
from dev.lab.errors import LabError
from dev.lab.install import NAMESPACE as DRAWBRIDGE
from dev.lab.killing import kill_pod
from dev.lab.repository import ROOT
from dev.outside import SKEW, of_reservations
from kube.client import Resource
from kube.resources import PODS
from kube.types import Pod

HOLD, MOST = 10, 3
"""For how many seconds IPs are reserved at first, and how many of them later."""
RESERVATIONS = Resource("projectcalico.org", "v3", "ipreservations", namespaced=False)
REPLICAS = 9
WHERE = ("-n", "redis")


def play(stage: Stage) -> None:
    stage.title("The stage: three nodes and a Redis-like cluster")
    stage.kubectl("apply", "-f", str(HERE / "redis.yaml"))
    stage.running("redis", REPLICAS)
    stage.drawbridge("status")
    with stage.judged([*of_reservations(HOLD), reservation.OnlySelected()], RESERVATIONS):
        _delete(stage)
        _evict(stage)
        _drain(stage)
        _lose_a_server(stage)
        _delete_a_namespace(stage)
        stage.step(
            "Release by age",
            "No one does anything now: the leader releases each IP ipReservation.duration after its pod's end.",
        )
        with stage.watched("status"):
            stage.wait(lambda: not reserved(stage), "all IPs to be released")
    _bound_their_number(stage)


def _delete(stage: Stage) -> None:
    stage.step(
        "Delete pods",
        "The API server asks the webhook before it deletes; that answers when the IPs are durably reserved.",
    )
    pods = stage.running("redis", REPLICAS)[:2]
    stage.kubectl(*WHERE, "delete", "pods", *_names(pods))
    stage.drawbridge("reservations", "list", *WHERE)
    stage.drawbridge("explain", "ip", pods[0].status.pod_ip)


def _evict(stage: Stage) -> None:
    stage.step("Evict a pod", "As drains, deschedulers and autoscalers do: the same webhook is asked.")
    name = stage.running("redis", REPLICAS)[2].metadata.name
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = PODS.sub("eviction").path("redis", name)
    stage.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))


def _drain(stage: Stage) -> None:
    stage.step("Drain a node", "All pods of a node are evicted at once, each as soon as its IP is reserved.")
    [node] = _nodes(stage.running("redis", REPLICAS), 1)
    stage.drawbridge("simulate", "drain", node)
    stage.kubectl("drain", node, "--timeout=30s")
    stage.kubectl("uncordon", node)
    stage.drawbridge("reservations", "list", *WHERE)


def _lose_a_server(stage: Stage) -> None:
    stage.step(
        "Lose a webhook server in the middle of a drain",
        "One of the two is killed as soon as an IP is reserved. A request that it had in work fails, and a drain"
        " that ends for it is repeated; but no pod goes before its IP is reserved.",
    )
    running = stage.running("redis", REPLICAS)
    nodes = _nodes(running, 2)
    addresses = {pod.status.pod_ip for pod in running if pod.spec.node_name in nodes}
    victim = min(each["metadata"]["name"] for each in stage.programs("webhook"))
    with ThreadPoolExecutor(1) as pool:
        drained = pool.submit(_drain_all, stage, nodes)
        stage.wait(lambda: addresses & reserved(stage), "an IP to be reserved")
        kill_pod(stage.lab, DRAWBRIDGE, victim, signal.SIGKILL)
        stage.out.print(f"  {victim} is killed with SIGKILL", style="dim")
        drained.result()
    stage.kubectl("uncordon", *nodes)

    def is_back() -> bool:
        [pod] = [each for each in stage.programs("webhook") if each["metadata"]["name"] == victim]
        return restarts(pod) > 0 and is_ready(pod)

    stage.wait(is_back, "the killed server to be back")


def _drain_all(stage: Stage, nodes: Sequence[str]) -> None:
    for last in (False, False, True):
        try:
            stage.kubectl("drain", *nodes, "--timeout=30s")
            return
        except LabError as error:
            if last:
                raise
            stage.out.print(f"  it ends with: {str(error).splitlines()[-1]}", style="dim", markup=False)


def _delete_a_namespace(stage: Stage) -> None:
    stage.step(
        "Delete a namespace",
        "Brokers go with their namespace, selected by their label brokerId; one has opted out by annotation.",
    )
    stage.kubectl("apply", "-f", str(HERE / "kafka.yaml"))
    stage.running("kafka", 3)
    stage.kubectl("delete", "namespace", "kafka")
    stage.drawbridge("reservations", "list", "-n", "kafka")


def _bound_their_number(stage: Stage) -> None:
    stage.step(
        "Release by count",
        "The configuration is changed while all runs: for 40 minutes, but no more than 3 IPs. Then 6 pods go.",
    )
    change = f"ipReservation.maxCount={MOST},ipReservation.duration=40m"
    before = _processes(stage)
    chart = str(ROOT / "charts" / "drawbridge")
    stage.helm("upgrade", "drawbridge", chart, "-n", DRAWBRIDGE, "--reuse-values", "--set", change)
    stage.wait(lambda: _is_in_force(stage), "the changed configuration to be applied")
    pods = stage.running("redis", REPLICAS)[:6]
    with stage.judged([reservation.KeptOutOfCirculation(2400, SKEW, MOST)], RESERVATIONS):
        for some in (pods[:MOST], pods[MOST:]):
            stage.kubectl(*WHERE, "delete", "pods", *_names(some))
        stage.wait(lambda: len(reserved(stage)) == MOST, "the oldest to be released")
        stage.drawbridge("reservations", "list", *WHERE)
    newest = {pod.status.pod_ip for pod in pods[MOST:]}
    others = ", ".join(sorted(reserved(stage) - newest))
    stage.verdict("ip: of too many, the oldest are released", others)
    changed = sorted(map(str, before ^ _processes(stage)))
    stage.verdict("a changed configuration is applied without a restart", ", ".join(changed))


def reserved(stage: Stage) -> set[str]:
    """All addresses that Calico assigns to no pod."""
    found = stage.lab.client.list(RESERVATIONS, type=IPReservation).items
    return {cidr.partition("/")[0] for each in found for cidr in each.spec.reserved_cidrs}


def _processes(stage: Stage) -> set[tuple[str, int]]:
    return {(each["metadata"]["name"], restarts(each)) for each in stage.programs()}


def _is_in_force(stage: Stage) -> bool:
    """Whether the leader's metrics show it."""
    for pod in stage.programs("controllers"):
        with urlopen(f"http://{pod['status']['podIP']}:8080/metrics", timeout=SECONDS) as answer:
            if f"\nip_reserve_count_max {MOST}.0\n" in answer.read().decode():
                return True
    return False


def _names(pods: Sequence[Pod]) -> list[str]:
    return [pod.metadata.name for pod in pods]


def _nodes(pods: Sequence[Pod], count: int) -> list[str]:
    """Those with most of *pods*."""
    return [node for node, _ in Counter(pod.spec.node_name for pod in pods).most_common(count)]
