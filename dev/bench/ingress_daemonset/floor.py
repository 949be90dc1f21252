"""What the API server and the Deployment controller take for the same, asked by a client that knows what it wants."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import msgspec

from dev.bench.ingress_daemonset.manifests import NEW, containers, plain
from dev.bench.ingress_daemonset.progress import Creation, Made, Observed, Rollout, follow, watching
from dev.lab.session import Lab
from kube.client import Client
from kube.resources import DEPLOYMENTS, PODS, Selection

CONCURRENCY = 16
PATIENCE = 1800.0

T = TypeVar("T")


def create(lab: Lab, namespace: str, wanted: dict[str, Any], nodes: Sequence[str]) -> Made:
    """The Deployments that *wanted*, an IngressDaemonSet, would have on *nodes*."""
    bodies = [plain(wanted, node) for node in nodes]
    course = Creation(len(bodies))
    with watching(lab.client, namespace) as observed:
        begin = time.monotonic()
        at_once(partial(_create, lab.client, namespace), bodies)
        follow(observed, course, "plain Deployments become available", begin + PATIENCE)
    return course.since(begin)


def roll_out(lab: Lab, namespace: str, names: Sequence[str], size: int) -> float:
    """Seconds to change all Deployments *names* in waves of *size*, each awaited before the next one."""
    with watching(lab.client, namespace) as observed:
        begin = time.monotonic()
        for first in range(0, len(names), size):
            _wave(lab.client, observed, namespace, names[first : first + size])
        return time.monotonic() - begin


def clear(lab: Lab, namespace: str) -> None:
    """Back when no Deployment of *namespace* is left, nor any of their pods."""
    listed = lab.client.list(DEPLOYMENTS, namespace).items
    names = [each["metadata"]["name"] for each in listed]
    at_once(partial(lab.client.delete, DEPLOYMENTS, namespace=namespace), names)
    lab.wait(lambda: not _has_pods(lab.client, namespace), PATIENCE, f"the pods of {namespace} to go")


def at_once(work: Callable[[T], object], each_of: Iterable[T]) -> None:
    """So many of them at a time as the controllers write at a time."""
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        list(pool.map(work, each_of))


def _create(client: Client, namespace: str, body: dict[str, Any]) -> None:
    client.create(DEPLOYMENTS, body, namespace, type=msgspec.Raw)


def _wave(client: Client, observed: Observed, namespace: str, names: Sequence[str]) -> None:
    change = {"spec": {"template": {"spec": {"containers": containers(NEW)}}}}
    at_once(lambda name: client.patch(DEPLOYMENTS, name, change, namespace, type=msgspec.Raw), names)
    follow(observed, Rollout(NEW, names), "plain Deployments are rolled out", time.monotonic() + PATIENCE)


def _has_pods(client: Client, namespace: str) -> bool:
    time.sleep(0.5)  # between two looks: reading thousands of pods is work, too
    return bool(next(client.list_pages(PODS, Selection(namespace), type=msgspec.Raw, page_size=1)).items)
