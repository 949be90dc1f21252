"""The API server asks about pods that the webhook would change, and about no others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from api.elasticity import DS_INJECTION, IGNORE_RULES, TAINT_KEY
from dev.lab.session import Lab
from kube.resources import DAEMON_SETS, STATEFUL_SETS
from kube.types import INSTANCE_TYPE, SUPER_NODE
from tests.cluster.elasticity import VALUES, Shop, calls, keeping, switched, template
from tests.cluster.workloads import scale, workload

LOCAL_NODES = 3
REPLICAS = {"webhook": VALUES["replicaCount"], "controllers": VALUES["controllers"]["replicaCount"]}
HOME = {"key": "type", "operator": "In", "values": ["kwok"]}
AWAY = {"key": INSTANCE_TYPE, "operator": "In", "values": [SUPER_NODE]}


def daemon_set(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """On the local nodes and the super nodes alone: the lab's other nodes would run it in earnest."""
    terms = [{"matchExpressions": [HOME]}, {"matchExpressions": [AWAY]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return workload("DaemonSet", name, template(annotations, affinity={"nodeAffinity": required}, **spec))


def test_pods_that_do_not_use_the_feature_cost_no_call(elastic_lab: Lab) -> None:
    shop, before = Shop(elastic_lab), calls(elastic_lab)

    shop.deploy("web", 5, template())
    shop.deploy("switched", 2, template(switched("true")))
    shop.create(STATEFUL_SETS, workload("StatefulSet", "db", template(), replicas=2, serviceName="db"))
    shop.create(DAEMON_SETS, daemon_set("agent"))
    injected = daemon_set("injected", {DS_INJECTION: "true"}, tolerations=[{"operator": "Exists"}])
    shop.create(DAEMON_SETS, injected)
    shop.run("bare", template())
    tolerant = {"tolerations": [{"key": TAINT_KEY, "operator": "Exists"}]}
    shop.run("ignoring", template({IGNORE_RULES: "true"}, **tolerant))
    for name, replicas in {"web": 5, "switched": 2}.items():
        shop.settle(name, replicas)
    shop.settle("db", 2, STATEFUL_SETS)
    shop.wait(lambda: len(shop.home("agent")) == LOCAL_NODES, "the DaemonSet to run on all local nodes")
    shop.wait(lambda: shop.away("injected"), "the one that the provider injects to run on the super node")
    assert len(shop.home("injected")) == LOCAL_NODES
    assert calls(elastic_lab) == before

    shop.run("keeping", template(keeping(1)))
    shop.run("tolerant", template(**tolerant))
    assert calls(elastic_lab) == before + 2


@contextmanager
def without(lab: Lab, component: str) -> Iterator[None]:
    """No pod of this component of the chart is there, for the length of a block."""
    scale(lab, component, 0)
    try:
        yield
    finally:
        scale(lab, component, REPLICAS[component])


def test_a_daemon_set_that_came_while_no_webhook_server_was_there_is_corrected(elastic_lab: Lab) -> None:
    shop = Shop(elastic_lab)
    with without(elastic_lab, "webhook"):
        # A leader may correct it before its pods have come to any node.
        with without(elastic_lab, "controllers"):
            shop.create(DAEMON_SETS, daemon_set("agent", tolerations=[{"operator": "Exists"}]))
            shop.wait(lambda: len(shop.home()) == LOCAL_NODES and shop.away(), "its pods to run on all nodes")

        shop.wait(
            lambda: not shop.away() and len(shop.home()) == LOCAL_NODES, "it to be kept off super nodes"
        )
    # Its pods are replaced one after the other: in between there is one less.
    shop.wait(lambda: is_rolled_out(shop, "agent"), "its pods to be replaced")
    assert len(shop.pods()) == LOCAL_NODES
    shop.await_event("agent", "KeptOffSuperNodes")


def is_rolled_out(shop: Shop, name: str) -> bool:
    """Whether a DaemonSet has all of its pods, by its last template, as its controller says."""
    found = shop.client.get(DAEMON_SETS, name, shop.namespace)
    status, generation = found["status"], found["metadata"]["generation"]
    counts = {status.get(each) for each in ("updatedNumberScheduled", "numberAvailable")}
    seen = status.get("observedGeneration") == generation
    return seen and counts == {status["desiredNumberScheduled"]} == {LOCAL_NODES}
