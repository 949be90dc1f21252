"""The kubelets of all nodes, which see what changes, fall silent, start again, reboot with their machines, or leave.

https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/kubelet.go
https://kubernetes.io/docs/concepts/architecture/nodes/
"""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random

from dev.simulator.models.addresses import Addresses
from dev.simulator.models.cluster import Cluster, Raw
from dev.simulator.models.controller import POLL, Spawn, at_once
from dev.simulator.models.pod_behaviour import Note, Stage
from dev.simulator.models.pod_workers import MANAGER, PodWorkers, worker_of
from dev.simulator.models.pods import is_unknown, with_condition
from kube.resources import NODES, PODS


class Kubelets(PodWorkers):
    def __init__(
        self,
        cluster: Cluster,
        dice: Random,
        addresses: Addresses | None = None,
        *,
        spawn: Spawn = at_once,
        note: Note = lambda who, what: None,
    ) -> None:
        super().__init__(cluster, dice, addresses, spawn=spawn, note=note)
        self.off: set[str] = set()
        """Machines without power: nothing runs on them."""
        self._returns: dict[str, datetime] = {}
        self._seen = 0

    def step(self, now: datetime) -> datetime | None:
        self._cluster.look()
        for name in sorted(name for name, at in self._returns.items() if at <= now):
            self._boot(name, now)
        changes = self._cluster.changes(self._seen)
        self._seen = self._cluster.api.version
        for change in changes:
            if change.key[0] == PODS:
                if change.old and (
                    change.new is None or worker_of(change.new.raw) != worker_of(change.old.raw)
                ):
                    self._forget(worker_of(change.old.raw), now)
                if change.new and change.new.raw["spec"].get("nodeName"):
                    self._sync(change.key, change.new.raw, now)
            elif change.key[0] == NODES and change.new and is_unknown(change.new.raw):
                self._resume(change.key[2], now)  # etcd is that of a time when it was silent
        if self.dead and changes:
            self._bury()
        for each in [each for each in self._pods.values() if each.at is not None and each.at <= now]:
            if each.node not in self.silent:
                each.at = None
                self._advance(each, now)
        due = [
            each.at for each in self._pods.values() if each.at is not None and each.node not in self.silent
        ]
        if any(each.is_deleting for each in self._pods.values()):
            due.append(now + POLL)
        return min([*due, *self._returns.values()], default=None)

    # What happens to machines.

    def silence(self, node: str, now: datetime) -> None:
        """Its kubelet reports nothing and hears nothing; what runs there goes on."""
        self.silent.setdefault(node, now)

    def recover(self, node: str, now: datetime) -> None:
        self._cluster.look()
        if self.silent.pop(node, None) is None:
            return
        self._returns.pop(node, None)
        self._resume(node, now)

    def _resume(self, node: str, now: datetime) -> None:
        """Report the node and its pods, unless it is silent."""
        if node in self.silent:
            return
        self._heartbeat(node, now)
        for each in [each for each in self._pods.values() if each.node == node]:
            self._catch_up(each, now)
        for pod in self._cluster.pods_on(node):
            self._sync((PODS, pod["metadata"]["namespace"], pod["metadata"]["name"]), pod, now)

    def reboot(self, node: str, now: datetime, seconds: float) -> None:
        """It is away for *seconds*, and its pods begin again with new sandboxes."""
        self.silence(node, now)
        self.off.add(node)
        self._returns[node] = now + timedelta(seconds=seconds)

    def switch_off(self, node: str, now: datetime) -> None:
        """For ever: the addresses of its pods are released once its Node is gone, too."""
        self.silence(node, now)
        self.off.add(node)
        self._returns.pop(node, None)

    @property
    def dead(self) -> set[str]:
        """Machines that do not come back."""
        return self.off - self._returns.keys()

    def restart(self, node: str, now: datetime) -> None:
        """Of the kubelet alone: it admits all its pods again, and may reject some that run."""
        self._cluster.look()
        if node in self.silent:
            return
        for each in [each for each in self._pods.values() if each.node == node]:
            if each.stage not in (Stage.STOPPING, Stage.ENDED) and (why := self._rejection(each)):
                self._reject(each, *why, now)

    def evict(self, pod: Raw, now: datetime) -> None:
        """For want of memory on its node."""
        self._cluster.look()
        each = self._pods.get(worker_of(pod))
        if each is None or each.node in self.silent or each.stage in (Stage.STOPPING, Stage.ENDED):
            return
        text = "The node was low on resource: memory. "
        target = {"reason": "TerminationByKubelet", "message": text}
        self._end(each, "Failed", now, "Evicted", text, target)

    def _boot(self, node: str, now: datetime) -> None:
        del self._returns[node]
        self.off.discard(node)
        for each in [each for each in self._pods.values() if each.node == node]:
            if each.stage is not Stage.ENDED:
                self._release(each)
                started = each.stage not in (Stage.SEEN, Stage.STARTING)
                each.restarts += started
                each.stage, each.at = Stage.STARTING, self._in(1.0, 6.0, now)
        if self._cluster.node(node):
            boot = f"boot-{self._dice.getrandbits(32):08x}"
            self._cluster.api.edit(NODES, node, {"status": {"nodeInfo": {"bootID": boot}}}, manager=MANAGER)
        self._note(node, "has rebooted")
        self.recover(node, now)

    def _heartbeat(self, node: str, now: datetime) -> None:
        raw = self._cluster.node(node)
        if raw is None:
            return
        told = {"reason": "KubeletReady", "message": "kubelet is posting ready status"}
        conditions = with_condition(
            (raw.get("status") or {}).get("conditions") or [], "Ready", "True", now, **told
        )
        self._cluster.api.edit(NODES, node, {"status": {"conditions": conditions}}, manager=MANAGER)

    def _bury(self) -> None:
        """Release what pods of dead machines had, as calico-kube-controllers does once Node and pod are gone."""
        for worker, each in list(self._pods.items()):
            is_buried = each.node in self.dead and not self._cluster.node(each.node)
            if is_buried and not self._cluster.key_of(worker[0]):
                self._release(each)
                del self._pods[worker]
