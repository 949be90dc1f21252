"""The Node objects that this kubelet stands for, and the heartbeats that keep them Ready."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dev.lab.kubelet.values import timestamp
from kube.client import Client
from kube.errors import AlreadyExists, KubeError, NotFound
from kube.resources import LEASES, NODES

LEASE_NAMESPACE = "kube-node-lease"
HEARTBEAT = 10.0
LEASE_SECONDS = 40
LABEL = "drawbridge.io/lab"
VERSION = "v1.36.3"

log = logging.getLogger(__name__)


def node(name: str, address: str, now: float) -> dict[str, Any]:
    """A Node that only pods made for the lab tolerate."""
    resources = {"cpu": "32", "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "250"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {LABEL: "node", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
        },
        "spec": {"taints": [{"key": LABEL, "value": "node", "effect": "NoSchedule"}]},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "nodeInfo": {"machineID": name, "kubeletVersion": VERSION, "operatingSystem": "linux"},
            "conditions": [_ready(now)],
        },
    }


def _ready(now: float) -> dict[str, Any]:
    return {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "the lab's kubelet is running",
        "lastHeartbeatTime": timestamp(now),
        "lastTransitionTime": timestamp(now),
    }


def register(client: Client, name: str, address: str) -> None:
    """Make the node, or make it as it should be, and Ready."""
    wanted = node(name, address, time.time())
    try:
        client.create(NODES, wanted)
    except AlreadyExists:
        client.patch(NODES, name, {"metadata": wanted["metadata"]})
    client.patch(NODES.sub("status"), name, {"status": wanted["status"]})
    beat(client, name)


def beat(client: Client, name: str) -> None:
    lease = _lease(name, datetime.now(UTC))
    try:
        client.patch(LEASES, name, {"spec": lease["spec"]}, LEASE_NAMESPACE)
    except NotFound:
        client.create(LEASES, lease, LEASE_NAMESPACE)


def _lease(name: str, now: datetime) -> Mapping[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }


def correct(client: Client, name: str) -> None:
    """Set Ready to True again after the node lifecycle controller has set it to Unknown."""
    conditions = client.get(NODES, name)["status"].get("conditions", ())
    if ("Ready", "True") not in {(each["type"], each["status"]) for each in conditions}:
        change = {"status": {"conditions": [_ready(time.time())]}}
        client.patch(NODES.sub("status"), name, change)


def keep_beating(
    client: Client,
    names: Sequence[str],
    stop: threading.Event,
    *,
    every: float = HEARTBEAT,
    correct_pods: Callable[[], None] = lambda: None,
) -> None:
    """Renew the leases; without that, the node lifecycle controller evicts a node's pods after 50 s.

    Like the kubelet's sync, correct conditions of nodes and pods that this controller has changed meanwhile.
    """
    while not stop.wait(every):
        for name in names:
            try:
                beat(client, name)
                correct(client, name)
            except KubeError as error:
                log.warning("heartbeat failed", extra={"node": name, "error": str(error)})
        correct_pods()
