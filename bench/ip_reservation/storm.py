"""Many pods are deleted at once, and watched until the last one is gone."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from queue import Empty
from typing import Any

import msgspec

from kube.client import Client, Resource
from kube.errors import ApiError, NotFound
from kube.types import Pod
from lab.errors import LabError
from lab.session import Lab
from lab.watching import Observations, WatchLost, watching

PODS = Resource("", "v1", "pods")
CREATORS = 24
GRACE_SECONDS = 1
ATTEMPTS = 30
PATIENCE = 180.0


@dataclass(frozen=True)
class Storm:
    """*seconds* from the first request to the end of the last pod; *refused* counts requests, not pods."""

    seconds: float
    refused: int


def pod(name: str, node: str) -> dict[str, Any]:
    """A pod that is selected, and bound from the start, so that no scheduler is measured."""
    container = {"name": "redis", "image": "redis", "command": ["redis-server"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"brokerId": name}},
        "spec": {
            "containers": [container],
            "nodeName": node,
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "tolerations": [{"operator": "Exists"}],
        },
    }


def create(lab: Lab, namespace: str, count: int, nodes: int) -> list[str]:
    """The names of *count* new pods that all run and have their addresses."""
    # Never a name twice: kwok repeats deletions, by name, and some come when the next pod has the name.
    prefix = secrets.token_hex(3)
    names = [f"redis-{prefix}-{number}" for number in range(count)]
    wanted = [pod(name, f"kwok-{number % nodes}") for number, name in enumerate(names)]
    submit(lab.client, namespace, wanted)
    lab.wait(lambda: _running(lab.client, namespace) >= count or _nap(), PATIENCE, f"{count} pods to run")
    return names


def submit(client: Client, namespace: str, wanted: Sequence[Mapping[str, Any]]) -> None:
    """Create all those pods, several at once."""

    def create_one(each: Mapping[str, Any]) -> None:
        client.create(PODS, each, namespace, type=msgspec.Raw, timeout=30.0)

    with ThreadPoolExecutor(CREATORS) as pool:
        list(pool.map(create_one, wanted))


def delete(lab: Lab, namespace: str, names: Sequence[str], *, concurrency: int) -> Storm:
    """Delete *names*, *concurrency* at once, and repeat what is refused."""
    # Each keeps its connection: else the handshakes of the bench itself would be measured.
    client = Client.from_kubeconfig(lab.kubeconfig, pool_size=concurrency)
    with (
        closing(client),
        watching(lab.client, {PODS: Pod}) as observations,
        ThreadPoolExecutor(concurrency) as pool,
    ):
        begin = time.monotonic()
        deletions = pool.map(partial(_delete, client, namespace), names)
        end = _end_of_last(observations, len(names), begin + PATIENCE)
        return Storm(end - begin, sum(deletions))


def _end_of_last(observations: Observations, count: int, deadline: float) -> float:
    while count:
        try:
            seen = observations.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            raise LabError(f"{count} pods were not gone after {PATIENCE:g} s") from None
        if isinstance(seen, WatchLost):
            raise seen
        count -= seen.gone
    return time.monotonic()


def _delete(client: Client, namespace: str, name: str) -> int:
    """How often the request was refused before it was accepted."""
    for attempt in range(ATTEMPTS):
        try:
            client.delete(PODS, name, namespace, timeout=30.0)
        except NotFound:
            return attempt  # the answer to an attempt before was lost
        except ApiError:
            time.sleep(1.0)  # as client-go does when it is asked to come again
        else:
            return attempt
    raise LabError(f"the deletion of pod {namespace}/{name} was refused {ATTEMPTS} times")


def _running(client: Client, namespace: str) -> int:
    pods = client.list(PODS, namespace, type=Pod, timeout=30.0).items
    return sum(pod.status.phase == "Running" and bool(pod.status.addresses) for pod in pods)


def _nap() -> bool:
    time.sleep(0.5)  # a list of thousands of pods costs what is to be measured
    return False
