"""MetalLB's own controller and speakers, in L2 mode, on the real nodes; and a client in the same network."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from dev.lab import binaries, processes
from dev.lab.node import network
from dev.lab.waiting import at_most
from kube.client import Resource
from kube.resources import PODS
from tests.cluster.ingress_daemonset_edge import Edge
from tests.e2e.real import Real

NAMESPACE, CLASS = "metallb-system", "metallb.test/l2"
CLIENT, CLIENT_NUMBER = "client", 40
ADDRESSES = "192.0.2.200-192.0.2.203"
LOOK = 0.1
STATUSES = Resource("metallb.io", "v1beta1", "servicel2statuses")
POOLS = Resource("metallb.io", "v1beta1", "ipaddresspools")
ADVERTISEMENTS = Resource("metallb.io", "v1beta1", "l2advertisements")
OUTSIDE = ("nsenter", f"--net=/run/netns/{CLIENT}")
"""How a command is run on the client's machine."""


@contextmanager
def running(cluster: Real) -> Iterator[None]:
    """A speaker on each node, and addresses for Services of CLASS."""
    programs = binaries.ensure("metallb-controller", "metallb-speaker")
    crds = str(programs["metallb-speaker"].parent / "metallb-crds")
    cluster.kubectl("apply", "--server-side", "--filename", crds)
    cluster.kubectl("wait", "crd", "--for=condition=Established", "--all", at_most(60))
    cluster.kubectl("create", "namespace", NAMESPACE)
    for node in cluster.workers:
        # A speaker reads its own pod, which owns what it says.
        gate = {"schedulingGates": [{"name": "metallb.test/process"}]}
        spec = gate | {"containers": [{"name": "speaker", "image": "none"}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"speaker-{node}"}, "spec": spec}
        cluster.client.create(PODS, body, NAMESPACE)
    about = {"apiVersion": "metallb.io/v1beta1", "metadata": {"name": "outside"}}
    cluster.client.create(
        POOLS, {**about, "kind": "IPAddressPool", "spec": {"addresses": [ADDRESSES]}}, NAMESPACE
    )
    cluster.client.create(ADVERTISEMENTS, {**about, "kind": "L2Advertisement", "spec": {}}, NAMESPACE)
    network.create_node_namespace(CLIENT, CLIENT_NUMBER)
    started = [
        _start(
            cluster,
            f"metallb-speaker-{node}",
            *("nsenter", f"--net=/run/netns/{node}", str(programs["metallb-speaker"])),
            *("--node-name", node, "--pod-name", f"speaker-{node}"),
        )
        for node in cluster.workers
    ]
    controller = (str(programs["metallb-controller"]), "--webhook-mode", "disabled")
    started.append(_start(cluster, "metallb-controller", *controller))
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()
        network.ip("netns", "delete", CLIENT)
        cluster.kubectl("delete", "namespace", NAMESPACE)
        cluster.kubectl("delete", "--filename", crds)


def _start(cluster: Real, name: str, *command: str) -> subprocess.Popen[bytes]:
    kubeconfig = str(cluster.home / "nodes.kubeconfig")
    ours = {"KUBECONFIG": kubeconfig, "METALLB_BGP_TYPE": "native"}
    with (cluster.home / "logs" / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [*command, "--namespace", NAMESPACE, "--lb-class", CLASS],
            env={**processes.marked_environment(cluster.home), **ours},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=processes.die_with_parent,
        )


def announcing(cluster: Real, service: str) -> set[str]:
    """The nodes that announce the address of *service*, as MetalLB says."""
    found = cluster.client.list(STATUSES, NAMESPACE).items
    return {each["status"]["node"] for each in found if each.get("status", {}).get("serviceName") == service}


@contextmanager
def stops(cluster: Real, edge: Edge, service: str) -> Iterator[Callable[[], dict[str, bool]]]:
    """By name of each pod that ends meanwhile: whether its node announced the address, just before or after."""
    ended, found = threading.Event(), dict[str, bool]()

    def run() -> None:
        before: dict[str, str] = {}
        announced = announcing(cluster, service)
        while not ended.wait(LOOK):
            pods = {each["metadata"]["name"]: str(each["spec"]["nodeName"]) for each in edge.pods()}
            was, announced = announced, announcing(cluster, service)
            for name in before.keys() - pods.keys():
                found[name] = before[name] in was | announced
            before = pods

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            yield lambda: found
        finally:
            ended.set()
        running.result()


def service(name: str) -> dict[str, Any]:
    """Whose address leads to pods on the node that announces it, and to no other."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": CLASS,
            "externalTrafficPolicy": "Local",
            "selector": {"app": name},
            "ports": [{"port": 80, "targetPort": 8080}],
        },
    }
