"""Anycast IPs, elasticity, and rollouts on edge nodes: what each of them promises, while it happens."""

from __future__ import annotations

from api.ingress_daemonset import INGRESS_DAEMONSETS
from dev.demo.stage import HERE, Stage
from dev.lab.health_checkers import checking
from dev.outside import WORKLOADS, Prober, of_addresses, of_edges, of_placement
from kube.types import Pod

LEAVER = "cloud-1"
REPLICAS = 4
EDGE_NODES = ("edge-0", "edge-1", "edge-2", "edge-3")
CHANGE = '[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "proxy:2"}]'


def nodes_join(stage: Stage) -> None:
    stage.step(
        "Nodes join, and one leaves",
        "Each node is tainted in its very creation; the leader orders an address, binds it, and opens the node."
        " Servers that wait for such nodes come only then. When a node has left, its address is given back.",
    )
    with stage.judged(of_addresses()):
        stage.kubectl("apply", "-f", str(HERE / "web.yaml"))
        stage.kubectl("apply", "-f", str(HERE / "nodes.yaml"))
        with stage.watched("status"):
            stage.running("web", 8)
        stage.drawbridge("explain", "node", LEAVER)
        stage.kubectl("drain", LEAVER, "--timeout=30s")
        stage.kubectl("delete", "node", LEAVER)
        stage.wait(lambda: len(stage.lab.cloud.state()["addresses"]) == 3, "its address to be released")
        stage.drawbridge("addresses", "list")


def replicas_go_to_the_cloud(stage: Stage) -> None:
    stage.step(
        "Replicas go to the cloud, and leave it first",
        "Of four replicas one is to stay local. Each is held by a gate until the leader has counted, and goes where"
        " it belongs in the same write. The deletion costs see to it that those on the super node are given up first.",
    )
    with stage.judged(of_placement(), *WORKLOADS, namespace="shop"):
        stage.kubectl("apply", "-f", str(HERE / "burst.yaml"))
        first = _local(stage.running("shop", REPLICAS))
        stage.drawbridge("elasticity", "list", "-n", "shop")
        for count in (3, 1):
            stage.drawbridge("simulate", "scale", "nginx-deployment", str(count), "-n", "shop")
            stage.kubectl("-n", "shop", "scale", "deployment/nginx-deployment", f"--replicas={count}")
            last = _local(stage.running("shop", count))
    fault = f"{first} were local, and {last} in the end" if len(first) != 1 or first != last else ""
    stage.verdict("placement: of four replicas one is local, and is the last to go", fault)


def _local(pods: list[Pod]) -> list[str]:
    return [pod.metadata.name for pod in pods if not pod.spec.node_name.startswith("eklet-")]


def edge_nodes_are_updated(stage: Stage) -> None:
    stage.step(
        "Edge nodes are updated, off the load balancer",
        "Each node has two pods of a proxy, and a health checker that a load balancer asks. For a new template, two"
        " nodes at a time fail their health checks first, while all pods serve; then the pods are replaced; then the"
        " checks pass again.",
    )
    stage.kubectl("apply", "-f", str(HERE / "edge.yaml"))
    with checking(stage.lab, "edge", EDGE_NODES) as checkers:
        balancer = Prober(lambda: {node: each.status() for node, each in checkers.items()})
        where = {"balancer": balancer, "namespace": "edge"}
        with stage.judged(of_edges(), INGRESS_DAEMONSETS, **where) as outside:
            outside.wait(lambda seen: len(seen.uses) == len(EDGE_NODES), "the load balancer to use all nodes")
            stage.kubectl("-n", "edge", "patch", "ingressdaemonset", "proxy", "--type=json", "-p", CHANGE)
            with stage.watched("rollout", "get", "proxy", "-n", "edge"):
                stage.wait(lambda: _is_complete(stage), "the rollout to be complete")


def _is_complete(stage: Stage) -> bool:
    found = stage.lab.client.get(INGRESS_DAEMONSETS, "proxy", "edge")
    reasons = {each["type"]: each["reason"] for each in found["status"]["conditions"]}
    is_seen = found["status"]["observedGeneration"] == found["metadata"]["generation"]
    return bool(is_seen and reasons["Progressing"] == "Complete")
