"""TKE Resilience's users leave it by its page: no pod is restarted, its super node is used, then adopted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.lab import admission, install, nodes
from dev.lab.bootstrap import running
from dev.lab.session import Lab
from kube.resources import CONFIG_MAPS, DEPLOYMENTS
from kube.types import Pod
from tests.cluster import elasticity, workloads
from tests.cluster.elasticity import SECONDS, is_away, is_home, keeping, template
from tests.cluster.migrations import NAMES, Migration
from tests.cluster.workloads import workload

pytestmark = pytest.mark.nightly

NODE = "eklet-subnet-ab12cd34"
"""The name of the page."""
FILLED_IN = {
    "cloud": {
        "appID": "1250000000",
        "ownerUIN": "100000000001",
        "secretID": "an-id",
        "secretKey": "a-key",
        "vpcID": "vpc-ab12cd34",
    },
    "eklet": {
        "podUsedApiserver": "https://10.0.0.1:6443",
        "image": {"ref": "registry.example/eklet:v2"},
        "nodeSelector": {},
        "resources": {},
    },
}
"""What its users fill into its values."""
TOLERATION = {"key": "eks.tke.cloud.tencent.com/eklet", "operator": "Exists", "effect": "NoSchedule"}
ZONE = "topology.kubernetes.io/zone"
"""A label that Drawbridge gives its super nodes, and the original does not."""
SENT = {"tolerations": [TOLERATION], "nodeSelector": {"node.kubernetes.io/instance-type": "eklet"}}
"""What the original's admission controller and scheduler make of a pod."""


@pytest.fixture
def migration(tmp_path: Path) -> Iterator[Migration]:
    """Drawbridge is installed already, without the feature."""
    with running(chart=False, calico=None, nodes=1, kwok_nodes=1) as up:
        moving = Migration(up, "tke-resilience", tmp_path)
        moving.install("tke-resilience", "kube-system", install.merged(NAMES["resilience"], FILLED_IN))
        nodes.play(up.client, NODE)
        off = {"elasticity": {"enabled": False}, "cloud": {"subnets": []}}
        install.install_chart(up, install.merged(elasticity.VALUES, off))
        yield moving


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


def test_the_page_leads_from_tke_resilience_to_drawbridge(migration: Migration) -> None:
    lab = migration.lab
    namespace = workloads.namespace(lab.client, "web")
    elasticity.await_account(lab, namespace)
    lab.client.create(DEPLOYMENTS, workload("Deployment", "sent", template(**SENT), replicas=3), namespace)
    lab.client.create(DEPLOYMENTS, workload("Deployment", "local", template(), replicas=1), namespace)
    before = identities(pods(lab, namespace, 4))
    original = node(lab)

    for _ in ("patch the switch", "save", "stop", "switch on"):
        migration.step()
    admission.await_placement(lab.client)
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

    for _ in ("verify", "remove", "adopt"):
        migration.step()
    lab.wait(lambda: node(lab)["metadata"]["labels"].get(ZONE), SECONDS, "the node to be managed")
    assert node(lab)["metadata"]["uid"] == original["metadata"]["uid"]
    assert not node(lab)["spec"].get("unschedulable")
    for _ in ("delete the original's eklet", "install ours"):
        migration.step()
    migration.assert_left("ConfigMap eks-config", f"Node {NODE}")
    eklet = lab.client.get(DEPLOYMENTS, "eklet", "kube-system")
    assert "finalizers" not in eklet["metadata"]
    kept = lab.client.get(CONFIG_MAPS, "eks-config", "kube-system")["data"]
    assert kept == {"AUTO_SCALE_EKS": "false", "pod.annotations": "{}"}
    assert identities(pods(lab, namespace, 4)) == before
    assert identities(pods(lab, shop, 3)) == identities(placed)
