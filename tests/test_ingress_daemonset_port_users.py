"""Whose health ports an IngressDaemonSet would get in the way of, as far as a deadline lets it be known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from api.ingress_daemonset.types import IngressDaemonSet, resource
from dev.fake_api import FakeAPI
from dev.lab.install import merged
from kube.errors import Forbidden, Unreachable
from tests.fakes import FakeClock
from tests.ingress_daemonset import raw
from tests.ingress_daemonset_world import raw_node
from tests.misbehaving_server import Answer, Asked, Server, answers, refuses, serving
from webhook.ingress_daemonset.cluster_lookup import ClusterLookup
from webhook.ingress_daemonset.validate import PortUser

RESOURCES, NODES = "/apis/ingressdaemonsets.mumoshu.github.io/v1alpha1/ingressdaemonsets", "/api/v1/nodes"
SECONDS = 30.0
"""To a deadline that nothing here comes near."""


class World:
    """Nodes n1 and n2, and a reader whose clock moves only when advanced."""

    def __init__(self, api: FakeAPI, server: Server) -> None:
        self.api, self.server, self.clock = api, server, FakeClock()
        self.cluster = ClusterLookup(server.client(timeout=10 * SECONDS), self.clock)
        for name in ("n1", "n2"):
            api.put(NODES, raw_node(name, labels={"edge": name}))

    def put(self, name: str, *ports: int, node: str = "n1", **metadata: Any) -> None:
        self.api.put(RESOURCES, written(name, *ports, node=node, **metadata))

    def port_users(self, new: IngressDaemonSet, left: float = SECONDS) -> list[PortUser]:
        return self.cluster.port_users(new, deadline=self.clock() + left)

    @property
    def asked(self) -> list[str]:
        return [asked.path for asked in self.server.asked]


@contextmanager
def reading() -> Iterator[World]:
    api = FakeAPI()
    with serving(api) as server:
        yield World(api, server)


def written(name: str, *ports: int, node: str = "n1", **metadata: Any) -> dict[str, Any]:
    """One that runs on *node*, as it is stored."""
    spec = {"healthCheckNodePorts": [*ports], "nodeSelector": {"edge": node}}
    return raw(spec, name=name, **metadata)


def new(*ports: int) -> IngressDaemonSet:
    return resource(written("web", *ports))


def in_pages(*items: dict[str, Any]) -> Callable[[Asked], Answer]:
    """One on each page; a token is the number of the page."""

    def answer(asked: Asked) -> Answer:
        page = int(asked.query.get("continue", "0"))
        token = str(page + 1) if page + 1 < len(items) else ""
        return answers({"metadata": {"continue": token}, "items": [items[page]]})

    return answer


def test_users_of_a_port_are_found_with_the_node_that_both_run_on() -> None:
    with reading() as world:
        world.put("here", 10080, 10081)
        world.put("there", 10080, node="n2")
        world.put("apart", 10099)
        world.put("elsewhere", 10080, namespace="other")
        world.put("web", 10080)  # itself
        world.put("going", 10080, deletionTimestamp="2026-01-01T00:00:00Z")
        odd = {"spec": {"template": {"spec": {"tolerations": "all"}}}}
        world.api.put(RESOURCES, merged(written("unreadable", 10080), odd))

        assert world.port_users(new(10080)) == [
            PortUser("edge/here", (10080, 10081), "n1"),
            PortUser("edge/there", (10080,), ""),
            PortUser("other/elsewhere", (10080,), "n1"),
        ]


def test_nodes_are_read_only_when_a_port_is_shared() -> None:
    with reading() as world:
        world.put("apart", 10099)
        world.put("silent")

        assert world.port_users(new(10080)) == []
        assert world.asked == [RESOURCES]


@pytest.mark.parametrize(
    ("key", "shared"),
    [
        ("node.kubernetes.io/not-ready", "n1"),
        ("tke.cloud.tencent.com/no-aia-ip", "n1"),
        ("node.cloudprovider.kubernetes.io/uninitialized", "n1"),
        ("a", ""),
    ],
)
def test_a_node_that_repels_newcomers_is_shared_if_it_is_only_not_ready_yet(key: str, shared: str) -> None:
    taints = [{"key": key, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    with reading() as world:
        world.put("here", 10080)
        world.api.put(NODES, raw_node("n1", labels={"edge": "n1"}, taints=taints))

        assert world.port_users(new(10080)) == [PortUser("edge/here", (10080,), shared)]


def test_all_pages_are_read_until_each_neighbour_has_a_node() -> None:
    here, there = written("here", 10080), written("there", 10080, node="n2")
    nodes = [raw_node(name, labels={"edge": name}) for name in ("n0", "n1", "n2")]
    with reading() as world:
        listed, of_nodes = in_pages(here, there), in_pages(*nodes)
        world.api.fault = lambda asked: (of_nodes if asked.path == NODES else listed)(asked)

        found = world.port_users(new(10080))

    assert [(each.key, each.node) for each in found] == [("edge/here", "n1"), ("edge/there", "")]
    assert world.asked == [RESOURCES] * 2 + [NODES] * 3


def test_a_forbidden_read_is_an_error() -> None:
    with reading() as world:
        world.put("here", 10080)
        world.api.fault = lambda asked: refuses(403, "Forbidden") if asked.path == NODES else None

        with pytest.raises(Forbidden):
            world.port_users(new(10080))


def test_each_page_has_only_the_time_that_those_before_it_left() -> None:
    with reading() as world:

        def slow(asked: Asked) -> Answer:
            world.clock.advance(2)
            return in_pages(*[written("here", 10080)] * 9)(asked)

        world.api.fault = slow

        with pytest.raises(Unreachable, match="the API server was not fast enough"):
            world.port_users(new(10080), left=5)

        assert world.asked == [RESOURCES] * 3
