"""What an operator installs, installed as an operator does: CRDs, a certificate, and the chart by Helm."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from certs import issue
from dev.lab import admission, diagnostics, nodes
from dev.lab.cloud import fixture
from dev.lab.errors import LabError
from dev.lab.session import Lab
from dev.lab.waiting import until
from kube.client import Client, Resource
from kube.errors import AlreadyExists
from kube.resources import CONFIG_MAPS, NAMESPACES, PODS

CRDS = Path(__file__).parent / "crds"
CHART = Path(__file__).parents[2] / "charts" / "drawbridge"
RELEASE = NAMESPACE = "drawbridge"
TLS_SECRET = "drawbridge-lab-tls"  # noqa: S105 - the name of a Secret, not its content
HELM_TIMEOUT = "600s"
GROUPS = {
    "projectcalico.org/v3": ("projectcalico.org",),
    "crd.projectcalico.org/v1": ("crd.projectcalico.org",),
    "both": ("projectcalico.org", "crd.projectcalico.org"),
}
SECRETS = Resource("", "v1", "secrets")
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
        until(partial(client.serves, served), 60, f"the API server to serve {served.api_version}")


def install_chart(lab: Lab, values: Mapping[str, Any]) -> None:
    """``helm install`` with *values* over the lab's own; back when admission and controllers are at work.

    The super nodes that they register then take pods: kwok plays the provider's virtual kubelet behind them.
    What an installation before has left may be there.
    """
    installed = yaml.safe_load(prepare(lab, values).read_text())
    _helm(lab, "install", installed)
    if _is_enabled(installed, "elasticity"):
        for subnet in installed.get("cloud", {}).get("subnets", ()):
            nodes.play(lab.client, f"eklet-{subnet['id']}")


def prepare(lab: Lab, values: Mapping[str, Any]) -> Path:
    """What is there before an installation, and the file of its values: those of the lab, and *values* over them."""
    client = lab.client
    _create(client, NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    own = values.get("certs", {}).get("mode", "files") != "files"
    installed = merged(lab_values(lab, b"" if own else _create_certificate(client)), values)
    _values_file(lab).write_text(yaml.safe_dump(installed))
    return _values_file(lab)


def upgrade(lab: Lab, values: Mapping[str, Any]) -> None:
    """``helm upgrade`` to *values* over those of the installation; nothing stays of an upgrade before."""
    installed = yaml.safe_load(_values_file(lab).read_text())
    _helm(lab, "upgrade", merged(installed, values))


def edit_settings(lab: Lab, changes: Mapping[str, Any]) -> None:
    """Merge *changes* into the programs' file, for settings that are no values of the chart; an upgrade undoes it."""
    found = lab.client.get(CONFIG_MAPS, f"{RELEASE}-config", NAMESPACE)
    settings = yaml.safe_load(found["data"]["config.yaml"])
    kept = {key: found["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    changed = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": kept,
        "data": {**found["data"], "config.yaml": yaml.safe_dump(merged(settings, changes))},
    }
    # As Helm itself: its next upgrade would find a conflict with any other client.
    as_helm = ("--server-side", "--force-conflicts", "--field-manager=helm")
    lab.kubectl("apply", *as_helm, "-f", "-", stdin=yaml.safe_dump(changed))


def lab_values(lab: Lab, ca_bundle: bytes) -> dict[str, Any]:
    """Where the lab differs from a cluster of machines: its nodes, its addresses, its certificate and its cloud."""
    cloud = fixture.find(lab.logs)
    return {
        **(fixture.values(cloud.endpoint) if cloud else {}),
        # Its pods share the machine's network.
        "extraEnv": [{"name": "DRAWBRIDGE_BIND_HOST", "value": "$(POD_IP)"}],
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
        lab.helm(
            *command,
            "--wait",
            "--timeout",
            HELM_TIMEOUT,
            stdin=yaml.safe_dump(dict(values)),
        )
    except LabError as error:
        pods = lab.client.list(PODS, NAMESPACE).items
        raise LabError(f"{error}\n{diagnostics.describe(pods, lab.directory)}") from error
    if values.get("ipReservation", {}).get("enabled", True):
        admission.await_evictions(lab.client)
    if _is_enabled(values, "anycastIP"):
        admission.await_gate(lab.client)
    if _is_enabled(values, "elasticity"):
        admission.await_placement(lab.client)
    if _is_enabled(values, "ingressDaemonSet"):
        admission.await_ingress_daemonsets(lab.client)


def _is_enabled(values: Mapping[str, Any], feature: str) -> bool:
    return bool(values.get(feature, {}).get("enabled", False))


def _create(client: Client, resource: Resource, body: Mapping[str, Any]) -> None:
    try:
        client.create(resource, body)
    except AlreadyExists:
        return


def _values_file(lab: Lab) -> Path:
    return lab.directory / "values.yaml"
