"""The page of `kubectl drawbridge dashboard`, in a real Chromium, of a real cluster while things happen there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dev.lab import binaries
from dev.lab.bootstrap import running
from dev.lab.health_checkers import kubeconfig_of
from dev.lab.install import merged
from dev.lab.session import Lab
from dev.lab.waiting import stretch, until
from kube.client import Resource
from kube.resources import PODS
from tests.browser.test_dashboard import PATHS, focused, walk
from tests.cluster import anycast, elasticity, ingress_daemonset, workloads
from tests.cluster.anycast import Fleet
from tests.cluster.elasticity import Shop, keeping, template
from tests.cluster.ingress_daemonset import awaiting, by_node, detaching
from tests.cluster.ingress_daemonset_edge import Edge, confirming
from tests.pages import ROOT
from tests.sockets import PEER_GONE

pytestmark = [pytest.mark.browser, PEER_GONE]

VALUES = merged(
    merged(elasticity.VALUES, ingress_daemonset.VALUES),
    {"ipReservation": {"enabled": True}, "config": workloads.CONFIG},
)
NODES = ("a", "b", "c")
SECONDS = 120
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings")
VIEWER = "system:serviceaccount:default:viewer"


@dataclass(frozen=True)
class Cluster:
    """With objects of all features, and for each a thing that can happen."""

    lab: Lab
    fleet: Fleet
    edge: Edge
    shop: Shop
    redis: str


@dataclass
class Visit:
    """A browser that opened the printed address: its tab, and what must stay empty."""

    base: str
    tab: Any
    errors: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def open(self, path: str) -> Any:
        """A mark in the page is lost when it is loaded again."""
        self.tab.goto(f"{self.base}{path}")
        self.tab.wait_for_selector("#connection.good")
        self.tab.evaluate("document.body.dataset.same = 'yes'")
        return self.tab

    def shows(self, text: str) -> None:
        """It comes without the page being loaded again."""
        self.tab.locator("main").filter(has_text=re.compile(text)).wait_for()
        assert self.tab.evaluate("document.body.dataset.same") == "yes"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with (
        running(values=VALUES, nodes=2, kwok_nodes=2, cloud={}) as lab,
        anycast.joined(lab) as fleet,
    ):
        fleet.join("n1")
        edge = Edge(lab, *NODES)
        edge.create(rolling=detaching(1, **by_node(0), **awaiting(0)))
        shop = Shop(lab)
        shop.deploy("web", 4, template(keeping(2)))
        redis = workloads.reserved_namespace(lab.client, "redis")
        workloads.running_statefulset(lab, redis, 2)
        edge.settle(*NODES)
        shop.settle("web", 4)
        fleet.await_open("n1")
        yield Cluster(lab, fleet, edge, shop, redis)


@contextmanager
def dashboard(kubeconfig: Path, directory: Path) -> Iterator[str]:
    """The printed address of the command, which kubectl runs as its plugin."""
    plugin = directory / "kubectl-drawbridge"
    plugin.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m cli "$@"\n')
    plugin.chmod(0o755)
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "PATH": f"{directory}:{os.environ['PATH']}"}
    command = [str(binaries.ensure("kubectl")["kubectl"]), "drawbridge", "dashboard", "--no-browser"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().strip()
            assert process.poll() is None, "it ended by itself"
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(SECONDS * stretch())


@contextmanager
def visiting(chromium: Any, url: str) -> Iterator[Visit]:
    with chromium.new_context(viewport={"width": 1280, "height": 800}) as context:
        context.set_default_timeout(SECONDS * 1000 * stretch())
        visit = Visit(url.partition("/?")[0], context.new_page())
        visit.tab.on("console", lambda line: visit.errors.append(line.text) if line.type == "error" else None)
        visit.tab.on("pageerror", lambda error: visit.errors.append(str(error)))
        visit.tab.on("request", lambda request: visit.asked.append(request.url))
        visit.tab.goto(url)
        visit.tab.wait_for_url(f"{visit.base}/")
        yield visit
    assert visit.errors == []
    assert [each for each in visit.asked if not each.startswith(f"{visit.base}/")] == []


@pytest.fixture(scope="module")
def address(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of the administrator's dashboard."""
    with dashboard(cluster.lab.kubeconfig, tmp_path_factory.mktemp("plugin")) as url:
        yield url


@pytest.fixture
def visit(chromium: Any, address: str) -> Iterator[Visit]:
    with visiting(chromium, address) as found:
        yield found


@pytest.mark.parametrize("path", PATHS)
def test_each_page_shows_what_is_in_the_cluster(visit: Visit, cluster: Cluster, path: str) -> None:
    tab = visit.open(path)
    expected = {
        "/": "controllers",
        "/reservations": "at most 1000",
        "/addresses": cluster.fleet.name_of("n1"),
        "/elasticity": "Deployment/web|ReplicaSet/web",
        "/rollouts": f"{cluster.edge.namespace}/web",
    }

    assert tab.locator("h1").inner_text() == PATHS[path]
    assert "cannot be shown" not in tab.content()
    visit.shows(expected[path])


