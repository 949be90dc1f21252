"""A namespace with workloads that may go to super nodes, and where their pods are."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from api.elasticity import GATE, LOCAL_REPLICAS, REASON, SWITCH
from dev.lab.session import Lab
from kube.client import Resource
from kube.resources import DEPLOYMENTS, PODS
from kube.types import Pod
from tests.cluster import workloads
from tests.cluster.workloads import workload

T = TypeVar("T")
Raw = dict[str, Any]

ACCOUNTS = Resource("", "v1", "serviceaccounts")
CLAIMS = Resource("", "v1", "persistentvolumeclaims")
VOLUMES = Resource("", "v1", "persistentvolumes", namespaced=False)

SUBNET = {"id": "subnet-lab00001", "zone": "ap-guangzhou-3"}
VALUES: dict[str, Any] = {
    "replicaCount": 2,
    "controllers": {"replicaCount": 1, "leaseDuration": "10s"},
    "ipReservation": {"enabled": False},
    "elasticity": {"enabled": True},
    "cloud": {"subnets": [SUBNET]},
    "webhook": {"preStopSleep": "1s", "drainPeriod": "2s"},
}
SUPER = "eklet-"
"""How the names of super nodes begin, and no others."""
TOO_LARGE = {"cpu": "33"}
"""More than any node local has; a super node has a thousand."""
SECONDS = 90
"""For what is awaited: most of it takes one."""


class Shop:
    """The workloads of one test, in a namespace that stays: what runs there disturbs no other test."""

    def __init__(self, lab: Lab, namespace: str = "") -> None:
        """In a *namespace* that is there, or a new one."""
        self.lab, self.client = lab, lab.client
        self.namespace = namespace or workloads.namespace(lab.client, f"shop-{secrets.token_hex(4)}")
        await_account(lab, self.namespace)

    def create(self, resource: Resource, body: Mapping[str, Any]) -> None:
        self.client.create(resource, body, self.namespace)

    def deploy(self, name: str, replicas: int, template: Raw, **spec: Any) -> None:
        """A Deployment."""
        self.create(DEPLOYMENTS, workload("Deployment", name, template, replicas=replicas, **spec))

    def run(self, name: str, template: Raw) -> None:
        """A bare pod."""
        metadata = {**template["metadata"], "name": name}
        self.create(PODS, {"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata})

    def scale(self, name: str, replicas: int, resource: Resource = DEPLOYMENTS) -> None:
        """As an autoscaler does."""
        change = {"spec": {"replicas": replicas}}
        self.client.patch(resource.sub("scale"), name, change, self.namespace)

    def update(self, name: str, resource: Resource = DEPLOYMENTS) -> None:
        """Give its pods another template."""
        change = {"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}}
        self.client.patch(resource, name, change, self.namespace)

    def settle(self, name: str, replicas: int, resource: Resource = DEPLOYMENTS) -> None:
        """Until its controller says that all of them are ready, and up to date, and there are no others."""

        def settled() -> bool:
            return is_settled(self.client.get(resource, name, self.namespace), replicas)

        self.wait(settled, f"{replicas} pods of {self.namespace}/{name} to be ready")

    def pods(self, name: str = "") -> list[Pod]:
        """Those of this workload, or all, which are not on their way out."""
        found = self.client.list(PODS, self.namespace, type=Pod, label_selector=name and f"app={name}").items
        return [pod for pod in found if not pod.terminating]

    def home(self, name: str = "") -> set[str]:
        """The names of the pods on local nodes."""
        return {pod.metadata.name for pod in self.pods(name) if is_home(pod)}

    def away(self, name: str = "") -> set[str]:
        """The names of the pods on super nodes."""
        return {pod.metadata.name for pod in self.pods(name) if is_away(pod)}

    def reasons(self) -> list[str]:
        """Of each pod when it came, and why it is where it is: to understand what should not be."""
        return [
            f"{pod.metadata.creation_timestamp} {pod.metadata.name}: {pod.metadata.annotations.get(REASON)}"
            for pod in self.pods()
        ]

    def gated(self, name: str = "") -> set[str]:
        """The names of the pods that wait for their placement."""
        found = self.client.list(PODS, self.namespace, label_selector=name and f"app={name}").items
        return {pod["metadata"]["name"] for pod in found if is_gated(pod)}

    def pod(self, name: str) -> Pod:
        return self.client.get(PODS, name, self.namespace, type=Pod)

    def await_away(self, *names: str) -> None:
        self.wait(lambda: set(names) <= self.away(), f"{names} in {self.namespace} to come to super nodes")

    def await_home(self, *names: str) -> None:
        self.wait(lambda: set(names) <= self.home(), f"{names} in {self.namespace} to run on local nodes")

    def await_event(self, name: str, reason: str) -> str:
        """Its message, or several."""
        what = f"an Event {reason} on {self.namespace}/{name}"
        return self.wait(lambda: self.events(name).get(reason, ""), what)

    def events(self, name: str) -> dict[str, str]:
        """All messages by reason."""
        return workloads.messages(self.client, self.namespace, name=name)

    def wait(self, condition: Callable[[], T | None], what: str) -> T:
        return self.lab.wait(condition, SECONDS, what)


def template(annotations: Mapping[str, str] | None = None, **spec: Any) -> Raw:
    """Of a pod that asks for nothing; *spec* over that."""
    made = workloads.pod_template({}, **spec)
    return {**made, "metadata": {"annotations": dict(annotations or {})}}


def keeping(number: int, **annotations: str) -> dict[str, str]:
    """The annotations of a pod of which *number* stay local."""
    return {LOCAL_REPLICAS: str(number), **annotations}


def switched(local: str) -> dict[str, str]:
    """The annotations of a pod with its switch, or none."""
    return {SWITCH: local} if local else {}


def asking(resources: Mapping[str, str], **spec: Any) -> Raw:
    """What to add to the spec of a pod that requests *resources*."""
    container = {"name": "app", "image": "app", "resources": {"requests": dict(resources)}}
    return {**spec, "containers": [{**container, **each} for each in spec.get("containers", [{}])]}


def bind(shop: Shop, name: str, source: Raw) -> None:
    """A claim of that name to a volume which is there; *source* is what is special of the volume's spec."""
    at = {"namespace": shop.namespace, "name": name}
    size = {"storage": "1Gi"}
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = f"{shop.namespace}-{name}"
    spec = {**common, "capacity": size, "claimRef": at, **source}
    shop.client.create(VOLUMES, manifest("PersistentVolume", volume, spec=spec))
    wanted = {**common, "volumeName": volume, "resources": {"requests": size}}
    shop.create(CLAIMS, manifest("PersistentVolumeClaim", name, spec=wanted))


