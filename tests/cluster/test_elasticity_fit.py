"""Nothing is stuck: what no super node takes stays local, by the word of the real scheduler."""

from __future__ import annotations

import msgspec
import pytest

from api.elasticity import IGNORE_RULES, LOCAL_REPLICAS
from controllers.elasticity.eligibility import gather, request_of
from controllers.elasticity.nodes import WatchedNode, sorted_out
from controllers.elasticity.patches import TOLERATION
from controllers.elasticity.pods import PodIndex, decode
from controllers.elasticity.rules import needs, reach
from dev.lab.session import Lab
from kube.resources import NODES, PODS
from kube.selectors import ON_SUPER_NODES, requiring
from kube.types import Pod
from tests.cluster.elasticity import Raw, Shop, bind, configured, template
from tests.elasticity_world import account, misfit

HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


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
    there = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["kwok-0"]}]}
    affinity = {"required": {"nodeSelectorTerms": [there]}}
    bind(shop, "data", {"hostPath": {"path": "/data"}, "nodeAffinity": affinity})
    ours: dict[str, bool] = {}
    real: dict[str, bool] = {}
    for name, spec in JUDGED.items():
        made = template({IGNORE_RULES: "true"}, **spec)
        made["metadata"]["labels"] = APP
        made["spec"] = {**requiring(made["spec"], ON_SUPER_NODES), "tolerations": [TOLERATION]}
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
    claims = gather(needs(request_of(pod)), shop.namespace, shop.client)
    return misfit(account(nodes, PodIndex.of(pods), *reach(claims)), pod)


def _verdict(pod: Pod) -> str:
    if pod.spec.node_name:
        return "taken"
    stuck = any(each.reason == "Unschedulable" for each in pod.status.conditions)
    return "refused" if stuck else ""
