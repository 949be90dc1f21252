"""Whatever is missing or full, pods run or wait as documented, and nothing is stuck when it is back."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kube.errors import NotFound
from lab.session import Lab
from tests.cluster.elasticity import (
    DEPLOYMENTS,
    REASON,
    SECONDS,
    VALUES,
    Shop,
    configured,
    is_settled,
    keeping,
    template,
)
from tests.cluster.workloads import PODS
from webhook.elasticity.webhook import NO_LEADER

DRAWBRIDGE = "drawbridge"
REPLICAS = {"webhook": VALUES["replicaCount"], "controllers": VALUES["controllers"]["replicaCount"]}


@contextmanager
def without(lab: Lab, component: str) -> Iterator[None]:
    """No pod of this component of the chart is there, for the length of a block."""
    scale(lab, component, 0)
    try:
        yield
    finally:
        scale(lab, component, REPLICAS[component])


def scale(lab: Lab, component: str, replicas: int) -> None:
    name = f"{DRAWBRIDGE}-{component}"
    lab.client.patch(DEPLOYMENTS.sub("scale"), name, {"spec": {"replicas": replicas}}, DRAWBRIDGE)
    lab.wait(
        lambda: ready(lab, component) == [True] * replicas,
        SECONDS,
        f"{replicas} pods of {component} to be ready",
    )


def ready(lab: Lab, component: str) -> list[bool]:
    """Of each pod that is there, those on their way out included."""
    selector = f"app.kubernetes.io/component={component}"
    found = lab.client.list(PODS, DRAWBRIDGE, label_selector=selector).items
    conditions = [
        {each["type"]: each["status"] for each in pod.get("status", {}).get("conditions", ())}
        for pod in found
    ]
    return [each.get("Ready") == "True" for each in conditions]


def test_without_a_leader_for_long_pods_are_not_gated_and_say_why(elastic_lab: Lab) -> None:
    shop = Shop(elastic_lab)
    with configured(elastic_lab, gateFallbackAfter="3s"), without(elastic_lab, "controllers"):

        def not_gated() -> str:
            name = f"probe-{secrets.token_hex(4)}"
            said = elastic_lab.kubectl("apply", "-f", "-", "-n", shop.namespace, stdin=bare(name)).stderr
            return said if name not in shop.gated() else ""

        warning = shop.wait(not_gated, "a pod that is not gated")
        assert "have had no leader for" in warning
        shop.deploy("web", 4, template(keeping(1)))
        shop.wait(lambda: all_run(shop, "web", 4), "four pods that are not gated")
        assert (len(shop.home("web")), shop.gated("web")) == (4, set())
        reasons = {pod.metadata.annotations[REASON] for pod in shop.pods("web")}
        assert reasons == {NO_LEADER}

    shop.wait(lambda: shop.gated() == set(), "what was gated before to be placed")
    shop.scale("web", 6)
    shop.settle("web", 6)
    assert (len(shop.home("web")), len(shop.away("web"))) == (4, 2)


def all_run(shop: Shop, name: str, replicas: int) -> bool:
    """Pods that are gated all the same are created again.

    Each webhook server counts from when it saw the Lease change last: one that had no pod to review sees that late.
    """
    for gated in shop.gated(name):
        with suppress(NotFound):
            shop.client.delete(PODS, gated, shop.namespace)
    return is_settled(shop.client.get(DEPLOYMENTS, name, shop.namespace), replicas)


def bare(name: str) -> str:
    metadata = {"name": name, "annotations": keeping(1)}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", **template(), "metadata": metadata})
