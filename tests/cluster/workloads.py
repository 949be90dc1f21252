"""What the tests put on a lab, and how they look at it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from calico.segment import IPReservation, Record
from dev.judge.observation import is_ready
from dev.lab import install
from dev.lab.direct import urlopen
from dev.lab.session import Lab
from kube.client import Client, Resource
from kube.errors import ApiError
from kube.resources import DEPLOYMENTS, EVENTS, NAMESPACES, PODS, STATEFUL_SETS
from kube.types import Pod

RESERVATION = {"duration": "1h", "maxCount": 1000, "advanced": {"releasePeriod": "1s"}}
VALUES = {"replicaCount": 2, "ipReservation": RESERVATION}
"""Of the labs that tests share: nothing is released unless a test wants it."""
SECONDS = 60
"""For what is awaited: most of it takes one."""
STORED_SOON = "10m"
"""Of a reservation: the fortieth part, after which the end of a pod is stored, is much less than SECONDS."""
GROUPS = {
    "v3": Resource("projectcalico.org", "v3", "ipreservations", namespaced=False),
    "v1": Resource("crd.projectcalico.org", "v1", "ipreservations", namespaced=False),
}


def namespace(client: Client, name: str, **labels: str) -> str:
    client.create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    )
    return name


def reserved_namespace(client: Client, name: str) -> str:
    return namespace(client, name, **{"ip-reserve": "enabled"})


def pod_template(labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    container = {"name": "redis", "image": "redis", "command": ["redis-server"]}
    return {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1} | spec,
    }


def workload(kind: str, name: str, template: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """One of group apps, whose pods are labelled with its name."""
    labels = {"app": name}
    metadata = {**template["metadata"], "labels": labels}
    body = {"selector": {"matchLabels": labels}, "template": {**template, "metadata": metadata}, **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": body}


def create_pod(
    lab: Lab, namespace: str, name: str, labels: dict[str, str] | None = None, **spec: Any
) -> None:
    metadata = {"name": name, "labels": labels or {"brokerId": name}}
    pod = {"apiVersion": "v1", "kind": "Pod"} | pod_template({}, **spec) | {"metadata": metadata}
    # The ServiceAccount of a new namespace comes a moment after it.
    lab.wait(lambda: _created(lab.client, pod, namespace), SECONDS, f"pod {namespace}/{name} to be accepted")


def running_pod(lab: Lab, namespace: str, name: str, **spec: Any) -> Pod:
    create_pod(lab, namespace, name, **spec)
    what = f"pod {namespace}/{name} to run"
    return lab.wait(lambda: _if_running(get_pod(lab, namespace, name)), SECONDS, what)


def running_statefulset(
    lab: Lab, namespace: str, replicas: int, name: str = "redis", **spec: Any
) -> list[Pod]:
    at_once = {"replicas": replicas, "serviceName": name, "podManagementPolicy": "Parallel"}
    body = workload("StatefulSet", name, pod_template({}, **spec), **at_once)
    lab.client.create(STATEFUL_SETS, body, namespace)

    def all_running() -> list[Pod] | None:
        found = [pod for pod in pods_of(lab, namespace) if _if_running(pod)]
        return found if len(found) == replicas else None

    return lab.wait(all_running, 2 * SECONDS, f"{replicas} pods of {namespace}/{name} to run")


def pods_of(lab: Lab, namespace: str) -> list[Pod]:
    return lab.client.list(PODS, namespace, type=Pod).items


def get_pod(lab: Lab, namespace: str, name: str) -> Pod:
    return lab.client.get(PODS, name, namespace, type=Pod)


def evict(lab: Lab, pod: Pod) -> None:
    lab.client.evict(pod.metadata.name, pod.metadata.namespace, preconditions={})


def evict_absent(client: Client, namespace: str, **eviction: Any) -> None:
    """A pod that does not exist: admission comes before its look-up, so it was admitted when this raises NotFound."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "absent"}} | eviction
    client.request("POST", PODS.sub("eviction").path(namespace, "absent"), body=body, timeout=60)


def delete_collection(lab: Lab, namespace: str) -> None:
    lab.client.request("DELETE", PODS.path(namespace), type=bytes, timeout=60)


def records(lab: Lab, group: str) -> dict[str, Record]:
    """What is held, by the uid of its pod."""
    return {record.uid: record for record in all_records(lab, group)}


def all_records(lab: Lab, group: str) -> list[Record]:
    """What is held: several for a pod that has several addresses."""
    segments = lab.client.list(GROUPS[group], type=IPReservation).items
    return [record for each in segments if each.ours for record in each.records]


