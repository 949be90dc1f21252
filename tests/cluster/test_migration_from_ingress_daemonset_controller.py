"""Users of ingress-daemonset-controller leave it by its page: node by node, and nothing of it is left but the CRD."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.ingress_daemonset import API_VERSION, INGRESS_DAEMONSETS, KIND, NODE_LABEL
from controllers.ingress_daemonset.health_checks import FOR
from dev.lab import install
from dev.lab.bootstrap import running
from dev.lab.nodes import NODES, cloud_node
from dev.lab.session import Lab
from kube.resources import DAEMON_SETS, DEPLOYMENTS
from tests.cluster import ingress_daemonset
from tests.cluster.ingress_daemonset import DETACHED, TO_BE_UPDATED
from tests.cluster.migrations import DATA, Migration

pytestmark = pytest.mark.nightly

INGRESS, EDGE = "nginx", ("edge-1", "edge-2")
"""The names of the page."""
CRD = "ingressdaemonsets.ingressdaemonsets.mumoshu.github.io"
SERVED = "v1alpha1.ingressdaemonsets.mumoshu.github.io"
"""What the API server makes of the CRD."""
CHOSEN = {"ingress-controller-node": "true"}


@pytest.fixture
def migration(tmp_path: Path) -> Iterator[Migration]:
    """What the original has made for two nodes, of which it has detached one. Drawbridge is installed already."""
    with running(chart=False, calico=None, nodes=2, kwok_nodes=0) as up:
        up.kubectl("create", "namespace", "ingress")
        for name, detached in zip(EDGE, ({DETACHED: ""}, {}), strict=True):
            node = cloud_node(name, "", CHOSEN)
            node["metadata"]["annotations"] |= detached
            up.client.create(NODES, node)
        moving = Migration(up, "ingress-daemonset-controller", tmp_path)
        up.kubectl("apply", "-f", str(DATA / "ingress-daemonset-controller" / "manifests.yaml"))
        up.wait(lambda: up.client.serves(INGRESS_DAEMONSETS), 60, "IngressDaemonSets to be served")
        _play_the_original(up)
        moving.is_there()
        off = install.merged(ingress_daemonset.VALUES, {"ingressDaemonSet": {"enabled": False}})
        install.install_chart(up, off)
        yield moving


def _play_the_original(lab: Lab) -> None:
    client = lab.client
    template = {
        "metadata": {"labels": {"app": INGRESS}},
        "spec": {"nodeSelector": CHOSEN, "containers": [{"name": INGRESS, "image": INGRESS}]},
    }
    spec = {"podsPerNode": 2, "template": template, "healthCheckNodePorts": [10080]}
    metadata = {"name": INGRESS, "finalizers": ["ingressdaemonsets.mumoshu.github.io"]}
    body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
    owner = client.create(INGRESS_DAEMONSETS, body, "ingress")
    checker = _original(owner, "DaemonSet", f"{INGRESS}-10080", "ingress-daemonset-hc")
    client.create(DAEMON_SETS, checker, "ingress")
    for name in EDGE:
        made = _original(owner, "Deployment", f"{INGRESS}-{name}", "ingress-daemonset-node", nodeName=name)
        made["metadata"]["annotations"] = {TO_BE_UPDATED: "true"}
        client.create(DEPLOYMENTS, made, "ingress")


def _original(owner: dict[str, Any], kind: str, name: str, label: str, **pod: Any) -> dict[str, Any]:
    """As its program makes it: with one label, and none of the template's."""
    of = {"apiVersion": API_VERSION, "kind": KIND, "name": INGRESS, "uid": owner["metadata"]["uid"]}
    labels = {label: name}
    containers = [{"name": INGRESS, "image": INGRESS}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers, **pod}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "ownerReferences": [{**of, "controller": True}]},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def test_the_page_leads_from_the_original_to_drawbridge(migration: Migration) -> None:
    lab, client = migration.lab, migration.lab.client

    def ingress() -> dict[str, Any]:
        return client.get(INGRESS_DAEMONSETS, INGRESS, "ingress")

    def phases() -> list[str]:
        return [each["phase"] for each in ingress().get("status", {}).get("waitingFor", ())]

    def pods() -> int:
        held = client.list(DEPLOYMENTS, "ingress", label_selector=NODE_LABEL).items
        return sum(each["status"].get("availableReplicas", 0) for each in held)

    def checkers() -> list[str]:
        held = client.list(DAEMON_SETS, "ingress", label_selector=FOR).items
        return sorted(each["metadata"]["name"] for each in held)

    assert migration.step().splitlines()[-1] == EDGE[0]
    migration.step()
    migration.step()
    assert "finalizers" not in ingress()["metadata"]
    assert DETACHED not in client.get(NODES, EDGE[0])["metadata"]["annotations"]

    migration.step()
    lab.wait(lambda: phases() == ["Foreign", "Foreign"], 60, "the original's Deployments to be reported")
    assert (pods(), checkers()) == (0, [])

    migration.step()
    migration.step()
    migration.step("sleep 45", "sleep 1")
    migration.step()
    lab.wait(lambda: not phases() and pods() == 4, 60, "all nodes to be as they should be")
    lab.wait(lambda: checkers() == [f"{INGRESS}-10080", f"{INGRESS}-10081"], 60, "our own health checkers")

    migration.step()
    migration.assert_left(
        f"CustomResourceDefinition {CRD}", f"APIService {SERVED}", f"IngressDaemonSet {INGRESS}"
    )
