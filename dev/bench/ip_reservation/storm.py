"""Many pods are deleted at once, and watched until the last one is gone."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from queue import Empty
from typing import Any, NamedTuple

import msgspec

from dev.lab.errors import LabError
from dev.lab.kubeconfig import client_of
from dev.lab.session import Lab
from dev.lab.watching import Observation, Observations, WatchLost
from kube.client import Client
from kube.errors import ApiError, NotFound
from kube.resources import PODS
from kube.types import Pod

CREATORS = 24
GRACE_SECONDS = 1
ATTEMPTS = 30
PATIENCE = 180.0


class Load(NamedTuple):
    """*size* deletions, *concurrency* at once; with a *rate*, so many a second, whatever the answers take."""

    size: int
    concurrency: int
    rate: int = 0

    def __str__(self) -> str:
        if self.rate:
            return f"{self.size:,} deletions, {self.rate} per second"
        return (
            f"{self.size:,} deletions, {f'{self.concurrency} at once' if self.is_storm else 'one at a time'}"
        )

    @property
    def is_storm(self) -> bool:
        return self.concurrency > 1 and not self.rate


@dataclass(frozen=True)
class Storm:
    """*seconds* from the first request to the end of the last pod; *refused* counts requests, not pods.

    *waited* are the seconds that each client waited until its deletion was accepted, from when it was due.
    """

    seconds: float
    refused: int
    waited: Sequence[float] = ()


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


def delete(
    lab: Lab, namespace: str, names: Sequence[str], load: Load, observations: Iterator[Observation]
) -> Storm:
    """Delete *names* as *load* says, and repeat what is refused; *observations* show when they are gone."""
    # Each keeps its connection: else the handshakes of the bench itself would be measured.
    client = client_of(lab.kubeconfig, pool_size=load.concurrency)
    with closing(client), ThreadPoolExecutor(load.concurrency) as pool:
        begin = time.monotonic()
        deletions = pool.map(
            partial(_delete_when_due, client, namespace, load, begin), range(load.size), names
        )
        end = _end_of_last(observations, namespace, len(names))
        answers = list(deletions)
    return Storm(end - begin, sum(refused for refused, _ in answers), [waited for _, waited in answers])


def observed(observations: Observations) -> Iterator[Observation]:
    """Each as it comes; LabError when none came for long, WatchLost when one may be missing."""
    while True:
        try:
            seen = observations.get(timeout=PATIENCE)
        except Empty:
            raise LabError(f"no pod was deleted for {PATIENCE:g} s") from None
        if isinstance(seen, WatchLost):
            raise seen
        yield seen


def _end_of_last(observations: Iterator[Observation], namespace: str, count: int) -> float:
    while count:
        seen = next(observations)
        count -= seen.gone and isinstance(seen.object, Pod) and seen.object.metadata.namespace == namespace
    return time.monotonic()


def _delete_when_due(
    client: Client, namespace: str, load: Load, begin: float, number: int, name: str
) -> tuple[int, float]:
    """How often the request was refused before it was accepted, and the seconds until then."""
    due = begin + number / load.rate if load.rate else time.monotonic()
    time.sleep(max(0.0, due - time.monotonic()))
    refused = _delete(client, namespace, name)
    return refused, time.monotonic() - due


def _delete(client: Client, namespace: str, name: str) -> int:
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
