"""The life of one installation with all four features, from ``helm install`` to the last thing that is left of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress

import pytest

from api.anycast_ip import ADDRESS_ID, TAINT, is_tainted
from api.ingress_daemonset import PAUSED_UNTIL
from controllers.anycast_ip.claim import INSTANCE_LABEL
from dev.lab import install
from dev.lab.binaries.found import fits
from dev.lab.binaries.table import programs as versions
from dev.lab.bootstrap import running
from dev.lab.errors import LabError
from dev.lab.install import NAMESPACE, RELEASE
from dev.lab.session import Lab
from dev.lab.waiting import at_most, stretch
from kube.resources import NAMESPACES, PODS
from tests.chaos import programs
from tests.cluster import leftovers, lifecycle, workloads
from tests.cluster.elasticity import await_account, keeping, template
from tests.cluster.ingress_daemonset import INGRESS_DAEMONSETS
from tests.cluster.ingress_daemonset_edge import confirming
from tests.cluster.lifecycle import VALUES, World
from tests.cluster.load import RATE, loaded

pytestmark = pytest.mark.nightly

WHERE = ("--namespace", NAMESPACE)
WAITING = ("--wait", "--timeout", install.HELM_TIMEOUT)
CHANGES = {"podAnnotations": {"life": "second"}, "logging": {"level": "debug"}}
AFTER_ALL = {
    "IPReservations",
    "labels ip-reserve",
    "super nodes",
    "the Lease",
    "the cluster's uuid",
    "the definition of the kind",
    "the namespace",
}
WITHOUT_WEBHOOKS = (
    "delete",
    "validatingwebhookconfiguration,mutatingwebhookconfiguration",
    f"--selector=app.kubernetes.io/instance={RELEASE}",
)
MANAGED = "app.kubernetes.io/managed-by=drawbridge"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running(values=VALUES, nodes=2, kwok_nodes=2, cloud={}) as up:
        yield up


@pytest.fixture(scope="module")
def asked(lab: Lab) -> str:
    """The namespace in which the load asks."""
    name = workloads.reserved_namespace(lab.client, "asked")
    await_account(lab, name)
    return name


@pytest.mark.promise
def test_the_cluster_and_helm_are_of_the_versions_that_are_to_be_tested(lab: Lab) -> None:
    server = json.loads(lab.kubectl("version", "--output=json").stdout)["serverVersion"]["gitVersion"]

    assert fits(server, versions()["kube-apiserver"].version)
    assert fits(lab.helm("version", "--short").stdout, versions()["helm"].version)


@pytest.mark.promise
def test_all_four_features_work_in_one_installation(lab: Lab) -> None:
    other = lab.kubectl("get", "pods", "--as", "system:serviceaccount:default:default", check=False)
    assert "(Forbidden)" in other.stderr
    assert "Phase:          Succeeded" in lab.helm("test", RELEASE, *WHERE).stdout

    lifecycle.play_all(lab)


@pytest.mark.promise
def test_an_upgrade_and_a_rollback_replace_all_processes_and_cost_no_admission(lab: Lab, asked: str) -> None:
    with loaded(lab, asked) as load:
        replaced(lab, lambda: install.upgrade(lab, CHANGES))
        first, rate = load.answered, load.rate
        replaced(lab, lambda: lab.helm("rollback", RELEASE, *WHERE, *WAITING))
        second = load.answered - first

    assert (load.refused, load.unreviewed) == ([], [])
    # A busy machine takes longer over fewer requests; one that has nothing else to do answers all that are made.
    assert min(first, second) > 200
    assert rate * stretch() > RATE / 6


def replaced(lab: Lab, change: Callable[[], object]) -> None:
    """By what *change* does, each of Drawbridge's pods is another one in the end."""
    before = programs.all_pods(lab)
    change()
    lab.wait(lambda: not before & programs.all_pods(lab), 90, "all pods of before to be gone")


@pytest.fixture(scope="module")
def world(lab: Lab) -> World:
    return lifecycle.populated(lab)


@pytest.mark.promise
def test_an_uninstallation_refuses_no_request_at_any_moment(lab: Lab, asked: str, world: World) -> None:
    with loaded(lab, asked) as load:
        lab.wait(lambda: load.answered > 100, 60, "admissions to be reviewed")
        assert load.unreviewed == []
        uninstall(lab)
        lab.wait(lambda: not programs.all_pods(lab), 90, "all pods to end")
        before = load.answered
        lab.wait(lambda: load.answered > before + 100, 60, "admissions without a review")

    assert load.refused == []


