"""Many pods are deleted and evicted at once, by clients that repeat what every client of Kubernetes repeats."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from dev.judge import Observation
from dev.lab.session import Lab
from dev.lab.waiting import until
from dev.outside import Outside
from kube.errors import ApiError, KubeError, NotFound, Unreachable
from kube.resources import PODS
from kube.types import Pod
from tests.cluster import workloads

CONCURRENCY = 64
PATIENCE = 90.0
CALL_TIMEOUT = 60.0
"""An API server answers each request within its own limit, which is a minute; client-go sets none."""
PAUSE = 0.2

Repeats = Callable[[KubeError], bool]


def as_client_go(error: KubeError) -> bool:
    """Whether client-go, so kubectl and every controller, repeats the request by itself.

    From its ``rest.Request``: 429 and 5xx that say when to come again, and connections that broke.
    """
    if isinstance(error, ApiError):
        return bool(error.retry_after) and (error.status == 429 or error.status >= 500)
    return isinstance(error, Unreachable)


def when_a_replica_dies(error: KubeError) -> bool:
    """The API server's own answer when its call to a webhook breaks: a 500 that controllers repeat as any error."""
    return as_client_go(error) or (isinstance(error, ApiError) and "failed calling webhook" in error.message)


def when_the_api_server_starts(error: KubeError) -> bool:
    """It answers so before it is ready; clients behind a load balancer do not see that."""
    early = isinstance(error, ApiError) and "not yet ready to handle request" in error.message
    return early or when_a_replica_dies(error)


def when_etcd_stands_still(error: KubeError) -> bool:
    """The API server's own answer when its own reads and writes take too long, whatever any webhook does."""
    return as_client_go(error) or (isinstance(error, ApiError) and "etcdserver: " in error.message)


class Storm:
    """One request for each pod, a deletion and an eviction in turn; each waits until `let` permits it."""

    def __init__(self, lab: Lab, pods: Sequence[Pod], repeats: Repeats) -> None:
        self._lab, self._repeats = lab, repeats
        self._allowed, self._let = 0, threading.Condition()
        self._pool = ThreadPoolExecutor(CONCURRENCY)
        self.repeated: list[KubeError] = []
        """The answers after which a client asked again."""
        self._requests: list[Future[None]] = [
            self._pool.submit(self._go, number, pod) for number, pod in enumerate(pods)
        ]

    def let(self, count: int) -> None:
        """Let the first *count* requests go."""
        with self._let:
            self._allowed = count
            self._let.notify_all()

    def await_answers(self, count: int) -> None:
        until(lambda: self._answered() >= count, PATIENCE, f"{count} requests of the storm to be answered")

    def finish(self) -> None:
        """Let all go, and raise what any of them came to."""
        self.let(len(self._requests))
        for request in self._requests:
            request.result()

    def abandon(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.let(len(self._requests))

    def _answered(self) -> int:
        return sum(request.done() for request in self._requests)

    def _go(self, number: int, pod: Pod) -> None:
        with self._let:
            self._let.wait_for(lambda: number < self._allowed)
        ask = evict if number % 2 else delete
        deadline = time.monotonic() + PATIENCE
        first = True
        while not self._ask(ask, pod, first=first, last=time.monotonic() > deadline):
            first = False
            time.sleep(PAUSE)

    def _ask(self, ask: Callable[[Lab, Pod], None], pod: Pod, *, first: bool, last: bool) -> bool:
        """Whether it is done: also when a request, whose answer did not come, had been carried out."""
        try:
            ask(self._lab, pod)
        except NotFound:
            if first:
                raise
        except KubeError as error:
            if last or not self._repeats(error):
                raise
            self.repeated.append(error)
            return False
        return True


def delete(lab: Lab, pod: Pod) -> None:
    meta = pod.metadata
    lab.client.delete(PODS, meta.name, meta.namespace, timeout=CALL_TIMEOUT)


def evict(lab: Lab, pod: Pod) -> None:
    meta = pod.metadata
    lab.client.evict(meta.name, meta.namespace, preconditions={}, timeout=CALL_TIMEOUT)


@contextmanager
def storming(lab: Lab, pods: Sequence[Pod], repeats: Repeats = as_client_go) -> Iterator[Storm]:
    """A storm on *pods* that has finished after the block; what any request comes to is raised."""
    storm = Storm(lab, pods, repeats)
    try:
        yield storm
        storm.finish()
    finally:
        storm.abandon()


def crowd(lab: Lab, outside: Outside, namespace: str, count: int) -> list[Pod]:
    """That many running pods, which are selected."""
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: workloads.create_pod(lab, namespace, f"redis-{number}"), range(count)))
    outside.wait(lambda seen: _running(seen, namespace) == count, f"{count} pods of {namespace} to run")
    return workloads.pods_of(lab, namespace)


def _running(seen: Observation, namespace: str) -> int:
    there = set(seen.assigned.values())
    return sum(uid in there and pod["metadata"]["namespace"] == namespace for uid, pod in seen.pods.items())
