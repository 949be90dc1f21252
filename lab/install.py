"""What an operator installs, installed as an operator does: CRDs, a certificate, and the chart by Helm."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from certs import issue
from kube.client import Client, Resource
from kube.errors import AlreadyExists, ApiError
from lab import trouble
from lab.errors import LabError
from lab.session import Lab
from lab.waiting import until

CRDS = Path(__file__).parent / "crds"
CHART = Path(__file__).parent.parent / "charts" / "drawbridge"
RELEASE = NAMESPACE = "drawbridge"
TLS_SECRET = "drawbridge-lab-tls"  # noqa: S105 - the name of a Secret, not its content
HELM_TIMEOUT = "90s"
GROUPS = {
    "projectcalico.org/v3": ("projectcalico.org",),
    "crd.projectcalico.org/v1": ("crd.projectcalico.org",),
    "both": ("projectcalico.org", "crd.projectcalico.org"),
}
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
SECRETS = Resource("", "v1", "secrets")
PODS = Resource("", "v1", "pods")
DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)


def install_crds(client: Client, calico: str) -> None:
    """Make the API server serve IPReservation in one Calico API version, or in "both"."""
    if calico not in GROUPS:
        raise LabError(f"calico: '{calico}' is not known; take one of {', '.join(GROUPS)}")
    for group in GROUPS[calico]:
        definition = yaml.safe_load((CRDS / f"{group}_ipreservations.yaml").read_text())
        client.create(DEFINITIONS, definition)
        served = Resource(
            group, definition["spec"]["versions"][0]["name"], "ipreservations", namespaced=False
        )
        until(partial(client.serves, served), 15, f"the API server to serve {served.api_version}")


def install_chart(lab: Lab, values: Mapping[str, Any]) -> None:
    """``helm install`` with *values* over the lab's own; back when admission and controllers are at work."""
    client = lab.client
    _create(client, NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    installed = merged(lab_values(_create_certificate(client)), values)
    _values_file(lab).write_text(yaml.safe_dump(installed))
    _helm(lab, "install", installed)


def upgrade(lab: Lab, values: Mapping[str, Any]) -> None:
    """``helm upgrade`` to *values* over those of the installation; nothing stays of an upgrade before."""
    installed = yaml.safe_load(_values_file(lab).read_text())
    _helm(lab, "upgrade", merged(installed, values))


def lab_values(ca_bundle: bytes) -> dict[str, Any]:
    """Where the lab differs from a cluster of machines: its nodes, its addresses and its certificate."""
    return {
        "bindHost": "$(POD_IP)",
        "nodeSelector": {"drawbridge.io/lab": "node"},
        "tolerations": [{"key": "drawbridge.io/lab", "operator": "Exists", "effect": "NoSchedule"}],
        "certs": {
            "mode": "files",
            "existingSecret": TLS_SECRET,
            "caBundle": base64.b64encode(ca_bundle).decode(),
        },
    }


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both, as Helm merges values files: mappings key by key, everything else as *over* has it."""
    both = {
        key: merged(base[key], over[key])
        for key in base.keys() & over.keys()
        if _are_mappings(base[key], over[key])
    }
    return {**base, **over, **both}


def webhook_was_answered(metrics: str) -> bool:
    """Whether the API server's own metrics tell of an answer by one of Drawbridge's validating webhooks."""
    found = re.findall(r"^apiserver_admission_webhook_request_total\{([^}]*)\} (\d+)", metrics, re.MULTILINE)
    return any(
        'code="200"' in labels and 'drawbridge.io"' in labels and int(count) for labels, count in found
    )


def _are_mappings(*values: object) -> bool:
    return all(isinstance(value, Mapping) for value in values)


def _create_certificate(client: Client) -> bytes:
    """Put a serving certificate into the chart's Secret, and give the authority that clients must trust."""
    begin = datetime.now(UTC) - timedelta(minutes=5)
    end = begin + timedelta(days=30)
    ca = issue.new_ca("drawbridge lab", begin, end)
    service = f"{RELEASE}-webhook.{NAMESPACE}.svc"
    leaf = issue.new_leaf(ca, [service], [], begin, end)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": TLS_SECRET},
        "data": {
            "tls.crt": base64.b64encode(leaf.certificate).decode(),
            "tls.key": base64.b64encode(leaf.key).decode(),
        },
    }
    client.create(SECRETS, secret, NAMESPACE)
    return ca.certificate


def _helm(lab: Lab, verb: str, values: Mapping[str, Any]) -> None:
    command = [verb, RELEASE, str(CHART), "--namespace", NAMESPACE, "--values", "-"]
    try:
        lab.helm(*command, "--wait", "--timeout", HELM_TIMEOUT, stdin=yaml.safe_dump(dict(values)))
    except LabError as error:
        pods = lab.client.list(PODS, NAMESPACE).items
        raise LabError(f"{error}\n{trouble.describe(pods, lab.directory)}") from error
    if values.get("ipReservation", {}).get("enabled", True):
        _await_admission(lab.client)


def _await_admission(client: Client) -> None:
    """Wait until the API server itself has called the webhook by its Service and had an answer.

    The question is an eviction of a pod that does not exist: admission comes before the look-up of the pod.
    """
    # A name of its own each time: the last one's namespace may still be terminating.
    name = f"drawbridge-lab-probe-{secrets.token_hex(4)}"
    metadata = {"name": name, "labels": {"ip-reserve": "enabled"}}
    client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def called() -> bool:
        _evict_nobody(client, name)
        return webhook_was_answered(_api_server_metrics(client))

    try:
        until(called, 30, "the API server to call Drawbridge's webhook", every=0.2)
    finally:
        client.delete(NAMESPACES, name)


def _evict_nobody(client: Client, namespace: str) -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "nobody"}}
    path = PODS.path(namespace, "nobody", "eviction")
    try:
        client.request("POST", path, body=eviction)
    except ApiError:
        return  # not found, or refused while the webhook is not in reach: the metrics tell which


def _api_server_metrics(client: Client) -> str:
    return client.request("GET", "/metrics", type=bytes).decode()


def _create(client: Client, resource: Resource, body: Mapping[str, Any]) -> None:
    try:
        client.create(resource, body)
    except AlreadyExists:
        return


def _values_file(lab: Lab) -> Path:
    return lab.directory / "values.yaml"
