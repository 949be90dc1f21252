"""Where the steps play: the nodes, the Redis-like cluster, and Drawbridge and a cloud with times to watch."""

from __future__ import annotations

import re
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from controllers.anycast_ip.claim import FIELD, SELECTED
from dev.demo.fleet import Look
from dev.demo.table import Rules
from dev.lab.cloud.remote import Remote
from dev.lab.cloud.values import Address, Task
from dev.lab.install import NAMESPACE as DRAWBRIDGE
from kube.client import Client, Resource
from kube.resources import CONFIG_MAPS

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "drawbridge"
NAMESPACE, REPLICAS = "redis", 9
PODS = Resource("", "v1", "pods")
DEPLOYMENTS = Resource("apps", "v1", "deployments")
RESERVATIONS = Resource("projectcalico.org", "v3", "ipreservations", namespaced=False)

RULES = Rules(reserve_time=10.0, max_count=300)
VALUES: dict[str, Any] = {
    "replicaCount": 2,
    "controllers": {"replicaCount": 2},
    "config": {
        "ipReserveTime": f"{RULES.reserve_time:g}s",
        "ipReserveMaxCount": RULES.max_count,
        "ipReleasePeriod": "1s",
    },
    "elasticity": {"enabled": True},
    "ingressDaemonSet": {"enabled": True},
    "eksAdmission": {"autoScaleEKS": "false"},
    "cloud": {"subnets": [{"id": "subnet-demo0001", "zone": "ap-singapore-1"}]},
}
CLOUD: dict[str, Any] = {"bind_seconds": 1.5}
"""Long enough to be seen."""


def programs(client: Client) -> frozenset[str]:
    """Drawbridge's own pods, each with its uid and the number of its restarts."""
    return frozenset(
        f"{pod['metadata']['name']} {pod['metadata']['uid']} restarted {_restarts(pod)} times"
        for pod in client.list(PODS, DRAWBRIDGE).items
    )


def webhooks(client: Client) -> dict[str, int]:
    """The webhook's replicas that are ready, and how often each was restarted."""
    pods = client.list(PODS, DRAWBRIDGE, label_selector="app.kubernetes.io/component=webhook").items
    return {pod["metadata"]["name"]: _restarts(pod) for pod in pods if _is_ready(pod)}


def is_in_force(client: Client, rules: Rules) -> bool:
    """Whether the leader's metrics show the configuration with *rules*."""
    pods = client.list(PODS, DRAWBRIDGE, label_selector="app.kubernetes.io/component=controllers").items
    return any(_max_count(_metrics(pod)) == rules.max_count for pod in pods)


def on_record(cloud: Remote, client: Client) -> Look:
    """What the cloud has at this moment, and which claims there are."""
    state, at = cloud.state(), datetime.now(UTC)
    claims = client.list(CONFIG_MAPS, DRAWBRIDGE, label_selector=SELECTED).items
    return Look(
        at=at,
        addresses=msgspec.convert(state["addresses"], list[Address]),
        ordered=state["calls"].get("AllocateAddresses", {}).get("OK", 0),
        binding=_binding(msgspec.convert(state["running"], list[Task])),
        tags=frozenset(tag["value"] for tag in state["tags"]),
        claims=frozenset(msgspec.json.decode(each["data"][FIELD])["uid"] for each in claims),
    )


def _binding(tasks: list[Task]) -> dict[str, datetime]:
    return {
        address: datetime.fromtimestamp(task.due, UTC)
        for task in tasks
        if task.kind == "bind"
        for address in task.addresses
    }


def _restarts(pod: dict[str, Any]) -> int:
    return sum(status["restartCount"] for status in pod["status"].get("containerStatuses", ()))


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _metrics(pod: dict[str, Any]) -> str:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"http://{pod['status']['podIP']}:8080/metrics", timeout=2) as answer:
            text: str = answer.read().decode()
    except OSError:
        return ""  # it does not serve at this moment: the caller looks again
    return text


def _max_count(metrics: str) -> float | None:
    found = re.search(r"^ip_reserve_count_max (\S+)$", metrics, re.MULTILINE)
    return float(found[1]) if found else None
