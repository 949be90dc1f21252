"""Callers of the webhook servers, by the API server, and how many of their calls fail."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from dev.lab.install import RELEASE
from kube.errors import ApiError, KubeError
from tests.cluster.workloads import namespace
from tests.e2e.real import Real

CALLERS = 4
SERVERS = f"app.kubernetes.io/component=webhook,app.kubernetes.io/instance={RELEASE}"
"""Selects the pods of the webhook servers."""


@contextmanager
def calls(cluster: Real) -> Iterator[Counter[str]]:
    """While the block runs, evictions that the API server asks the webhook about, one after the other in threads."""
    place = namespace(cluster.client, f"calls-{secrets.token_hex(3)}")
    cluster.kubectl("label", "namespace", place, "ip-reserve=enabled")
    counted: Counter[str] = Counter()
    ended = threading.Event()

    def call() -> None:
        while not ended.is_set():
            counted[_outcome(cluster, place)] += 1

    callers = [threading.Thread(target=call) for _ in range(CALLERS)]
    for each in callers:
        each.start()
    try:
        yield counted
    finally:
        ended.set()
        for each in callers:
            each.join()
        cluster.kubectl("delete", "namespace", place, "--wait=false")
    print(f"calls: {dict(counted)}")


def _outcome(cluster: Real, place: str) -> str:
    """Admission comes before the look-up of the pod, which is not there."""
    try:
        cluster.client.evict("absent", place, preconditions={})
    except ApiError as error:
        return "failed" if error.status >= 500 else "answered"
    except KubeError:
        return "failed"
    return "answered"
