"""A client certificate of the API server for Drawbridge's webhooks, which it presents where a server requests one."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.x509.oid import ExtendedKeyUsageOID

from certs import issue

HOST = "drawbridge-webhook.drawbridge.svc"
"""Of the release that labs install."""
PLUGINS = ("ValidatingAdmissionWebhook", "MutatingAdmissionWebhook")
CA_FILE = "webhook-client-ca.crt"


def prepare(directory: Path) -> dict[str, str]:
    """The API server's arguments for the lab in *directory*, where the certificate and its CA are then."""
    begin = datetime.now(UTC) - timedelta(minutes=5)
    end = begin + timedelta(days=30)
    ca = issue.new_ca("webhook clients", begin, end)
    leaf = issue.new_leaf(ca, ["kube-apiserver"], [], begin, end, ExtendedKeyUsageOID.CLIENT_AUTH)
    (directory / CA_FILE).write_bytes(ca.certificate)
    client, kubeconfig, admission = (
        directory / f"webhook-client.{ending}" for ending in ("pem", "kubeconfig", "admission.json")
    )
    client.write_bytes(leaf.certificate + leaf.key)
    user = {"client-certificate": str(client), "client-key": str(client)}
    _write(kubeconfig, {"apiVersion": "v1", "kind": "Config", "users": [{"name": HOST, "user": user}]})
    _write(admission, _configuration(kubeconfig))
    return {"admission-control-config-file": str(admission)}


def _configuration(kubeconfig: Path) -> dict[str, Any]:
    group = {"apiVersion": "apiserver.config.k8s.io/v1"}
    calls = {**group, "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": str(kubeconfig)}
    plugins = [{"name": name, "configuration": calls} for name in PLUGINS]
    return {**group, "kind": "AdmissionConfiguration", "plugins": plugins}


def _write(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=1))
