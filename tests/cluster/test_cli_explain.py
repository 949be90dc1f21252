"""What `drawbridge simulate` foresees is what happens, and `drawbridge explain` shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from api.ip_reservation import RESERVE
from calico.segment import Record
from cli.app import drawbridge
from cli.cluster import Cluster
from dev.lab.bootstrap import running
from dev.lab.session import Lab
from dev.lab.waiting import at_most
from kube.resources import PODS
from kube.types import Pod
from tests.cluster.workloads import (
    SECONDS,
    VALUES,
    all_records,
    create_pod,
    namespace,
    pods_of,
    reserved_namespace,
    running_statefulset,
)

pytestmark = pytest.mark.nightly

NODES, REPLICAS = 10, 20
SHOP, OUTSIDE = "shop", "outside"
ON_KWOK = {"nodeSelector": {"type": "kwok"}, "tolerations": [{"operator": "Exists"}]}


@pytest.fixture(scope="module")
def shop_lab() -> Iterator[Lab]:
    """A lab with ten nodes; in one namespace pods with reservations of all sorts, in another none."""
    with running(values=VALUES, nodes=2, kwok_nodes=NODES) as up:
        reserved_namespace(up.client, SHOP)
        namespace(up.client, OUTSIDE)
        for place in (SHOP, OUTSIDE):
            running_statefulset(up, place, REPLICAS, **ON_KWOK)
        for number in range(NODES):
            bare(up, f"host-{number}", hostNetwork=True)
            bare(up, f"unreserved-{number}", annotations={RESERVE: "false"})
            bare(up, f"finished-{number}", restartPolicy="Never")
        yield up


def bare(lab: Lab, name: str, annotations: dict[str, str] | None = None, **spec: Any) -> None:
    create_pod(lab, SHOP, name, {"app": "bare"}, **ON_KWOK, **spec)
    if annotations:
        lab.client.patch(PODS, name, {"metadata": {"annotations": annotations}}, SHOP)


def shown(lab: Lab, *arguments: str) -> Any:
    result = CliRunner().invoke(
        drawbridge, [*arguments, "-o", "json"], obj=lambda _options: Cluster(lab.client, SHOP)
    )
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def settled(lab: Lab) -> bool:
    """Whether all replicas are there again, all pods run, and none is terminating: no other comes to a node."""
    pods = [pod for place in (SHOP, OUTSIDE) for pod in pods_of(lab, place)]
    replicas = sum(pod.metadata.labels.get("app") == "redis" for pod in pods)
    return replicas == 2 * REPLICAS and all(pod.status.addresses and not pod.terminating for pod in pods)


def of(records: list[Record], node: str) -> set[tuple[str, str]]:
    return {
        (each.cidr.partition("/")[0], f"{each.namespace}/{each.pod}") for each in records if each.node == node
    }


def on(lab: Lab, node: str) -> list[Pod]:
    return lab.client.list(PODS, type=Pod, field_selector=f"spec.nodeName={node}").items


def kwok_nodes(lab: Lab) -> list[str]:
    names = lab.kubectl("get", "nodes", "-l", "type=kwok", "-o", "name").stdout.split()
    return [name.partition("/")[2] for name in names]


def test_a_drain_of_ten_nodes_reserves_what_was_foreseen(shop_lab: Lab) -> None:
    drained = kwok_nodes(shop_lab)
    assert len(drained) == NODES
    foreseen_all: set[tuple[str, str]] = set()
    for node in drained:
        shop_lab.wait(lambda: settled(shop_lab), 4 * SECONDS, "all pods to run")
        shop_lab.kubectl("cordon", node)
        before = of(all_records(shop_lab, "v3"), node)
        found = shown(shop_lab, "simulate", "drain", node)
        pods = {f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in on(shop_lab, node)}
        assert pods == {each["pod"] for part in ("reserved", "notReserved", "kept") for each in found[part]}

        shop_lab.kubectl("drain", node, "--ignore-daemonsets", "--force", at_most(120))

        predicted = {(each["ip"], each["pod"]) for each in found["reserved"]}
        assert of(all_records(shop_lab, "v3"), node) - before == predicted
        foreseen_all |= predicted
        shop_lab.kubectl("uncordon", node)
    assert len(foreseen_all) >= REPLICAS
    assert {pod.partition("/")[0] for _, pod in foreseen_all} == {SHOP}


def test_what_a_deletion_reserves_is_foreseen_and_then_explained(shop_lab: Lab) -> None:
    shop_lab.wait(lambda: settled(shop_lab), 4 * SECONDS, "all pods to run")
    names = ("redis-0", "redis-1")
    predicted = shown(shop_lab, "simulate", "delete", *names)["reserved"]
    asked = {each["action"]: each for each in shown(shop_lab, "explain", "pod", "redis-0")["questions"]}
    assert asked["delete"]["reserved"] == asked["evict"]["reserved"] == [predicted[0]["ip"]]

    shop_lab.kubectl("delete", "pod", "-n", SHOP, *names)

    for each in predicted:
        explained = shown(shop_lab, "explain", "ip", each["ip"])
        (reservation,) = (one for one in explained["reservations"] if f"shop/{one['pod']}" == each["pod"])
        assert reservation["reason"] == "deleted"
        assert f"{each['ip']} is reserved for {each['pod']}" in explained["summary"]