def uninstall(lab: Lab) -> None:
    """As docs/how-to/uninstall.md says; Helm 4 needs its first line no more."""
    if lab.helm("version", "--short").stdout.startswith("v3."):
        lab.kubectl(*WITHOUT_WEBHOOKS)
    lab.helm("uninstall", RELEASE, *WHERE)


@pytest.mark.usefixtures("world")
def test_what_is_left_is_documented_and_blocks_nothing(lab: Lab) -> None:
    assert leftovers.blockers(lab.client) == []
    assert_left_soon(lab, leftovers.STAYS)


def test_what_was_held_can_be_removed_without_drawbridge(lab: Lab, world: World) -> None:
    lab.client.delete(PODS, "redis", world.redis)
    lab.client.delete(NAMESPACES, world.redis)
    # Helm has opened the gates of both before.
    world.shop.await_home("waiting", "given-up")
    world.shop.client.delete(PODS, "given-up", world.shop.namespace)
    world.shop.run("late", template(keeping(0)))
    world.shop.await_home("late")
    lab.kubectl("taint", "node", world.fleet.name_of("given-up"), f"{TAINT.key}-")
    assert not is_tainted(world.fleet.join("late"))
    world.edge.change("still", podsPerNode=3)
    world.edge.client.delete(INGRESS_DAEMONSETS, "still", world.edge.namespace)

    world.edge.wait(lambda: world.edge.is_gone("still"), "an IngressDaemonSet to be gone")
    lab.wait(lambda: not lab.client.find(NAMESPACES, world.redis), 60, "a namespace to be gone")


def test_another_installation_goes_on_where_the_first_one_ended(lab: Lab, world: World) -> None:
    fleet, shop, edge = world.fleet, world.shop, world.edge
    address = fleet.node("open").metadata.annotations[ADDRESS_ID]
    install.install_chart(lab, VALUES)

    fleet.patch("waiting", metadata={"labels": {INSTANCE_LABEL: fleet.instance_of("waiting")}})
    fleet.await_open("waiting", "late")
    assert fleet.node("open").metadata.annotations[ADDRESS_ID] == address
    shop.run("later", template(keeping(0)))
    shop.await_event("later", "SuperNodeCapReached")
    shop.scale("web", 2)
    shop.await_away("later")
    resumed = {"metadata": {"annotations": {PAUSED_UNTIL: None}}}
    lab.client.patch(INGRESS_DAEMONSETS, "web", resumed, edge.namespace)
    with confirming(edge):
        edge.settle("a", "b", image="proxy:2")
    lifecycle.an_address_is_reserved_before_its_pod_goes(lab)


def test_after_all_was_taken_down_in_order_nothing_is_left_but_what_is_deleted_by_hand(
    lab: Lab, world: World
) -> None:
    lab.kubectl("delete", "ingressdaemonsets", "-A", "--all", "--wait", at_most(90))
    world.fleet.leave_all()
    world.fleet.assert_nothing_is_left_behind()
    names = [each["metadata"]["name"] for each in lab.client.list(NAMESPACES).items]
    mine = [name for name in names if name.startswith(("shop-", "edge-"))]
    lab.kubectl("delete", "namespace", *mine, at_most(90))
    lab.kubectl(*WITHOUT_WEBHOOKS)
    lab.helm("uninstall", RELEASE, *WHERE)
    lab.wait(lambda: not programs.all_pods(lab), 90, "all pods to end")

    assert leftovers.blockers(lab.client) == []
    assert_left_soon(lab, AFTER_ALL)
    for kind in ("ipreservations", "nodes"):
        lab.kubectl("delete", kind, "-l", MANAGED)
    lab.kubectl("delete", "crd", leftovers.DEFINITION, at_most(90))
    lab.kubectl("delete", "configmap", "aia-official-cluster-uuid", "-n", "kube-system")
    lab.kubectl("delete", "namespace", NAMESPACE, at_most(90))
    assert_left_soon(lab, {"labels ip-reserve"})


def assert_left_soon(lab: Lab, expected: Collection[str]) -> None:
    """This and nothing else; what Kubernetes collects itself goes a moment later."""
    with suppress(LabError):
        lab.wait(lambda: leftovers.stays(lab.client).keys() == set(expected), 60, "the rest to be collected")
    found = leftovers.stays(lab.client)
    assert found.get("") is None
    assert found.keys() == set(expected)
