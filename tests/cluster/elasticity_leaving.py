"""Pods with LOCAL_REPLICAS are created all the time, while the feature or the release goes."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from api.elasticity import PLACEMENT
from dev.lab import admission, install
from dev.lab.install import CHART, NAMESPACE, RELEASE
from dev.lab.session import Lab
from kube.errors import KubeError
from kube.resources import NAMESPACES, PODS, STATEFUL_SETS
from tests.cluster import elasticity
from tests.cluster.elasticity import SECONDS, Shop, is_gated, keeping, template
from tests.cluster.workloads import workload

VALUES: dict[str, Any] = {
    **elasticity.VALUES,
    "elasticity": {"enabled": False, "advanced": {"openGates": "controllers", "timeout": "2s"}},
    "cloud": {"subnets": []},
}
ON = {"elasticity": {"enabled": True, "advanced": {"openGates": "auto"}}}
OFF = {"elasticity": {"enabled": False, "advanced": {"openGates": "auto"}}}
WHERE = ("--namespace", NAMESPACE)
CREATORS, PAUSE = 3, 0.1


class Flow:
    """Bare pods that are created one after the other by several, and a StatefulSet that is not there to be hurried."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.created = 0
        self._stop = threading.Event()
        self._numbers = itertools.count()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(CREATORS)]

    def __enter__(self) -> Flow:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.shop.run(f"pod-{next(self._numbers)}", template(keeping(1)))
                self.created += 1
            except KubeError:
                pass  # a busy API server: the next one may come
            self._stop.wait(PAUSE)


@contextmanager
def flowing(lab: Lab) -> Iterator[Flow]:
    """Over the length of a block, and some pods before and after it; the pods are gone in the end."""
    shop = Shop(lab)
    body = workload("StatefulSet", "db", template(keeping(1)), replicas=2, serviceName="db")
    shop.create(STATEFUL_SETS, body)
    with Flow(shop) as flow:
        await_more(lab, flow)
        yield flow
        await_more(lab, flow)
    lab.client.delete(NAMESPACES, shop.namespace)


def await_more(lab: Lab, flow: Flow) -> None:
    before = flow.created
    lab.wait(lambda: flow.created > before + 10, SECONDS, "more pods to be created")


def switch(lab: Lab, values: dict[str, Any]) -> None:
    """By Helm, which waits for nothing but its hooks: so that as much as possible goes on at once."""
    before = yaml.safe_load((lab.directory / "values.yaml").read_text())
    command = ("upgrade", RELEASE, str(CHART), *WHERE, "--timeout", install.HELM_TIMEOUT, "--values", "-")
    lab.helm(*command, "--install", stdin=yaml.safe_dump(install.merged(before, values)))


def await_on(lab: Lab) -> None:
    """Until pods are gated, and placed: at first a leader that still takes the feature for off may open a gate."""
    admission.await_placement(lab.client)
    shop, numbers = Shop(lab), itertools.count()

    def placed() -> bool:
        name = f"probe-{next(numbers)}"
        shop.run(name, template(keeping(1)))
        shop.wait(lambda: name not in shop.gated(), f"the gate of {name} to be opened")
        return PLACEMENT in shop.pod(name).metadata.annotations

    lab.wait(placed, SECONDS, "a pod to be placed")
    lab.client.delete(NAMESPACES, shop.namespace)


def gated(lab: Lab) -> list[str]:
    found = lab.client.list(PODS).items
    return [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in found if is_gated(pod)]


def assert_none_is_gated(lab: Lab) -> None:
    """Now, and in a while."""
    assert gated(lab) == []
    time.sleep(3.0)  # nothing may come: there is nothing to wait for
    assert gated(lab) == []


def switched_off(lab: Lab) -> None:
    """On, and off again while pods are created."""
    switch(lab, ON)
    await_on(lab)
    with flowing(lab):
        switch(lab, OFF)
        assert_none_is_gated(lab)


def uninstalled(lab: Lab) -> None:
    """On, and gone while pods are created."""
    switch(lab, ON)
    await_on(lab)
    with flowing(lab):
        lab.helm("uninstall", RELEASE, *WHERE)
        assert_none_is_gated(lab)