def settle(lab: Lab, group: str) -> None:
    """Until the controllers have had their chance: a later pod of theirs has been reserved late."""
    pod = running_pod(lab, _settling(lab), f"p-{secrets.token_hex(4)}")
    patch_status(lab, pod, phase="Failed", reason="Evicted")
    lab.wait(lambda: pod.metadata.uid in records(lab, group), SECONDS, "the controllers to catch up")


@contextmanager
def configured(lab: Lab, **values: Any) -> Iterator[None]:
    """Values of the chart over those of the shared labs, in force for a while, while all pods run on."""
    pods = {pod.metadata.uid for pod in pods_of(lab, "drawbridge")}
    reconfigure(lab, install.merged(VALUES, values))
    try:
        yield
        assert {pod.metadata.uid for pod in pods_of(lab, "drawbridge")} == pods
    finally:
        reconfigure(lab, VALUES)


def reconfigure(lab: Lab, values: dict[str, Any]) -> None:
    """Back when all processes, which run on, say that they have other settings than before, and the same."""
    before = _hashes(lab)
    install.upgrade(lab, values)
    lab.wait(lambda: _is_new(_hashes(lab), before), 90, "all processes to take the new configuration")


def metrics(lab: Lab, component: str) -> list[str]:
    """The scrape of each ready pod of a component of the chart."""
    pods = pods_of_component(lab, component)
    addresses = [pod["status"]["podIP"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return [_scrape(address) for address in addresses]


def pods_of_component(lab: Lab, component: str) -> list[dict[str, Any]]:
    """Those on their way out included."""
    selector = f"app.kubernetes.io/component={component}"
    return lab.client.list(PODS, "drawbridge", label_selector=selector).items


def scale(lab: Lab, component: str, replicas: int) -> None:
    """Until so many pods of a component of the chart are there, and all are ready."""
    change = {"spec": {"replicas": replicas}}
    lab.client.patch(DEPLOYMENTS.sub("scale"), f"drawbridge-{component}", change, "drawbridge")
    lab.wait(
        lambda: [is_ready(each) for each in pods_of_component(lab, component)] == [True] * replicas,
        90,
        f"{replicas} pods of {component} to be ready",
    )


def counted_by_api_server(lab: Lab, name: str, webhook: str) -> int:
    """A metric of its admission, over all series of webhooks with that in their labels."""
    metrics = lab.client.request("GET", "/metrics", type=bytes).decode()
    found = re.findall(rf"^apiserver_admission_webhook_{name}\{{([^}}]*)\}} (\S+)", metrics, re.MULTILINE)
    return sum(int(float(count)) for labels, count in found if webhook in labels)


def sample(scrape: str, name: str) -> float:
    """The sum of a metric over its labels."""
    lines = [line.rsplit(" ", 1) for line in scrape.splitlines() if line.startswith((name + " ", name + "{"))]
    return sum(float(value) for _, value in lines)


def patch_status(lab: Lab, pod: Pod, **status: Any) -> Pod:
    meta = pod.metadata
    return lab.client.patch(PODS.sub("status"), meta.name, {"status": status}, meta.namespace, type=Pod)


def events(lab: Lab, namespace: str, reason: str) -> list[dict[str, Any]]:
    return lab.client.list(EVENTS, namespace, field_selector=f"reason={reason}").items


def messages(client: Client, namespace: str, **about: str) -> dict[str, str]:
    """Of the Events *about* an object, by reason. Several follow each other by their names, which are random."""
    selector = ",".join(f"involvedObject.{key}={value}" for key, value in about.items())
    found: dict[str, str] = {}
    for event in client.list(EVENTS, namespace, field_selector=selector).items:
        found[event["reason"]] = f"{found.get(event['reason'], '')}{event.get('message', '')}\n"
    return found


def _is_new(hashes: set[float], before: set[float]) -> bool:
    return len(hashes) == 1 and not hashes & before


def _hashes(lab: Lab) -> set[float]:
    scrapes = metrics(lab, "webhook") + metrics(lab, "controllers")
    return {sample(each, "drawbridge_config_hash") for each in scrapes}


def _settling(lab: Lab) -> str:
    found = lab.client.find(NAMESPACES, "settle")
    return "settle" if found else reserved_namespace(lab.client, "settle")


def _scrape(address: str) -> str:
    with urlopen(f"http://{address}:8080/metrics", timeout=SECONDS) as answer:
        return str(answer.read().decode())


def _created(client: Client, pod: dict[str, Any], namespace: str) -> bool:
    try:
        client.create(PODS, pod, namespace, type=msgspec.Raw)
    except ApiError as error:
        if "serviceaccount" in error.message:
            return False
        raise
    return True


def _if_running(pod: Pod) -> Pod | None:
    return pod if pod.status.phase == "Running" and pod.status.addresses else None
