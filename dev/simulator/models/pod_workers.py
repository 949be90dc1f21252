"""What a kubelet does with a pod, from its admission to the end of its sandbox.

https://github.com/kubernetes/kubernetes/tree/master/pkg/kubelet (pod_workers.go, status/status_manager.go)
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from dev.fake_api.storage import Key
from dev.simulator.models.addresses import Addresses, PlainAddresses
from dev.simulator.models.cluster import Cluster, Raw
from dev.simulator.models.controller import Spawn, at_once
from dev.simulator.models.kubelet_admission import rejection
from dev.simulator.models.pod_behaviour import (
    Note,
    Stage,
    becomes_ready,
    lasts,
    restart_delay,
    status_of,
    stops_within,
)
from dev.simulator.models.pods import is_deleted, is_ended, stamp, with_condition
from kube.errors import Conflict, KubeError, NotFound
from kube.resources import PODS

MANAGER = "kubelet"
SUPER_NODE = ("node.kubernetes.io/instance-type", "eklet")
Worker = tuple[str, str]
"""The uid of a pod, and its node: each kubelet knows those that are bound to its own."""
PROBE_PERIOD = timedelta(seconds=2)
STATUS_SYNC = 10.0
"""Seconds between two tries to delete what has ended."""


@dataclass(eq=False)
class Sandbox:
    """A pod as its machine knows it; *at* is when its next stage is due."""

    key: Key
    pod: Raw
    node: str
    stage: Stage = Stage.SEEN
    at: datetime | None = None
    address: str = ""
    restarts: int = 0
    is_deleting: bool = False
    last: Raw = field(default_factory=dict)
    """The status with which it ended, which its kubelet reports again when etcd is that of an earlier time."""


class PodWorkers:
    """Of all nodes; *addresses* is where pods get theirs, but for those on super nodes."""

    def __init__(
        self,
        cluster: Cluster,
        dice: Random,
        addresses: Addresses | None = None,
        *,
        spawn: Spawn = at_once,
        note: Note = lambda who, what: None,
    ) -> None:
        self._cluster, self._dice, self._spawn, self._note = cluster, dice, spawn, note
        self._addresses = addresses or PlainAddresses("10.2")
        self._cloud = PlainAddresses("10.9")
        """Pods on super nodes have addresses of the VPC."""
        self._client = cluster.api.client(MANAGER)
        self._pods: dict[Worker, Sandbox] = {}
        self.silent: dict[str, datetime] = {}
        """Nodes whose kubelets do not report, since when."""
        self.sold_out: set[str] = set()
        """Super nodes whose provider has no machine left for one more pod."""
        self.answers: Callable[[Raw], bool] = lambda pod: True
        """What the readiness probe of a pod is answered that runs for a while."""

    def _sync(self, key: Key, pod: Raw, now: datetime) -> None:
        each = self._pods.get(worker_of(pod))
        if each is None:
            if pod["spec"]["nodeName"] in self.silent:
                return
            each = self._pods[worker_of(pod)] = Sandbox(key, pod, pod["spec"]["nodeName"])
            if is_ended(pod):
                each.stage = Stage.ENDED
            else:
                each.at = self._in(0.05, 0.5, now)
        each.pod = pod
        if each.node not in self.silent:
            self._catch_up(each, now)

    def _catch_up(self, each: Sandbox, now: datetime) -> None:
        """With what the API server says of it now."""
        pod = self._cluster.get(each.key)
        if pod is None or worker_of(pod) != worker_of(each.pod):
            self._forget(worker_of(each.pod), now)
            return
        each.pod = pod
        if each.stage is Stage.ENDED:
            if not is_ended(pod):
                self._write(each, each.last)
            if is_deleted(pod) and not each.is_deleting:
                each.at = each.at or self._in(0.05, 0.5, now)
        elif each.stage is not Stage.STOPPING:
            if is_deleted(pod) or is_ended(pod):
                each.stage = Stage.STOPPING
                each.at = now + timedelta(seconds=stops_within(pod, self._dice))
            elif each.stage is not Stage.SEEN:
                self._report(each, now)

    def _forget(self, worker: Worker, now: datetime) -> None:
        """It is gone from the API server, and so it stops; its machine may hear of it later.

        One that is not bound any more, as after etcd was restored, stops at once: it may be bound again, to any node.
        """
        each = self._pods.get(worker)
        if each is None or each.node in self.silent:
            return
        if each.stage is Stage.ENDED or self._cluster.key_of(worker[0]):
            self._release(each)
            del self._pods[worker]
        elif each.stage is not Stage.STOPPING:
            each.stage, each.at = Stage.STOPPING, self._in(0.1, 3.0, now)

    def _advance(self, each: Sandbox, now: datetime) -> None:
        if each.stage is Stage.SEEN:
            self._admit(each, now)
        elif each.stage is Stage.STARTING:
            self._start(each, now)
        elif each.stage is Stage.DOWN:
            self._run(each, now)
        elif each.stage is Stage.RUNNING and not self.answers(each.pod):
            each.at = now + PROBE_PERIOD
        elif each.stage is Stage.RUNNING:
            each.stage = Stage.READY
            seconds = lasts(each.pod, self._dice)
            each.at = None if seconds is None else now + timedelta(seconds=seconds)
            self._report(each, now)
            self._note(each.node, f"{each.key[2]} is ready")
        elif each.stage is Stage.READY:
            self._exit(each, now)
        elif each.stage is Stage.STOPPING:
            self._stopped(each, now)
        else:
            each.is_deleting = True
            self._spawn(functools.partial(self._delete, each, now), f"delete {each.key[2]}")

    def _admit(self, each: Sandbox, now: datetime) -> None:
        if why := self._rejection(each):
            self._reject(each, *why, now)
            return
        is_super = self._is_super(each)
        each.stage, each.at = Stage.STARTING, self._in(*((5.0, 25.0) if is_super else (1.0, 5.0)), now)
        self._report(each, now)

    def _start(self, each: Sandbox, now: datetime) -> None:
        if each.node in self.sold_out:
            each.at = self._in(2.0, 10.0, now)
            return
        if each.pod["spec"].get("hostNetwork"):
            each.address = self._host(each)
        else:
            each.address = self._allocator(each).assign(each.pod) or ""
        if not each.address:
            each.at = self._in(2.0, 10.0, now)
            return
        self._run(each, now)

    def _run(self, each: Sandbox, now: datetime) -> None:
        each.stage = Stage.RUNNING
        each.at = self._in(0.5, 4.0, now) if becomes_ready(each.pod) else None
        self._report(each, now)
        self._note(each.node, f"{each.key[2]} runs as {each.address}")

    def _exit(self, each: Sandbox, now: datetime) -> None:
        if each.pod["spec"].get("restartPolicy", "Always") == "Always":
            each.restarts += 1
            each.stage, each.at = Stage.DOWN, now + timedelta(seconds=restart_delay(each.restarts))
            self._report(each, now)
            self._note(each.node, f"{each.key[2]} has crashed")
        else:
            self._end(each, "Succeeded", now)

    def _stopped(self, each: Sandbox, now: datetime) -> None:
        pod = self._cluster.get(each.key)
        if pod is None or worker_of(pod) != worker_of(each.pod):
            self._release(each)
            del self._pods[worker_of(each.pod)]
            return
        each.pod = pod
        self._end(each, "Succeeded", now)
        if is_deleted(pod):
            each.at = self._in(0.05, 0.5, now)

    def _end(
        self,
        each: Sandbox,
        phase: str,
        now: datetime,
        reason: str = "",
        message: str = "",
        target: Raw | None = None,
    ) -> None:
        """Its sandbox is torn down before its last status is written."""
        self._release(each)
        each.stage, each.at = Stage.ENDED, None
        if is_ended(each.pod):
            return
        status = status_of(each.pod, each.stage, now, each.restarts, each.address, self._host(each), phase)
        told = {"reason": reason, "message": message} if reason else {}
        if target:
            conditions = with_condition(status["conditions"], "DisruptionTarget", "True", now, **target)
            status["conditions"] = conditions
        each.last = {**status, **told}
        self._write(each, each.last)
        self._note(each.node, f"{each.key[2]} has ended: {phase} {reason}".rstrip())

    def _delete(self, each: Sandbox, now: datetime) -> None:
        metadata = each.pod["metadata"]
        try:
            self._client.delete(
                PODS,
                metadata["name"],
                metadata["namespace"],
                preconditions={"uid": metadata["uid"]},
                grace_seconds=0,
            )
        except (NotFound, Conflict):
            pass
        except KubeError:
            each.at = now + timedelta(seconds=STATUS_SYNC)
        each.is_deleting = False

    def _rejection(self, each: Sandbox) -> tuple[str, str] | None:
        """Super nodes admit all."""
        node = self._cluster.node(each.node)
        if node is None or self._is_super(each):
            return None
        beside = [
            other.pod["spec"]
            for other in self._pods.values()
            if other is not each and other.node == each.node and other.stage not in (Stage.SEEN, Stage.ENDED)
        ]
        return rejection(each.pod["spec"], node, beside)

    def _reject(self, each: Sandbox, reason: str, message: str, now: datetime) -> None:
        self._release(each)
        each.stage, each.at = Stage.ENDED, None
        text = f"Pod was rejected: {message}"
        gone = dict.fromkeys(("podIP", "podIPs"))
        conditions: Sequence[Raw] = (each.pod.get("status") or {}).get("conditions") or ()
        for kind in ("ContainersReady", "Ready"):  # as in Kubernetes, pkg/kubelet/status: mergePodStatus
            conditions = with_condition(conditions, kind, "False", now, reason="PodFailed")
        ended = {"phase": "Failed", "reason": reason, "message": text, "startTime": stamp(now)}
        each.last = {**ended, "conditions": conditions, **gone}
        self._write(each, each.last)
        self._note(each.node, f"{each.key[2]} was rejected: {reason}")

    # Parts.

    def _report(self, each: Sandbox, now: datetime) -> None:
        host = self._host(each)
        self._write(each, status_of(each.pod, each.stage, now, each.restarts, each.address, host))

    def _write(self, each: Sandbox, status: Raw) -> None:
        """NodeRestriction refuses it for a pod of another node, or of none."""
        held = each.pod.get("status") or {}
        if all(held.get(name) == value for name, value in status.items()):
            return
        present = self._cluster.api.peek_at(PODS, each.key[2], each.key[1])
        if present is not None and worker_of(present) == worker_of(each.pod):
            each.pod = self._cluster.api.edit(
                PODS, each.key[2], {"status": status}, each.key[1], manager=MANAGER
            )

    def _release(self, each: Sandbox) -> None:
        if each.address and not each.pod["spec"].get("hostNetwork"):
            self._allocator(each).release(each.pod)
        each.address = ""

    def _allocator(self, each: Sandbox) -> Addresses:
        return self._cloud if self._is_super(each) else self._addresses

    def _is_super(self, each: Sandbox) -> bool:
        node = self._cluster.node(each.node)
        return node is not None and (node["metadata"].get("labels") or {}).get(SUPER_NODE[0]) == SUPER_NODE[1]

    def _host(self, each: Sandbox) -> str:
        addresses = ((self._cluster.node(each.node) or {}).get("status") or {}).get("addresses") or ()
        return next((str(one["address"]) for one in addresses if one["type"] == "InternalIP"), "")

    def _in(self, least: float, most: float, now: datetime) -> datetime:
        return now + timedelta(seconds=self._dice.uniform(least, most))


def worker_of(pod: Raw) -> Worker:
    return pod["metadata"]["uid"], pod["spec"].get("nodeName") or ""