def test_an_ip_is_seen_as_it_is_reserved_and_leads_to_its_explanation(visit: Visit, cluster: Cluster) -> None:
    lab, [pod, *_] = cluster.lab, workloads.pods_of(cluster.lab, cluster.redis)
    [address] = pod.status.addresses
    tab = visit.open("/reservations")
    assert address not in tab.content()

    lab.client.delete(PODS, pod.metadata.name, cluster.redis)
    visit.shows(re.escape(address))
    walk(tab, address)
    tab.keyboard.press("Enter")
    tab.wait_for_url(f"**/explain/ip/{address}")
    tab.locator("main").filter(has_text=f"{cluster.redis}/{pod.metadata.name}").wait_for()


def test_a_node_is_seen_as_it_joins_and_opens(visit: Visit, cluster: Cluster) -> None:
    visit.open("/addresses")
    name = cluster.fleet.join("n2").metadata.name
    visit.shows(re.escape(name))

    row = visit.tab.locator("#state-open tr").filter(has_text=name)
    row.filter(has_text=re.compile(r"\d+\.\d+\.\d+\.\d+")).wait_for()
    visit.shows("2 open")
    visit.shows("Nodes opened in")
    visit.shows("TOTAL_EIP_QUOTA")


def test_replicas_are_seen_where_they_are_placed(visit: Visit, cluster: Cluster) -> None:
    visit.open("/elasticity")
    visit.shows("2 placed pods on local nodes, 2 on super nodes")

    cluster.shop.scale("web", 6)
    visit.shows("2 placed pods on local nodes, 4 on super nodes")


def test_a_rollout_is_followed_paused_and_aborted_by_keyboard(visit: Visit, cluster: Cluster) -> None:
    edge, tab = cluster.edge, visit.open("/rollouts")
    visit.shows("3 of 3 nodes updated")
    edge.retemplate("proxy:2")
    tab.wait_for_selector(".grid .detaching")
    [first] = edge.wait(edge.detached, "a node to be detached")
    edge.confirm(first)
    visit.shows("1 of 3 nodes updated")

    press(tab, "Pause…", f"Pause {edge.namespace}/web")
    tab.wait_for_selector("text=Resume…")
    assert edge.resource()["spec"]["paused"] is True
    press(tab, "Resume…", f"Resume {edge.namespace}/web")
    tab.wait_for_selector("text=Abort…")
    tab.evaluate("document.body.dataset.same = 'yes'")

    press(tab, "Abort…", f"Abort {edge.namespace}/web")
    tab.wait_for_selector("#connection.good")
    with confirming(edge):
        tab.locator("main").filter(has_text="3 of 3 nodes updated").wait_for()
        edge.settle(*NODES)


def press(tab: Any, summary: str, button: str) -> None:
    walk(tab, summary)
    tab.keyboard.press("Enter")
    tab.keyboard.press("Tab")
    assert focused(tab) == button
    tab.keyboard.press("Enter")


def test_a_user_who_may_not_change_rollouts_has_no_button_and_a_revoked_permission_is_named(
    chromium: Any, cluster: Cluster, tmp_path: Path
) -> None:
    edge = cluster.edge
    kubeconfig = viewer(cluster.lab)
    cluster.lab.kubectl(
        *("create", "role", "pauser", "-n", edge.namespace),
        *("--verb=patch", "--resource=ingressdaemonsets.ingressdaemonsets.mumoshu.github.io"),
    )
    bind(cluster.lab, "rolebinding", "pauser", "--role=pauser", "-n", edge.namespace)
    with dashboard(kubeconfig, tmp_path) as url, visiting(chromium, url) as visit:
        tab = visit.open("/rollouts")
        cluster.lab.client.delete(ROLE_BINDINGS, "pauser", edge.namespace)
        until(lambda: not may_patch(cluster), SECONDS, "the permission to be revoked")
        press(tab, "Pause…", f"Pause {edge.namespace}/web")
        tab.locator("h1").filter(has_text="Not changed").wait_for()
        assert "patch" in tab.locator(".problem").inner_text()
        visit.errors.clear()  # the browser reports the status of the answer
    with dashboard(kubeconfig, tmp_path) as url, visiting(chromium, url) as visit:
        tab = visit.open("/rollouts")
        visit.shows("You may not pause or abort it")
        assert tab.locator("form").count() == 0
    assert not edge.resource()["spec"].get("paused")


def viewer(lab: Lab) -> Path:
    """The kubeconfig of a ServiceAccount that may read everything."""
    lab.kubectl("create", "serviceaccount", "viewer", "-n", "default")
    lab.kubectl("create", "clusterrole", "viewer", "--verb=get,list", "--resource=*.*")
    bind(lab, "clusterrolebinding", "viewer", "--clusterrole=viewer")
    return kubeconfig_of(lab, "default", "viewer")


def bind(lab: Lab, *binding: str) -> None:
    lab.kubectl("create", *binding, "--serviceaccount=default:viewer")


def may_patch(cluster: Cluster) -> bool:
    what = ("patch", "ingressdaemonsets", "-n", cluster.edge.namespace, f"--as={VIEWER}")
    return cluster.lab.kubectl("auth", "can-i", *what, check=False).stdout.strip() == "yes"
