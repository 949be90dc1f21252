"""Admission is at work when the API server itself has called it by its Service and had an answer."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from api.anycast_ip import is_tainted
from api.elasticity import GATE, LOCAL_REPLICAS
from api.ingress_daemonset import INGRESS_DAEMONSETS, KIND
from cli.installation import POLICIES
from dev.lab.waiting import until
from kube.client import Client
from kube.errors import ApiError, Invalid, NotFound
from kube.resources import MUTATING_WEBHOOKS, NAMESPACES, NODES, PODS
from kube.types import Node

WEBHOOK_CONFIGURATION, POLICY = "drawbridge", "drawbridge-anycast-ip"
SECONDS = 90


def await_evictions(client: Client) -> None:
    """Wait for ip_reservation's webhook.

    The question is an eviction of a pod that does not exist: admission comes before the look-up of the pod.
    """
    # Another name each time: the last namespace may still be terminating.
    name = f"drawbridge-lab-probe-{secrets.token_hex(4)}"
    metadata = {"name": name, "labels": {"ip-reserve": "enabled"}}
    client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    # Those of an installation that is gone are counted, too.
    before = webhook_answers(_api_server_metrics(client))

    def called() -> bool:
        # Not found, or refused while the webhook is not in reach: the metrics show which.
        with suppress(ApiError):
            client.evict("absent", name, preconditions={})
        return webhook_answers(_api_server_metrics(client)) > before

    try:
        until(called, SECONDS, "the API server to call Drawbridge's webhook for evictions", every=0.2)
    finally:
        client.delete(NAMESPACES, name)


def await_gate(client: Client) -> None:
    """Wait for anycast_ip's webhook or policy: a node that it is for, created in a dry run, comes back tainted."""
    metadata = {"name": "drawbridge-lab-probe", "labels": _labels_of_nodes(client)}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}

    def gated() -> bool:
        return is_tainted(client.request("POST", NODES.path(), body=node, query={"dryRun": "All"}, type=Node))

    until(gated, SECONDS, "the API server to taint nodes", every=0.2)


def await_placement(client: Client) -> None:
    """Wait for elasticity's webhook: a pod that it is registered for, created in a dry run, comes back gated."""
    metadata = {"name": "drawbridge-lab-probe", "annotations": {LOCAL_REPLICAS: "0"}}
    spec = {"containers": [{"name": "probe", "image": "probe"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def gated() -> bool:
        born = client.request("POST", PODS.path("default"), body=pod, query={"dryRun": "All"})
        return {"name": GATE} in born["spec"].get("schedulingGates", ())

    until(gated, SECONDS, "the API server to call Drawbridge's webhook for pods", every=0.2)


def await_ingress_daemonsets(client: Client) -> None:
    """Wait for both of ingress_daemonset's webhooks: one adds defaults, the other refuses what the schema takes."""
    faulty = {"rollingUpdate": {"maxUnavailablePodsPerNode": 0, "maxSurgedPodsPerNode": 0}}

    def at_work() -> bool:
        born, refused = _dry_run(client, {}), _dry_run(client, {"updateStrategy": faulty})
        defaulted = isinstance(born, dict) and "podsPerNode" in born["spec"]
        return defaulted and isinstance(refused, Invalid) and "maxSurgedPodsPerNode" in refused.message

    until(at_work, SECONDS, "the API server to call Drawbridge's webhooks for IngressDaemonSets", every=0.2)


def webhook_answers(metrics: str) -> int:
    """How many answers by ip_reservation's webhook the API server's metrics count."""
    found = re.findall(r"^apiserver_admission_webhook_request_total\{([^}]*)\} (\S+)", metrics, re.MULTILINE)
    wanted = {'code="200"', 'name="ip-reservation.drawbridge.io"'}
    return sum(int(float(count)) for labels, count in found if wanted <= set(labels.split(",")))


def _labels_of_nodes(client: Client) -> Mapping[str, str]:
    """Of the policy, or of the webhook where the API server serves no policies."""
    try:
        gate = client.get(POLICIES["MutatingAdmissionPolicy"], POLICY)["spec"]["matchConstraints"]
    except NotFound:
        registered = client.get(MUTATING_WEBHOOKS, WEBHOOK_CONFIGURATION)["webhooks"]
        (gate,) = (each for each in registered if each["name"] == "anycast-ip.drawbridge.io")
    labels: dict[str, str] = gate["objectSelector"]["matchLabels"]
    return labels


def _dry_run(client: Client, spec: Mapping[str, Any]) -> dict[str, Any] | ApiError:
    """An IngressDaemonSet with *spec* as it would be stored, or why it would not."""
    pod = {"containers": [{"name": "probe", "image": "probe"}]}
    template = {"metadata": {"labels": {"app": "probe"}}, "spec": pod}
    body = {
        "apiVersion": INGRESS_DAEMONSETS.api_version,
        "kind": KIND,
        "metadata": {"name": "drawbridge-lab-probe"},
        "spec": {"template": template, **spec},
    }
    path = INGRESS_DAEMONSETS.path("default")
    try:
        return client.request("POST", path, body=body, query={"dryRun": "All"})
    except ApiError as error:
        return error  # what is not served yet is not found


def _api_server_metrics(client: Client) -> str:
    return client.request("GET", "/metrics", type=bytes).decode()
