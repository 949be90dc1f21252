"""Nodes that need an anycast IP, and what the cluster and the emulated cloud have of them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from api.anycast_ip import ADDRESS_ID, CONDITION, is_tainted
from controllers.anycast_ip.claim import FIELD, NODE_INSTANCE, NODE_NAME, SELECTED, instance_of
from dev.lab.errors import LabError
from dev.lab.nodes import NODES, cloud_node
from dev.lab.session import Lab
from kube.resources import CONFIG_MAPS, PODS
from kube.types import Node
from settings.anycast_ip import NEED_LABEL
from tests.cluster import workloads

T = TypeVar("T")
DRAWBRIDGE = "drawbridge"
FLEET = "tests/fleet"
SECONDS = 60
"""For what is awaited: most of it takes three."""
HOLDING = ("BINDING", "BIND", "UNBINDING")


class Fleet:
    """The nodes of one test. They go by short names here; their real ones, and their instances, have its token."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.client, self.cloud = lab, lab.client, lab.cloud
        self.token = secrets.token_hex(4)

    def name_of(self, name: str) -> str:
        return f"{name}-{self.token}"

    def instance_of(self, name: str) -> str:
        return f"ins-{self.token}{name}"

    def body(
        self,
        name: str,
        *,
        instance: str | None = None,
        need: bool = True,
        labels: Mapping[str, str] | None = None,
        **capacity: str,
    ) -> dict[str, Any]:
        """A node as its kubelet registers it; with *instance* "" it does not say where it runs."""
        instance = self.instance_of(name) if instance is None else instance
        needs = {NEED_LABEL: "true"} if need else {}
        node = cloud_node(self.name_of(name), instance, {FLEET: self.token, **needs, **(labels or {})})
        for resources in (node["status"]["capacity"], node["status"]["allocatable"]):
            resources |= capacity
        return node

    def join(self, name: str, **how: Any) -> Node:
        """As it is seen from the first moment on; *how* as for `body`."""
        return self.client.create(NODES, self.body(name, **how), type=Node)

    def leave(self, *names: str) -> None:
        for name in names:
            self.client.delete(NODES, self.name_of(name))

    def leave_all(self) -> None:
        """As when a node pool is scaled in: the instances end, too."""
        instances = [instance for node in self.nodes() if (instance := instance_of(node))]
        query = {"labelSelector": f"{FLEET}={self.token}"}
        self.client.request("DELETE", NODES.path(), query=query, type=bytes, timeout=SECONDS)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self.cloud.end_instance, instances))

    def node(self, name: str) -> Node:
        return self.client.get(NODES, self.name_of(name), type=Node)

    def conditions(self, name: str) -> list[dict[str, Any]]:
        return self.client.get(NODES, self.name_of(name))["status"].get("conditions", [])

    def condition(self, name: str) -> dict[str, Any]:
        """Ours, or an empty one."""
        return next((each for each in self.conditions(name) if each["type"] == CONDITION), {})

    def patch(self, name: str, **changes: Any) -> Node:
        return self.client.patch(NODES, self.name_of(name), changes, type=Node)

    def nodes(self) -> list[Node]:
        return self.client.list(NODES, label_selector=f"{FLEET}={self.token}", type=Node).items

    def await_open(self, *names: str) -> None:
        for name in names:
            self.wait(lambda: is_open(self.node(name)), f"node {self.name_of(name)} to open")  # noqa: B023

    def await_event(self, name: str, reason: str) -> str:
        """Its message, or several."""
        what = f"an Event {reason} on node {self.name_of(name)}"
        return self.wait(lambda: self.events(name).get(reason, ""), what)

    def events(self, name: str) -> dict[str, str]:
        """All messages by reason."""
        return workloads.messages(self.client, "default", kind="Node", name=self.name_of(name))

    def addresses(self) -> list[dict[str, Any]]:
        """Those that the cloud has for this test: on its instances, or with its tags."""
        return [each for each in self.cloud.state()["addresses"] if self.token in json.dumps(each)]

    def on(self, name: str) -> list[dict[str, Any]]:
        """The addresses that are on the instance of this name, or on their way there or away."""
        instance = self.instance_of(name)
        return [
            each
            for each in self.addresses()
            if (each["instance_id"], each["status"] in HOLDING) == (instance, True)
        ]

    def ordered_for(self, name: str) -> list[dict[str, Any]]:
        """The addresses with the tag of this instance."""
        instance = self.instance_of(name)
        return [each for each in self.addresses() if each["tags"].get(NODE_INSTANCE) == instance]

    def left_behind(self) -> list[str]:
        """What is left in cloud and cluster of this test's nodes that are gone."""
        living = {word for node in self.nodes() for word in (node.metadata.name, instance_of(node))}
        found = [each for each in left_behind(self.lab) if self.token in each]
        return [each for each in found if not any(f'"{word}"' in each for word in living)]

    def assert_nothing_is_left_behind(self) -> None:
        assert_empty_soon(self.lab, self.left_behind)

    def wait(self, condition: Callable[[], T | None], what: str) -> T:
        return self.lab.wait(condition, SECONDS, what)


@contextmanager
def joined(lab: Lab) -> Iterator[Fleet]:
    """No nodes yet. Those that are open in the end have one address each, and then all leave."""
    fleet = Fleet(lab)
    try:
        yield fleet
        assert misfits(fleet) == []
    finally:
        fleet.leave_all()


def is_open(node: Node) -> bool:
    return not is_tainted(node) and ADDRESS_ID in node.metadata.annotations


def left_behind(lab: Lab) -> list[str]:
    """Every address, tag value and claim that is there for some node."""
    state = lab.cloud.state()
    claims = lab.client.list(CONFIG_MAPS, DRAWBRIDGE, label_selector=SELECTED).items
    return [
        *(json.dumps(each) for each in state["addresses"] if NODE_NAME in each["tags"]),
        *(json.dumps(each) for each in state["tags"] if each["key"] in (NODE_NAME, NODE_INSTANCE)),
        *(each["data"][FIELD] for each in claims),
    ]


def assert_empty_soon(lab: Lab, find: Callable[[], list[str]]) -> None:
    with suppress(LabError):
        lab.wait(lambda: not find(), SECONDS, "nothing to be found any more")
    assert find() == []


def misfits(fleet: Fleet) -> list[str]:
    """Open nodes that have not one address, or for which there is another one."""
    opened, addresses = [node for node in fleet.nodes() if is_open(node)], fleet.addresses()
    found = []
    for node in opened:
        instance = instance_of(node)
        on = [each["id"] for each in addresses if (each["instance_id"], each["status"]) == (instance, "BIND")]
        ordered = [each["id"] for each in addresses if each["tags"].get(NODE_INSTANCE) == instance]
        if on != [node.metadata.annotations[ADDRESS_ID]] or not set(ordered) <= set(on):
            found.append(f"{node.metadata.name}: {on} are bound to it, {ordered} were ordered for it")
    return found


@contextmanager
def configured(lab: Lab, **anycast_ip: Any) -> Iterator[None]:
    """These values of anycastIP are in force in all processes, which run on, for the length of a block."""
    before = processes(lab)
    reconfigure(lab, **anycast_ip)
    try:
        yield
        assert processes(lab) == before
    finally:
        reconfigure(lab)


def reconfigure(lab: Lab, **anycast_ip: Any) -> None:
    workloads.reconfigure(lab, {"anycastIP": anycast_ip})


def processes(lab: Lab) -> set[tuple[str, int]]:
    """Each process: a restarted container is another one."""
    return {
        (pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"])
        for pod in lab.client.list(PODS, DRAWBRIDGE).items
    }
