"""One pod on this machine: brought to what its specification says, and its status to what is."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from dev.lab.kubelet import status
from dev.lab.kubelet.container import Container
from dev.lab.kubelet.life import Life
from dev.lab.kubelet.mounted import MountedVolumes
from dev.lab.kubelet.process import Process
from dev.lab.kubelet.recipes import Machine, recipe
from dev.lab.kubelet.sources import service_links
from dev.lab.kubelet.values import CannotRun, Place, Pod, Store, refusals
from kube.client import Client
from kube.errors import Conflict, NotFound
from kube.resources import PODS
from kube.transport import STRATEGIC_PATCH, Typed

RETRY = 1.0
NEVER = float("inf")

log = logging.getLogger(__name__)


class PodRunner:
    """A thread that lives as long as the pod; its public methods are for other threads."""

    def __init__(
        self,
        machine: Machine,
        client: Client,
        pod: Pod,
        place: Place,
        *,
        warn: Callable[[Pod, str, str], None],
        gone: Callable[[], None],
    ) -> None:
        self.place = place
        self._machine = machine
        self._client = client
        self._pod = pod
        self._warn = warn
        self._gone = gone
        self._since = time.time()
        self._volumes = MountedVolumes(client, machine.volumes(pod))
        policy = pod.spec.get("restartPolicy", "Always")
        self._all = [Container(each, policy=policy) for each in pod.containers]
        self._left_alone = pod.status.get("phase") in ("Succeeded", "Failed")
        self._vanished = False
        self._deadline = NEVER
        self._written: dict[str, Any] = {}
        self._correcting = False
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"pod-{pod.metadata.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    @property
    def pod(self) -> Pod:
        return self._pod

    def update(self, pod: Pod) -> None:
        old, self._pod = self._pod.metadata, pod
        if (old.labels, old.annotations) != (pod.metadata.labels, pod.metadata.annotations):
            self._volumes.outdate()
        self._news.set()

    def refresh(self) -> None:
        """Something that its volumes show has changed."""
        self._volumes.outdate()
        self._news.set()

    def correct(self) -> None:
        """Write the status again if another writer has changed it."""
        self._correcting = True
        self._news.set()

    def stop(self) -> None:
        """It is not in the API any more: end it at once, and say nothing."""
        self._vanished = True
        self._news.set()

    def _run(self) -> None:
        wait: float | None = 0.0
        while wait is not None:
            self._news.wait(min(wait, threading.TIMEOUT_MAX))
            self._news.clear()
            wait = self._try_step()
        self._volumes.remove()
        self._gone()

    def _try_step(self) -> float | None:
        try:
            return self._step(self._pod, time.monotonic())
        except Exception as error:  # whatever it is, the pod's containers live only as long as this thread
            log.warning(
                "pod not brought on, trying again",
                extra={"pod": self._pod.metadata.name, "error": str(error)},
            )
            return RETRY

    def _step(self, pod: Pod, now: float) -> float | None:
        """Bring it on; seconds until it needs that again at the latest, or None when it is over."""
        for container in self._all:
            container.collect(now)
        if self._vanished:
            return self._kill()
        if pod.metadata.deletion_timestamp:
            return self._end(pod, now)
        wait = NEVER if self._left_alone else self._go_on(pod, now)
        if not self._left_alone:
            self._report(pod)
        return wait

    def _kill(self) -> float | None:
        for container in self._all:
            container.kill()
        return NEVER if any(container.running for container in self._all) else None

    def _end(self, pod: Pod, now: float) -> float | None:
        self._deadline = min(self._deadline, now + pod.grace)
        for container in self._all:
            container.stop(lambda: self._deadline)
        if not self._left_alone:
            self._report(pod)
        if any(container.running for container in self._all):
            return NEVER
        return self._delete(pod)

    def _delete(self, pod: Pod) -> float | None:
        metadata = pod.metadata
        try:
            self._client.delete(
                PODS, metadata.name, metadata.namespace, preconditions={"uid": metadata.uid}, grace_seconds=0
            )
        except (NotFound, Conflict):
            return None
        return NEVER

    def _go_on(self, pod: Pod, now: float) -> float:
        """Start what is due and keep its volumes; seconds until there is more to do."""
        refused = refusals(pod)
        if refused:
            self._hold_back(CannotRun("Unsupported", "; ".join(refused)), self._all, NEVER)
            return NEVER
        due = [container for container in self._all if container.due_in(now) == 0]
        if due or self._volumes.due_in(now) == 0:
            self._make(pod, due, now)
        waits = [container.due_in(now) for container in self._all]
        return min([self._volumes.due_in(now) or RETRY, *(each for each in waits if each is not None)])

    def _make(self, pod: Pod, due: list[Container], now: float) -> None:
        try:
            store = self._volumes.write(pod, self.place, now)
        except CannotRun as error:
            self._hold_back(CannotRun("ContainerCreating", error.message), due, now + RETRY)
            return
        for container in due:
            try:
                self._begin(pod, container, store)
            except CannotRun as error:
                self._hold_back(error, [container], now + RETRY)

    def _hold_back(self, error: CannotRun, containers: list[Container], until: float) -> None:
        news = [container.hold_back(error.reason, error.message, until) for container in containers]
        if any(news):
            self._warn(
                self._pod, "FailedMount" if error.reason == "ContainerCreating" else "Failed", error.message
            )

    def _begin(self, pod: Pod, container: Container, store: Store) -> None:
        links = service_links(self._client, pod.metadata.namespace)
        made = recipe(self._machine, pod, container.spec, self.place, store, links)
        process = Process(made, self._machine.logs(pod) / container.name / f"{container.lives}.log")
        container.begin(
            Life(
                process,
                container.spec,
                address=self.place.pod_ip,
                grace=float(pod.spec.get("terminationGracePeriodSeconds", 30)),
                poke=self._news.set,
                warn=lambda reason, message: self._warn(self._pod, reason, message),
            )
        )

    def _report(self, pod: Pod) -> None:
        """Write the status if it differs from the last one written, or after `correct` from the live one."""
        altered, self._correcting = self._correcting and status.is_altered(pod, self._written), False
        terminating = pod.metadata.deletion_timestamp is not None
        current = status.status(
            pod,
            self.place,
            [container.state(terminating=terminating) for container in self._all],
            before=self._written.get("conditions", ()),
            since=self._since,
            now=time.time(),
        )
        if current == self._written and not altered:
            return
        body = {"metadata": {"uid": pod.metadata.uid}, "status": current}
        namespace, name = pod.metadata.namespace, pod.metadata.name
        self._client.patch(PODS.sub("status"), name, Typed(STRATEGIC_PATCH, body), namespace)
        self._written = current
