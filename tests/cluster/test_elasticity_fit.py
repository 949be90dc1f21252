"""Nothing is stuck: what no super node takes stays local, by the word of the real scheduler."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec
import pytest

from api.elasticity import IGNORE_RULES, LOCAL_REPLICAS, bound_to_super_nodes
from controllers.elasticity.eligibility import candidate_of, gather
from controllers.elasticity.filters import Request
from controllers.elasticity.nodes import WatchedNode, sorted_out
from controllers.elasticity.patches import TOLERATION
from controllers.elasticity.pods import PodSpec, decode
from controllers.elasticity.room import Fleet
from controllers.elasticity.rules import needs, reach
from dev.lab.session import Lab
from kube.client import Resource
from kube.errors import AlreadyExists, KubeError
from kube.resources import NODES
from kube.types import Pod
from tests import field_charts
from tests.cluster.elasticity import DAEMONSETS, DEPLOYMENTS, JOBS, Raw, Shop, configured, template
from tests.cluster.workloads import PODS, STATEFULSETS
from tests.elasticity_world import index_of

RESOURCES = {"Deployment": DEPLOYMENTS, "StatefulSet": STATEFULSETS, "DaemonSet": DAEMONSETS, "Job": JOBS}
ACCOUNTS = Resource("", "v1", "serviceaccounts")
CLAIMS = Resource("", "v1", "persistentvolumeclaims")
VOLUMES = Resource("", "v1", "persistentvolumes", namespaced=False)
CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", namespaced=False)
SELECTED = "volume.kubernetes.io/selected-node"
HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize("chart", field_charts.CHARTS)
def test_a_chart_of_the_field_runs_with_one_local_replica_for_all(elastic_lab: Lab, chart: str) -> None:
    workloads = field_charts.workloads_of(chart)
    with configured(elastic_lab, localReplicas=1), provisioning(Shop(elastic_lab)) as shop:
        for name in field_charts.accounts_of(workloads):
            shop.create(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
        for each in workloads:
            shop.create(RESOURCES[each["kind"]], _in_the_lab(each))
        expected = sum(map(field_charts.replicas_of, _counted(workloads)))

        shop.wait(lambda: len(_at_work(shop)) == expected, f"all pods of {chart} to run")

        assert shop.gated() == set()


@pytest.mark.promise
def test_a_share_stays_local_as_a_workload_grows(elastic_lab: Lab) -> None:
    with configured(elastic_lab, percentages=True):
        shop = Shop(elastic_lab)
        shop.deploy("shared", 4, template({LOCAL_REPLICAS: "30%"}))
        shop.wait(lambda: _places(shop, "shared") == (2, 2), "two of four to be local")
        shop.scale("shared", 7)
        shop.wait(lambda: _places(shop, "shared") == (3, 4), "three of seven to be local")


def _places(shop: Shop, name: str) -> tuple[int, int]:
    """How many run on local and on super nodes."""
    return len(shop.home(name)), len(shop.away(name))


def _counted(workloads: list[Raw]) -> list[Raw]:
    return [each for each in workloads if each["kind"] != "DaemonSet"]


def _in_the_lab(workload: Raw) -> Raw:
    """A DaemonSet that keeps off the nodes that would run it in earnest."""
    if workload["kind"] == "DaemonSet":
        workload["spec"]["template"]["spec"]["nodeSelector"]["type"] = "kwok"
    return workload


def _at_work(shop: Shop) -> list[Pod]:
    """Those of all workloads but DaemonSets that have run, or run."""
    return [
        pod
        for pod in shop.pods()
        if pod.status.phase in ("Running", "Succeeded")
        and not any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)
    ]


APP = {"app": "judged"}
LIKE = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": APP}}
SPREAD = {"maxSkew": 1, "topologyKey": HOSTNAME, "labelSelector": {"matchLabels": APP}}
JUDGED: dict[str, Raw] = {
    "nothing": {},
    "usual-selector": {"nodeSelector": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}},
    "other-selector": {"nodeSelector": {"type": "kwok"}},
    "zone": {"nodeSelector": {"topology.kubernetes.io/zone": "ap-guangzhou-3"}},
    "hostname": {"nodeSelector": {HOSTNAME: "eklet-subnet-lab00001"}},
    "port": {
        "containers": [{"name": "app", "image": "app", "ports": [{"containerPort": 80, "hostPort": 8099}]}]
    },
    "port-again": {
        "containers": [{"name": "app", "image": "app", "ports": [{"containerPort": 80, "hostPort": 8099}]}]
    },
    "with-its-like": {"affinity": {"podAffinity": {REQUIRED: [LIKE]}}},
    "without-its-like": {"affinity": {"podAntiAffinity": {REQUIRED: [LIKE]}}},
    "with-none": {
        "affinity": {"podAffinity": {REQUIRED: [{**LIKE, "labelSelector": {"matchLabels": {"app": "none"}}}]}}
    },
    "spread": {"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "DoNotSchedule"}]},
    "spread-over-two": {
        "topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2}]
    },
    "spread-over-all": {
        "topologySpreadConstraints": [
            {**SPREAD, "whenUnsatisfiable": "DoNotSchedule", "nodeAffinityPolicy": "Ignore"}
        ]
    },
    "volume": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
}
"""Pods that are bound to super nodes by themselves, one after the other, all of them labelled alike."""


def test_what_fits_is_what_the_scheduler_takes(elastic_lab: Lab) -> None:
    shop = Shop(elastic_lab)
    bind_to_node(shop, "data", "kwok-0")
    ours: dict[str, bool] = {}
    real: dict[str, bool] = {}
    for name, spec in JUDGED.items():
        made = template({IGNORE_RULES: "true"}, **spec)
        made["metadata"]["labels"] = APP
        made["spec"] = {**bound_to_super_nodes(made["spec"]), "tolerations": [TOLERATION]}
        ours[name] = not _why_not(shop, name, made)
        shop.run(name, made)
        real[name] = shop.wait(lambda: _verdict(shop.pod(name)), f"the scheduler to judge {name}") == "taken"  # noqa: B023

    assert ours == real
    assert set(real.values()) == {True, False}


def _why_not(shop: Shop, name: str, made: Raw) -> str:
    """What we say of a pod that is not there yet, and of all that is."""
    pods = [decode(raw) for raw in shop.client.list(PODS, type=msgspec.Raw).items]
    nodes = sorted_out(shop.client.list(NODES, type=WatchedNode).items)
    metadata = {**made["metadata"], "name": name, "namespace": shop.namespace, "uid": name}
    pod = decode(msgspec.Raw(msgspec.json.encode({**made, "metadata": metadata})))
    claims = gather(needs(candidate_of(pod)), shop.namespace, shop.client)
    request = Request(pod, msgspec.convert(made["spec"], PodSpec), reach(candidate_of(pod), claims))
    return Fleet(nodes, index_of(*pods)).why_not(request) or ""


def _verdict(pod: Pod) -> str:
    if pod.spec.node_name:
        return "taken"
    stuck = any(each.reason == "Unschedulable" for each in pod.status.conditions)
    return "refused" if stuck else ""


def bind_to_node(shop: Shop, name: str, node: str) -> None:
    """A claim to a volume that is a directory of *node*."""
    body = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": f"{shop.namespace}-{name}",
    }
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": body}
    made = shop.client.create(CLAIMS, claim, shop.namespace)
    shop.client.create(VOLUMES, field_charts.local_volume(f"{shop.namespace}-{name}", node, made))


@contextmanager
def provisioning(shop: Shop) -> Iterator[Shop]:
    """A local-path provisioner is at work in the namespace of *shop*."""
    with suppress(AlreadyExists):
        shop.client.create(CLASSES, field_charts.LOCAL_PATH)
    stop = threading.Event()
    thread = threading.Thread(target=_provision, args=(shop, stop), daemon=True)
    thread.start()
    try:
        yield shop
    finally:
        stop.set()
        thread.join(30)


def _provision(shop: Shop, stop: threading.Event) -> None:
    while not stop.wait(0.3):
        with suppress(KubeError):
            for claim in shop.client.list(CLAIMS, shop.namespace).items:
                node = claim["metadata"].get("annotations", {}).get(SELECTED)
                if node and not claim["spec"].get("volumeName"):
                    name = f"pvc-{claim['metadata']['uid']}"
                    with suppress(AlreadyExists):
                        shop.client.create(VOLUMES, field_charts.local_volume(name, node, claim))
