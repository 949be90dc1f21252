"""A real Prometheus that scrapes a lab, as the operator would configure it from what the chart renders."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dev.lab import binaries, install, processes
from dev.lab.session import Lab
from dev.lab.waiting import until
from kube.client import Resource
from kube.resources import PODS

SECRETS = Resource("", "v1", "secrets")
SERVICES = Resource("", "v1", "services")
SWITCHED_ON = {
    "monitoring": {"serviceMonitor": {"enabled": True, "interval": "2s"}, "prometheusRule": {"enabled": True}}
}

OF_INGRESS_DAEMONSETS = {
    "drawbridge_ingress_daemonset_altered",
    "drawbridge_ingress_daemonset_canary_paused",
    "drawbridge_ingress_daemonset_canary_measurements_total",
    "drawbridge_ingress_daemonset_canary_unmeasured",
    "drawbridge_ingress_daemonset_waiting",
    "drawbridge_ingress_daemonset_checker_reads_total",
    "drawbridge_ingress_daemonset_halted",
    "drawbridge_ingress_daemonset_nodes",
    "drawbridge_ingress_daemonset_unconfirmed",
    "drawbridge_ingress_daemonset_writes_total",
    "drawbridge_ingress_daemonset_plan_seconds_bucket",
    "drawbridge_ingress_daemonset_rolled_back",
    "drawbridge_executor_failures_total",
    "drawbridge_healthchecker_answers_total",
    "drawbridge_healthchecker_blind",
    "drawbridge_healthchecker_healthy",
    "drawbridge_healthchecker_sight_age_seconds",
}
OF_POOLS = {
    "drawbridge_pool_addresses",
    "drawbridge_pool_assigned_addresses",
    "drawbridge_pool_free_addresses",
    "drawbridge_pool_reserved_addresses",
}
"""Of a cluster with Calico's pools, as that of test_ip_reservation_pools."""
OF_VALUES = {
    "drawbridge_elasticity_budget_in_force",
    "drawbridge_elasticity_tier_pods",
    "drawbridge_ingress_daemonset_connection_timeouts_total",
    "drawbridge_ingress_daemonset_load_balancer_failed",
    "drawbridge_ingress_daemonset_load_balancer_nodes",
    "drawbridge_ingress_daemonset_open_connections",
}
"""Of a cluster with budgets at hours, several tiers, nodes that load balancers detach, or connections."""
CONDITIONAL = (
    OF_INGRESS_DAEMONSETS
    | OF_POOLS
    | OF_VALUES
    | {
        "drawbridge_informer_undecodable_objects_total",
        "drawbridge_events_dropped_total",
        "drawbridge_config_reloads_total",
        "drawbridge_reservations_released_total",
        "drawbridge_workqueue_retries_total",
        "drawbridge_elasticity_placed_total",
        "drawbridge_elasticity_refused_total",
        "drawbridge_certificate_not_after_timestamp_seconds",
        "drawbridge_certificates_issued_total",
        "apiserver_admission_webhook_fail_open_count",
        "apiserver_admission_webhook_rejection_count",
    }
)
"""Series that a lab does not have until something happens that their names say."""

Object = dict[str, Any]


@dataclass(frozen=True)
class Prometheus:
    """One that is running."""

    url: str

    def names(self) -> set[str]:
        """Of all series that it has."""
        return set(self._get("label/__name__/values"))

    def query(self, expression: str) -> list[Object]:
        found: list[Object] = self._get("query", query=expression)["result"]
        return found

    def rules(self) -> list[Object]:
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str, **asked: str) -> Any:
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(asked)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]


@contextmanager
def scraping(lab: Lab, directory: Path, checkers: Mapping[str, str] | None = None) -> Iterator[Prometheus]:
    """One that runs during the block; its log is in *directory*.

    *checkers* says where the health checkers of nodes are: no kubelet of a lab runs them.
    """
    config = directory / "prometheus.yaml"
    config.write_text(yaml.safe_dump(configuration(lab, directory, checkers or {})))
    command = [binaries.ensure("prometheus")["prometheus"], f"--config.file={config}"]
    command += [f"--storage.tsdb.path={directory / 'data'}", "--web.listen-address=127.0.0.1:0"]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=processes.die_with_parent)
    try:
        yield Prometheus(until(lambda: ready_at(process), 60, "Prometheus to be ready"))
    finally:
        process.kill()
        process.wait()


def ready_at(process: subprocess.Popen[bytes]) -> str:
    """Its URL, once it answers: it listens a moment before that."""
    for host, port in processes.listeners([process.pid]):
        try:
            with urllib.request.urlopen(f"http://{host}:{port}/-/ready", timeout=30):
                return f"http://{host}:{port}"
        except urllib.error.HTTPError as refusal:
            refusal.close()
    return ""


