"""Admissions by the webhooks of all four features at a steady rate, and what becomes of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any

from api.anycast_ip import is_tainted
from api.elasticity import LOCAL_REPLICAS
from dev.lab.nodes import NODES
from dev.lab.session import Lab
from kube.client import Resource
from kube.errors import Invalid, KubeError, NotFound
from kube.resources import PODS
from kube.types import Node
from settings.anycast_ip import NEED_LABEL
from tests.cluster.elasticity import is_gated
from tests.cluster.ingress_daemonset import API_VERSION, INGRESS_DAEMONSETS
from tests.cluster.workloads import evict_absent

Raw = dict[str, Any]

RATE = 60.0
THREADS = 8
"""As many as the questions have no divisor in common with: each thread asks all of them."""
FAULTY = {"updateStrategy": {"rollingUpdate": {"maxUnavailablePodsPerNode": 0, "maxSurgedPodsPerNode": 0}}}
"""What the schema takes of an IngressDaemonSet, and the webhook refuses."""


class Load:
    """So many admissions a second, by the webhooks of all features in turn; none of them leaves anything behind."""

    def __init__(self, lab: Lab, namespace: str) -> None:
        """*namespace* is one whose pods have their addresses reserved."""
        self._client, self._namespace = lab.client, namespace
        self._questions: Sequence[Callable[[], bool]] = (
            self._eviction_is_reviewed,
            self._node_is_tainted,
            self._pod_is_gated,
            self._default_is_added,
            self._fault_is_refused,
        )
        self._began = time.monotonic()
        self._adding = threading.Lock()
        self.answered = 0
        self.refused: list[str] = []
        self.unreviewed: list[str] = []
        """Those that were admitted without a review; an eviction does not show it."""

    @property
    def rate(self) -> float:
        """Answers a second so far."""
        return self.answered / (time.monotonic() - self._began)

    def run(self, worker: int, stop: threading.Event) -> None:
        for number in count(worker, THREADS):
            if stop.wait(max(0.0, self._began + number / RATE - time.monotonic())):
                return
            self._ask(self._questions[number % len(self._questions)])

    def _ask(self, question: Callable[[], bool]) -> None:
        name = question.__name__.strip("_")
        try:
            reviewed = question()
        except KubeError as error:
            self.refused.append(f"{name}: {error}")
            return
        with self._adding:
            self.answered += 1
        if not reviewed:
            self.unreviewed.append(name)

    def _eviction_is_reviewed(self) -> bool:
        try:
            evict_absent(self._client, self._namespace)
        except NotFound:
            return True
        raise AssertionError("a pod that is not there was evicted")

    def _node_is_tainted(self) -> bool:
        metadata = {"name": "absent", "labels": {NEED_LABEL: "true"}}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        path = NODES.path()
        return is_tainted(
            self._client.request("POST", path, body=node, query={"dryRun": "All"}, type=Node, timeout=60)
        )

    def _pod_is_gated(self) -> bool:
        metadata = {"name": "absent", "annotations": {LOCAL_REPLICAS: "0"}}
        spec = {"containers": [{"name": "app", "image": "app"}]}
        return is_gated(
            self._post(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        )

    def _default_is_added(self) -> bool:
        return "podsPerNode" in self._post(INGRESS_DAEMONSETS, ingress_daemonset({}))["spec"]

    def _fault_is_refused(self) -> bool:
        try:
            self._post(INGRESS_DAEMONSETS, ingress_daemonset(FAULTY))
        except Invalid as refusal:
            if "maxSurgedPodsPerNode" not in refusal.message:
                raise
            return True
        return False

    def _post(self, resource: Resource, body: Raw) -> Raw:
        path = resource.path(self._namespace)
        return self._client.request("POST", path, body=body, query={"dryRun": "All"}, timeout=60)


def ingress_daemonset(spec: Raw) -> Raw:
    pod = {"containers": [{"name": "proxy", "image": "proxy:1"}]}
    return {
        "apiVersion": API_VERSION,
        "kind": "IngressDaemonSet",
        "metadata": {"name": "absent"},
        "spec": {"template": {"metadata": {"labels": {"app": "absent"}}, "spec": pod}, **spec},
    }


@contextmanager
def loaded(lab: Lab, namespace: str) -> Iterator[Load]:
    """While the block runs."""
    load, stop = Load(lab, namespace), threading.Event()
    with ThreadPoolExecutor(THREADS) as pool:
        running = [pool.submit(load.run, worker, stop) for worker in range(THREADS)]
        try:
            yield load
        finally:
            stop.set()
        for each in running:
            each.result()
