"""Servers on our own gunicorn settings that serve something else, and Deployments as large as is wanted."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from certs import issue
from dev.judge.observation import is_ready, is_terminating
from dev.lab.install import NAMESPACE, RELEASE, SECRETS
from dev.lab.session import Lab
from kube.client import Client, Resource
from kube.errors import NotFound
from kube.resources import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, PODS, SERVICES

BENCH = "bench"
"""The namespace of what is not ours."""
SERVERS, CONTROLLERS = f"{RELEASE}-webhook", f"{RELEASE}-controllers"
PATIENCE = 60.0
TLS = "/etc/drawbridge/tls"

Place = tuple[str, str]
"""Namespace and name of a Deployment."""


def deploy(client: Client, name: str, app: str) -> bytes:
    """A server of *app* on our gunicorn settings: our own Deployment with another command, as yet without pods.

    It gets a Service of its name and a certificate for it; the certificate of its authority is returned.
    """
    spec = deployment_spec(client.get(DEPLOYMENTS, SERVERS, NAMESPACE)["spec"], name, app)
    return _publish(client, name, spec)


def deploy_program(client: Client, name: str, program: Path) -> bytes:
    """The same with *program*, which is given where to listen, its certificate and its key."""
    spec = deployment_spec(client.get(DEPLOYMENTS, SERVERS, NAMESPACE)["spec"], name, "")
    return _publish(client, name, program_spec(spec, program))


def _publish(client: Client, name: str, spec: Mapping[str, Any]) -> bytes:
    _create_namespace(client)
    authority, leaf = _certificate(f"{name}.{BENCH}.svc")
    tls = {"tls.crt": leaf.certificate, "tls.key": leaf.key}
    secret = {"data": {key: base64.b64encode(value).decode() for key, value in tls.items()}}
    _create(client, SECRETS, "Secret", f"{name}-tls", {"type": "kubernetes.io/tls", **secret})
    config = client.get(CONFIG_MAPS, f"{RELEASE}-config", NAMESPACE)["data"]
    _create(client, CONFIG_MAPS, "ConfigMap", f"{name}-config", {"data": config})
    ports = [{"port": 443, "targetPort": "webhook"}]
    _create(client, SERVICES, "Service", name, {"spec": {"selector": {"app": name}, "ports": ports}})
    _create(client, DEPLOYMENTS, "Deployment", name, {"spec": spec}, "apps/v1")
    return authority


def program_spec(spec: Mapping[str, Any], program: Path) -> dict[str, Any]:
    """*spec* with *program* in place of its server, and a probe that any server passes."""
    pod = spec["template"]["spec"]
    [container] = pod["containers"]
    [port] = [each["containerPort"] for each in container["ports"] if each["name"] == "webhook"]
    kept = {key: container[key] for key in ("name", "image", "env", "ports", "volumeMounts", "resources")}
    command = [str(program), f"$(POD_IP):{port}", f"{TLS}/tls.crt", f"{TLS}/tls.key"]
    ready = {"httpGet": {"port": "webhook", "scheme": "HTTPS"}}
    pod = pod | {"containers": [kept | {"command": command, "readinessProbe": ready}]}
    return {**spec, "template": {**spec["template"], "spec": pod}}


def deployment_spec(ours: Mapping[str, Any], name: str, app: str) -> dict[str, Any]:
    """Our own Deployment's *spec*, serving *app* instead: the gunicorn settings, probes and limits stay."""
    pod = ours["template"]["spec"]
    [container] = pod["containers"]
    command = [app if word == "wsgi:app" else word for word in container["command"]]
    volumes = [
        {"name": "config", "configMap": {"name": f"{name}-config"}},
        {"name": "tls", "secret": {"secretName": f"{name}-tls", "defaultMode": 0o440}},
        {"name": "tmp", "emptyDir": {}},
    ]
    spec = pod | {"containers": [container | {"command": command}], "volumes": volumes}
    labels = {"app": name}
    return {
        "replicas": 0,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": spec | {"serviceAccountName": "default", "serviceAccount": "default"},
        },
    }


def scale(client: Client, place: Place, replicas: int) -> None:
    namespace, name = place
    client.patch(DEPLOYMENTS, name, {"spec": {"replicas": replicas}}, namespace)


def replicas(client: Client, place: Place) -> int:
    """How many pods it is asked for."""
    namespace, name = place
    return int(client.get(DEPLOYMENTS, name, namespace)["spec"]["replicas"])


def await_scaled(lab: Lab, place: Place, replicas: int) -> None:
    """Until all its pods are ready, and no other one of it is left."""
    namespace, name = place
    selector = lab.client.get(DEPLOYMENTS, name, namespace)["spec"]["selector"]["matchLabels"]
    labels = ",".join(f"{key}={value}" for key, value in selector.items())

    def scaled() -> bool:
        pods = lab.client.list(PODS, namespace, label_selector=labels).items
        return len(pods) == replicas and all(is_ready(pod) and not is_terminating(pod) for pod in pods)

    lab.wait(scaled, PATIENCE, f"{replicas} ready pods of {namespace}/{name}")


def _certificate(host: str) -> tuple[bytes, issue.Pair]:
    begin = datetime.now(UTC) - timedelta(minutes=5)
    end = begin + timedelta(days=1)
    authority = issue.new_ca("drawbridge bench", begin, end)
    return authority.certificate, issue.new_leaf(authority, [host], [], begin, end)


def _create_namespace(client: Client) -> None:
    try:
        client.get(NAMESPACES, BENCH)
    except NotFound:
        client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": BENCH}})


def _create(
    client: Client, resource: Resource, kind: str, name: str, rest: Mapping[str, Any], version: str = "v1"
) -> None:
    client.create(resource, {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **rest}, BENCH)