def configuration(lab: Lab, directory: Path, checkers: Mapping[str, str]) -> Object:
    """What the operator makes of the monitors and rules that the chart renders for this lab."""
    objects = rendered(lab)
    rules = directory / "rules.yaml"
    rules.write_text(yaml.safe_dump(objects["PrometheusRule"]["spec"]))
    jobs = [*of_services(lab, objects["ServiceMonitor"])]
    if "PodMonitor" in objects:
        jobs += of_pods(lab, objects["PodMonitor"], checkers)
    return {"global": {"evaluation_interval": "1s"}, "rule_files": [str(rules)], "scrape_configs": jobs}


def rendered(lab: Lab) -> dict[str, Object]:
    """What only an operator's cluster can store, with the values of the lab's installation."""
    values = install.merged(yaml.safe_load((lab.directory / "values.yaml").read_text()), SWITCHED_ON)
    # Helm asks no server here, and an old one takes Kubernetes to be older than the chart allows.
    options = ("--namespace", install.NAMESPACE, "--kube-version=v1.30.0")
    command = ["template", install.RELEASE, str(install.CHART), *options]
    text = lab.helm(*command, "--values", "-", stdin=yaml.safe_dump(values)).stdout
    documents = [each for each in yaml.safe_load_all(text) if each]
    return {each["kind"]: each for each in documents if each["apiVersion"] == "monitoring.coreos.com/v1"}


def of_services(lab: Lab, monitor: Object) -> Iterator[Object]:
    """A job for each endpoint: the pods behind all Services that are selected."""
    spec = monitor["spec"]
    [namespace] = spec["namespaceSelector"]["matchNames"]
    for endpoint in spec["endpoints"]:
        targets = [
            target(pod, number, job=service["metadata"]["name"], service=service["metadata"]["name"])
            for service in lab.client.list(SERVICES, namespace).items
            if has(service, spec["selector"]["matchLabels"])
            for port in service["spec"]["ports"]
            if port["name"] == endpoint["port"]
            for pod in lab.client.list(PODS, namespace).items
            if has(pod, service["spec"]["selector"])
            for number in numbers(pod, port["targetPort"])
        ]
        yield job(monitor, endpoint, targets) | authorization(lab, namespace, endpoint)


def authorization(lab: Lab, namespace: str, endpoint: Object) -> Object:
    """The token of the Secret that the endpoint names."""
    if "authorization" not in endpoint:
        return {}
    reference = endpoint["authorization"]["credentials"]
    secret = lab.client.get(SECRETS, reference["name"], namespace)
    return {"authorization": {"credentials": b64decode(secret["data"][reference["key"]]).decode()}}


def of_pods(lab: Lab, monitor: Object, checkers: Mapping[str, str]) -> Iterator[Object]:
    """A job for each endpoint: the pods of all namespaces that are selected."""
    [selector] = monitor["spec"]["selector"]["matchExpressions"]
    pods = lab.client.list(PODS, label_selector=selector["key"]).items
    for endpoint in monitor["spec"]["podMetricsEndpoints"]:
        targets = [
            target({**pod, "status": {"podIP": checkers[node]}}, number, job=monitor["metadata"]["name"])
            for pod in pods
            if (node := pod["spec"].get("nodeName", "")) in checkers
            for number in numbers(pod, endpoint["port"])
        ]
        yield job(monitor, endpoint, targets)


def job(monitor: Object, endpoint: Object, targets: list[Object]) -> Object:
    assert targets, f"nothing is selected by {monitor['kind']} {monitor['metadata']['name']}"
    return {
        "job_name": f"{monitor['kind']}/{monitor['metadata']['name']}/{endpoint['port']}",
        "honor_labels": endpoint.get("honorLabels", False),
        "metrics_path": endpoint["path"],
        "scrape_interval": endpoint["interval"],
        "scrape_timeout": endpoint["interval"],
        "static_configs": targets,
    }


def target(pod: Object, number: tuple[str, int], **labels: str) -> Object:
    container, port = number
    about = {
        "namespace": pod["metadata"]["namespace"],
        "pod": pod["metadata"]["name"],
        "container": container,
    }
    return {"targets": [f"{pod['status']['podIP']}:{port}"], "labels": about | labels}


def numbers(pod: Object, name: str) -> list[tuple[str, int]]:
    """Containers with a port of that name, and its number."""
    return [
        (container["name"], port["containerPort"])
        for container in pod["spec"]["containers"]
        for port in container.get("ports", ())
        if port.get("name") == name
    ]


def has(thing: Object, labels: Mapping[str, str]) -> bool:
    return labels.items() <= thing["metadata"].get("labels", {}).items()
