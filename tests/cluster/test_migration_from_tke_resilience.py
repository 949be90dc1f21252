"""TKE Resilience's users install Drawbridge over it: no pod is restarted, and its super node is used, then adopted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev.lab import install, nodes
from dev.lab.bootstrap import running
from dev.lab.session import Lab
from kube.resources import CONFIG_MAPS, DEPLOYMENTS, EVENTS
from kube.types import Pod
from tests.cluster import elasticity, workloads
from tests.cluster.elasticity import SECONDS, SUBNET, is_away, is_home, keeping, template, workload

pytestmark = pytest.mark.nightly

ORIGINAL = Path(__file__).parent.parent / "data" / "originals" / "tke-resilience.yaml"
NODE = "eklet-subnet-lab00001"
TOLERATION = {"key": "eks.tke.cloud.tencent.com/eklet", "operator": "Exists", "effect": "NoSchedule"}
ZONE = "topology.kubernetes.io/zone"
"""A label that Drawbridge gives its super nodes, and the original does not."""
SENT = {"tolerations": [TOLERATION], "nodeSelector": {"node.kubernetes.io/instance-type": "eklet"}}
"""What the original's admission controller and scheduler make of a pod."""


@pytest.fixture
def lab() -> Iterator[Lab]:
    """With what the original leaves in a cluster, and without Drawbridge."""
    with running(chart=False, calico="projectcalico.org/v3", nodes=1, kwok_nodes=1) as up:
        for document in yaml.safe_load_all(ORIGINAL.read_text()):
            resource = nodes.NODES if document["kind"] == "Node" else CONFIG_MAPS
            up.client.create(resource, document, *([] if document["kind"] == "Node" else ["kube-system"]))
        nodes.play(up.client, NODE)
        yield up


def pods(lab: Lab, namespace: str, count: int) -> list[Pod]:
    """All of them, once they run."""

    def found() -> list[Pod] | None:
        listed = workloads.pods_of(lab, namespace)
        return listed if [pod.status.phase for pod in listed] == ["Running"] * count else None

    return lab.wait(found, SECONDS, f"{count} pods of {namespace} to run")


def identities(found: list[Pod]) -> set[tuple[str, str, str]]:
    return {(pod.metadata.uid, pod.spec.node_name, pod.status.pod_ip) for pod in found}


def node(lab: Lab) -> dict[str, Any]:
    return lab.client.get(nodes.NODES, NODE)


def reported(lab: Lab) -> set[str]:
    """The reasons of Events on the super node."""
    selector = f"involvedObject.kind=Node,involvedObject.name={NODE}"
    return {each["reason"] for each in lab.client.list(EVENTS, "default", field_selector=selector).items}


def test_drawbridge_takes_over_from_tke_resilience(lab: Lab) -> None:
    namespace = workloads.namespace(lab.client, "web")
    elasticity.await_account(lab, namespace)
    lab.client.create(DEPLOYMENTS, workload("Deployment", "sent", template(**SENT), replicas=3), namespace)
    lab.client.create(DEPLOYMENTS, workload("Deployment", "local", template(), replicas=1), namespace)
    before = identities(pods(lab, namespace, 4))
    original = node(lab)

    install.install_chart(lab, elasticity.VALUES | {"cloud": {"subnets": []}})
    assert identities(pods(lab, namespace, 4)) == before
    assert node(lab)["metadata"]["uid"] == original["metadata"]["uid"]
    assert node(lab)["metadata"]["finalizers"] == ["cloud.tencent.com/eklet"]
    assert node(lab)["spec"].get("taints") == original["spec"]["taints"]

    shop = workloads.namespace(lab.client, "shop")
    elasticity.await_account(lab, shop)
    new = template(keeping(1, AUTO_SCALE_EKS="true"), schedulerName="tke-scheduler")
    lab.client.create(DEPLOYMENTS, workload("Deployment", "nginx", new, replicas=3), shop)
    # The control: the same without the annotations.
    off = workloads.namespace(lab.client, "off")
    elasticity.await_account(lab, off)
    plain = template(schedulerName="tke-scheduler")
    lab.client.create(DEPLOYMENTS, workload("Deployment", "nginx", plain, replicas=3), off)
    assert [pod for pod in pods(lab, off, 3) if is_away(pod)] == []
    placed = pods(lab, shop, 3)
    assert [len([pod for pod in placed if where(pod)]) for where in (is_home, is_away)] == [1, 2]

    install.upgrade(lab, {"cloud": {"subnets": [SUBNET]}})
    lab.wait(lambda: "SuperNodeNotOurs" in reported(lab), SECONDS, "the node to be reported")
    assert ZONE not in node(lab)["metadata"]["labels"], "it is not managed without the label"
    managed = {"labels": {"app.kubernetes.io/managed-by": "drawbridge"}, "finalizers": None}
    lab.client.patch(nodes.NODES, NODE, {"metadata": managed})
    lab.wait(lambda: node(lab)["metadata"]["labels"].get(ZONE), SECONDS, "the node to be managed")
    assert node(lab)["metadata"]["uid"] == original["metadata"]["uid"]
    assert not node(lab)["spec"].get("unschedulable")
    assert identities(pods(lab, namespace, 4)) == before
    assert identities(pods(lab, shop, 3)) == identities(placed)
