"""A cluster is off, with all features on and failing closed, and starts: nothing waits for what waits for it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from api.anycast_ip import TAINT, is_tainted
from certs import issue
from certs.rotation import Held, certificates_in
from controllers.certificates.controller import SECRETS, Store
from dev.lab.bootstrap import running
from dev.lab.install import RELEASE, merged
from dev.lab.nodes import NODES
from dev.lab.session import Lab
from kube.errors import ServerError
from kube.resources import PODS
from kube.types import Node
from settings.anycast_ip import NEED_LABEL
from tests.chaos import cold, programs
from tests.chaos.cold import Machines
from tests.cluster import lifecycle, workloads
from tests.cluster.anycast import Fleet
from tests.cluster.certificates import NAME
from tests.cluster.elasticity import Shop, keeping, template
from tests.cluster.ingress_daemonset import awaiting, by_node, detaching
from tests.cluster.ingress_daemonset_edge import Edge, confirming
from tests.cluster.lifecycle import World

SECRET = "drawbridge-webhook-tls"
TOLERATIONS = [{"key": key, "operator": "Exists"} for key in ("drawbridge.io/lab", TAINT.key)]
# So long is a new authority known before it signs, when a server may still have an old one.
VALUES = merged(lifecycle.VALUES, {"tolerations": TOLERATIONS, "certs": {"selfManaged": {"overlap": "5s"}}})
UNANSWERED = "failed calling webhook"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Each of its nodes needs an anycast IP, also those of Drawbridge, which get none."""
    with running(values=VALUES, nodes=2, kwok_nodes=0, cloud={}) as up:
        up.kubectl("label", "node", "-l", "drawbridge.io/lab", f"{NEED_LABEL}=true")
        up.wait(lambda: all(is_tainted(each) for each in own_nodes(up)), 60, "all nodes to be tainted")
        yield up


@pytest.fixture(scope="module")
def machines(lab: Lab) -> Iterator[Machines]:
    with cold.machines(lab) as found:
        yield found


@pytest.fixture(scope="module")
def world(lab: Lab) -> World:
    """All is well: a node is open, and pods and a rollout's nodes are where they should be."""
    fleet, shop = Fleet(lab), Shop(lab)
    fleet.join("a")
    fleet.await_open("a")
    edge = Edge(lab, "a", "b")
    edge.create(rolling=detaching(1, **by_node(0), **awaiting(0)))
    edge.settle("a", "b")
    redis = workloads.reserved_namespace(lab.client, "redis")
    for name in ("first", "second"):
        workloads.running_pod(lab, redis, name)
    return World(fleet, shop, edge, redis)


def test_all_that_waited_goes_on_though_the_certificates_have_expired(
    lab: Lab, machines: Machines, world: World
) -> None:
    fleet, shop, edge = world.fleet, world.shop, world.edge
    for pod in programs.pods(lab, "controllers"):
        programs.kill(lab, pod, signal.SIGSTOP)
    assert is_tainted(fleet.join("b"))
    shop.run("gated", template(keeping(0)))
    assert shop.gated() == {"gated"}
    edge.retemplate("proxy:2")

    machines.stop()
    forget_pods(lab)
    let_certificates_expire(lab)
    with pytest.raises(ServerError, match=UNANSWERED):
        lab.client.delete(PODS, "first", world.redis, timeout=60)
    with pytest.raises(ServerError, match=UNANSWERED):
        edge.change(podsPerNode=3)
    assert not is_tainted(fleet.join("c"))
    shop.run("late", template(keeping(0)))
    assert shop.gated() == {"gated"}
    cold.restart(lab)
    machines.start()

    await_at_work(lab)
    fleet.await_open("a", "b", "c")
    shop.await_away("gated")
    shop.await_home("late")
    with confirming(edge):
        edge.settle("a", "b", image="proxy:2")
    assert_reserved(lab, world.redis, "first")


def test_a_lost_secret_is_issued_again(lab: Lab, machines: Machines, world: World) -> None:
    machines.stop()
    forget_pods(lab)
    lab.client.delete(SECRETS, SECRET, programs.NAMESPACE)
    cold.restart(lab)
    machines.start()

    await_at_work(lab)
    assert_reserved(lab, world.redis, "second")


def own_nodes(lab: Lab) -> list[Node]:
    return lab.client.list(NODES, label_selector="drawbridge.io/lab", type=Node).items


def forget_pods(lab: Lab) -> None:
    """None of Drawbridge's is bound to a node any more: those that take their places find one by themselves."""
    before = programs.all_pods(lab)
    for name in before:
        lab.client.delete(PODS, name, programs.NAMESPACE, grace_seconds=0)
    lab.wait(lambda: len(programs.all_pods(lab) - before) == len(before), 60, "others to take their places")


def let_certificates_expire(lab: Lab) -> None:
    """As after a long time without a renewal."""
    now = datetime.now(UTC)
    begin, end = now - timedelta(days=90), now - timedelta(hours=1)
    ca = issue.new_ca("drawbridge", begin, end)
    expired = Held(tuple(certificates_in(ca.certificate)), ca.key, issue.new_leaf(ca, [NAME], [], begin, end))
    store = Store(lab.client, programs.NAMESPACE, SECRET, RELEASE)
    store.write_secret(store.read(), expired)
    store.write_bundles(store.read(), ca.certificate)


def await_at_work(lab: Lab) -> None:
    for component in ("webhook", "controllers"):
        programs.await_ready(lab, component)


def assert_reserved(lab: Lab, namespace: str, name: str) -> None:
    """A pod goes as soon as it may, and its address is held."""
    pod = workloads.get_pod(lab, namespace, name)

    def goes() -> bool:
        with suppress(ServerError):
            lab.client.delete(PODS, name, namespace, timeout=60)
            return True
        return False

    lab.wait(goes, 90, f"a deletion of pod {namespace}/{name} to be answered")
    assert workloads.records(lab, "v3")[pod.metadata.uid].late is False