def manifest(kind: str, name: str, **fields: Any) -> Raw:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}


def is_settled(workload: Raw, replicas: int) -> bool:
    status = workload.get("status", {})
    counts = {status.get(each, 0) for each in ("replicas", "readyReplicas", "updatedReplicas")}
    seen = status.get("observedGeneration", 0) >= workload["metadata"]["generation"]
    return seen and workload["spec"]["replicas"] == replicas and counts == {replicas}


def is_away(pod: Pod) -> bool:
    return pod.spec.node_name.startswith(SUPER)


def is_home(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and not is_away(pod)


def is_gated(pod: Raw) -> bool:
    return {"name": GATE} in pod["spec"].get("schedulingGates", ())


def await_account(lab: Lab, namespace: str) -> None:
    """Until pods can be created there."""
    what = f"namespace {namespace} to have its ServiceAccount"
    lab.wait(lambda: lab.client.find(ACCOUNTS, "default", namespace), SECONDS, what)


@contextmanager
def configured(lab: Lab, **elasticity: Any) -> Iterator[None]:
    """These values of elasticity are in force in all processes for the length of a block."""
    workloads.reconfigure(lab, {"elasticity": elasticity})
    try:
        yield
    finally:
        workloads.reconfigure(lab, {"elasticity": {}})


def calls(lab: Lab) -> int:
    """How often the API server has asked elasticity's webhook so far, by its own metrics."""
    return workloads.counted_by_api_server(lab, "request_total", 'name="elasticity.drawbridge.io"')
