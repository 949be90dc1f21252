"""The chart as Helm takes it: what is installed for which values, and what is refused."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import binaries
from settings import Settings, parse

CHART = Path(__file__).parent.parent / "charts" / "drawbridge"
CERTS = {"certs": {"mode": "files", "existingSecret": "drawbridge-tls", "caBundle": "Q0E="}}
NAMESPACE = "gate-system"
CAPO_VALUES = """
replicaCount: 3
config:
  leaderElectionEnable: true
  healthProbeBindAddress: ":8081"
  webhookPort: 9443
  metricsBindAddress: ":8080"
  ipReserveMaxCount: 300
  ipReserveTime: 40m
  ipReleasePeriod: 5s
"""
"""All that the original of ip_reservation, Capo, can be installed with."""
ANYCAST_IP: dict[str, Any] = {
    "anycastIP": {"enabled": True, "clusterID": "cls-1"},
    "cloud": {"region": "ap-singapore", "secretID": "key-id", "secretKey": "a-secret"},
}

Objects = dict[tuple[str, str], dict[str, Any]]
helm_needed = pytest.mark.cluster


@functools.cache
def program() -> str:
    return str(binaries.ensure("helm")["helm"])


def helm(*arguments: str, values: dict[str, Any], certs: bool = True) -> subprocess.CompletedProcess[str]:
    command = [program(), *arguments, "--namespace", NAMESPACE, "--values", "-"]
    text = json.dumps(CERTS | values if certs else values)
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)


@functools.cache
def rendered(values: str) -> str:
    result = helm("template", "drawbridge", str(CHART), values=json.loads(values))
    assert result.returncode == 0, result.stderr
    return result.stdout


def render(values: dict[str, Any] | None = None) -> Objects:
    documents = [document for document in yaml.safe_load_all(rendered(json.dumps(values or {}))) if document]
    objects = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    assert len(objects) == len(documents), "two objects have one name"
    return objects


def refusal(values: dict[str, Any]) -> str:
    """What Helm says to values that it does not take."""
    result = helm("template", "drawbridge", str(CHART), values=values)
    assert result.returncode != 0
    return result.stderr


def notes(values: dict[str, Any]) -> str:
    result = helm("install", "drawbridge", str(CHART), "--dry-run=client", values=values)
    assert result.returncode == 0, result.stderr
    return result.stdout.partition("NOTES:")[2]


def settings_in(objects: Objects) -> Settings:
    (config,) = (document for (kind, _), document in objects.items() if kind == "ConfigMap")
    return parse(config["data"]["config.yaml"])


def pod_spec(objects: Objects, name: str) -> dict[str, Any]:
    return objects["Deployment", name]["spec"]["template"]["spec"]


def annotations(objects: Objects, name: str) -> dict[str, str]:
    return objects["Deployment", name]["spec"]["template"]["metadata"]["annotations"]


def mutating(objects: Objects) -> dict[str, Any]:
    """The first webhook, where one feature is on."""
    webhook: dict[str, Any] = objects["MutatingWebhookConfiguration", "drawbridge"]["webhooks"][0]
    return webhook


def cloud_keys(objects: Objects) -> dict[str, str]:
    return objects["Secret", "drawbridge-cloud"]["stringData"]


def rights(objects: Objects, *roles: tuple[str, str]) -> dict[str, set[str]]:
    return {
        f"{group}/{resource}": set(rule["verbs"])
        for role in roles
        for rule in objects[role]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
