"""Fill a lab with the objects of a large cluster; all that would act on them stands still."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TypeVar

import msgspec

from calico.ledger import Ledger
from calico.reservations import Reservations
from dev.bench.cli import objects
from dev.bench.cli.objects import Size
from dev.bench.deployments import CONTROLLERS, await_scaled, scale
from dev.bench.replicas.objects import Object
from dev.lab.faults import frozen
from dev.lab.install import NAMESPACE
from dev.lab.kubeconfig import client_of
from dev.lab.session import Lab
from kube.client import Client
from kube.resources import CONFIG_MAPS, NAMESPACES, NODES, PODS, Resource

ACCOUNTS, STATUS = Resource("", "v1", "serviceaccounts"), PODS.sub("status")
ACTING = ("kube-controller-manager", "kube-scheduler", "kwok-controller")
"""They would delete pods without owners, and nodes' pods without kubelets."""
CREATORS = 16
T = TypeVar("T")
PATIENCE = 120.0
STEP = 5_000


@contextmanager
def filled(lab: Lab, size: Size, progress: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, all is there, and nothing changes but for what is written."""
    place = (NAMESPACE, CONTROLLERS)
    scale(lab.client, place, 0)
    await_scaled(lab, place, 0)
    with ExitStack() as standing:
        for each in ACTING:
            standing.enter_context(frozen(lab, each))
        _fill(lab, size, progress)
        yield


def _fill(lab: Lab, size: Size, progress: Callable[[str], None]) -> None:
    # Each creator keeps its connection.
    client = client_of(lab.kubeconfig, pool_size=CREATORS, timeout=PATIENCE)
    with closing(client), ThreadPoolExecutor(CREATORS) as pool:
        progress(f"creating {size.nodes:,} nodes")
        _each(pool, partial(_namespace, client), objects.namespaces(size))
        _each(pool, partial(_node, client), objects.nodes(size))
        _reserve(client, size)
        for begin in range(0, size.pods, STEP):
            end = min(begin + STEP, size.pods)
            progress(f"creating pods up to number {end:,}")
            _each(pool, partial(_pod, client, size), range(begin, end))


def _each(pool: ThreadPoolExecutor, create: Callable[[T], None], wanted: Iterable[T]) -> None:
    for _ in pool.map(create, wanted):
        pass


def _namespace(client: Client, namespace: Object) -> None:
    client.create(NAMESPACES, namespace, type=msgspec.Raw)
    client.create(ACCOUNTS, objects.account(), namespace["metadata"]["name"], type=msgspec.Raw)


def _node(client: Client, node: Object) -> None:
    made = client.create(NODES, node)
    if objects.is_super(node):
        return
    client.patch(NODES, made["metadata"]["name"], objects.opened(made), type=msgspec.Raw)
    client.create(CONFIG_MAPS, objects.claim(made), NAMESPACE, type=msgspec.Raw)


def _pod(client: Client, size: Size, number: int) -> None:
    pod = objects.pod(number, size)
    metadata = pod["metadata"]
    client.create(PODS, pod, metadata["namespace"], type=msgspec.Raw)
    if not objects.waits(number):
        change = objects.started(number, size)
        client.patch(STATUS, metadata["name"], change, metadata["namespace"], type=msgspec.Raw)


def _reserve(client: Client, size: Size) -> None:
    ledger = Ledger(Reservations(client), "bench")
    ledger.reserve(objects.records(size), time.monotonic() + PATIENCE)
