"""The kubelet as a whole: one runner for each pod that is bound to its nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from functools import partial

from dev.lab.informing import Whole, informer_of
from dev.lab.kubelet.addresses import Addresses
from dev.lab.kubelet.pod import PodRunner
from dev.lab.kubelet.recipes import Machine
from dev.lab.kubelet.sources import RESOURCES
from dev.lab.kubelet.values import Kind, Place, Pod, references
from kube.client import Client
from kube.event_recorder import EventRecorder, Regarding
from kube.informer import Informer
from kube.resources import PODS, Selection

SYNC = 30.0
END = 10.0


class Kubelet:
    def __init__(
        self,
        machine: Machine,
        client: Client,
        nodes: Mapping[str, str],
        addresses: Addresses,
        recorder: EventRecorder,
    ) -> None:
        """``nodes`` are their addresses by their names."""
        self._machine = machine
        self._client = client
        self._nodes = nodes
        self._addresses = addresses
        self._recorder = recorder
        self._runners: dict[str, PodRunner] = {}  # by uid
        self._lock = threading.Lock()
        self._pods = [
            informer_of(client, PODS, Pod, Selection(field_selector=f"spec.nodeName={name}"))
            for name in nodes
        ]
        self._sources = {kind: informer_of(client, resource, Whole) for kind, resource in RESOURCES.items()}

    @property
    def _informers(self) -> list[Informer[Pod] | Informer[Whole]]:
        return [*self._pods, *self._sources.values()]

    def start(self) -> None:
        """Run what is bound to the nodes, from now on. Raises TimeoutError when the API is not there."""
        for pods in self._pods:
            pods.on_change(self._pod_changed)
        for kind, sources in self._sources.items():
            sources.on_change(partial(self._source_changed, kind))
        for each in self._informers:
            each.source.start()
        if not all(each.wait_synced(SYNC) for each in self._informers):
            raise TimeoutError(f"the API server listed no pods, ConfigMaps or Secrets within {SYNC:.0f} s")

    def stop(self) -> None:
        """Kill all that runs; the API's objects stay as they are."""
        for each in self._informers:
            each.stop()
        runners = self._snapshot()
        for runner in runners:
            runner.stop()
        deadline = time.monotonic() + END
        for runner in runners:
            runner.join(max(0.0, deadline - time.monotonic()))

    def correct(self) -> None:
        """Write the status of each pod again that another writer has changed."""
        for runner in self._snapshot():
            runner.correct()

    def _snapshot(self) -> list[PodRunner]:
        with self._lock:
            return list(self._runners.values())

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if old and (new is None or new.metadata.uid != old.metadata.uid):
            self._let_go(old.metadata.uid)
        if new is None:
            return
        with self._lock:
            runner = self._runners.get(new.metadata.uid)
        if runner:
            runner.update(new)
        else:
            self._take_on(new)

    def _let_go(self, uid: str) -> None:
        with self._lock:
            runner = self._runners.get(uid)
        if runner:
            runner.stop()

    def _take_on(self, pod: Pod) -> None:
        host_ip = self._nodes[pod.spec["nodeName"]]
        pod_ip = host_ip if pod.spec.get("hostNetwork") else self._addresses.take()
        gone = partial(self._gone, pod.metadata.uid, pod_ip)
        runner = PodRunner(
            self._machine, self._client, pod, Place(pod_ip, host_ip), warn=self._warn, gone=gone
        )
        with self._lock:
            self._runners[pod.metadata.uid] = runner
        runner.start()

    def _gone(self, uid: str, pod_ip: str) -> None:
        with self._lock:
            del self._runners[uid]
        if pod_ip not in self._nodes.values():
            self._addresses.give_back(pod_ip)

    def _source_changed(self, kind: Kind, old: Whole | None, new: Whole | None) -> None:
        source = new or old
        if source is None:
            return
        for runner in self._snapshot():
            pod = runner.pod
            same = pod.metadata.namespace == source.metadata.namespace
            if same and (kind, source.metadata.name) in references(pod):
                runner.refresh()

    def _warn(self, pod: Pod, reason: str, message: str) -> None:
        regarding = Regarding.pod(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
        self._recorder.event(regarding, reason, message, type="Warning")
