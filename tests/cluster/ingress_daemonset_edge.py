"""The nodes of one test, the IngressDaemonSets there, and what becomes of them."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

from dev.lab.errors import LabError
from dev.lab.nodes import NODES, cloud_node
from dev.lab.policy.mutations import LABEL as POLICY
from dev.lab.session import Lab
from dev.lab.waiting import until
from kube.resources import DEPLOYMENTS, PODS
from tests.cluster import workloads
from tests.cluster.elasticity import await_account
from tests.cluster.ingress_daemonset import (
    API_VERSION,
    CONFIRMED,
    DETACHED,
    DETACHED_BY,
    EDGE,
    EVERY,
    INGRESS_DAEMONSETS,
    SECONDS,
    TO_BE_UPDATED,
    Raw,
    is_at_rest,
    now,
    reasons_of,
)

T = TypeVar("T")


class Edge:
    """The nodes of one test, by short names, and the namespace of what runs there."""

    def __init__(self, lab: Lab, *nodes: str) -> None:
        self.lab, self.client = lab, lab.client
        self.token = f"e{secrets.token_hex(3)}"
        self.namespace = workloads.namespace(lab.client, f"edge-{self.token}")
        await_account(lab, self.namespace)
        for name in nodes:
            self.join(name)

    def node_name(self, name: str) -> str:
        return f"{self.token}-{name}"

    def join(self, name: str, labels: Mapping[str, str] | None = None, **spec: Any) -> None:
        """A node that kwok plays; *labels* over those by which it is chosen."""
        body = cloud_node(self.node_name(name), "", {EDGE: self.token, **(labels or {})})
        if len(self.node_name(name)) > 63:
            del body["metadata"]["labels"]["kubernetes.io/hostname"]
        body["spec"] |= spec
        self.client.create(NODES, body)

    def node(self, name: str) -> Raw:
        return self.client.get(NODES, self.node_name(name))

    def patch_node(self, name: str, **changes: Any) -> None:
        self.client.patch(NODES, self.node_name(name), changes)

    def annotate_node(self, name: str, **annotations: str | None) -> None:
        self.patch_node(name, metadata={"annotations": annotations})

    def annotations(self, name: str) -> dict[str, str]:
        """Of the node; none of kwok's, the policy's and Kubernetes' own."""
        found: dict[str, str] = self.node(name)["metadata"].get("annotations", {})
        return {
            key: value
            for key, value in found.items()
            if "alpha.kubernetes.io" not in key and key != POLICY[0]
        }

    def create(self, name: str = "web", **parts: Any) -> Raw:
        return self.client.create(INGRESS_DAEMONSETS, self.manifest(name, **parts), self.namespace)

    def manifest(
        self,
        name: str = "web",
        *,
        image: str = "proxy:1",
        pod: Mapping[str, Any] | None = None,
        rolling: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> Raw:
        """Two pods on each node; *pod* is of the template's spec, *rolling* is how it is updated.

        The health checkers of nodes that kwok plays answer nothing, so they confirm nothing, unless *rolling* says so.
        """
        template = workloads.pod_template({"app": name}, nodeSelector={EDGE: self.token}, **(pod or {}))
        if "containers" not in (pod or {}):
            template["spec"]["containers"] = [{"name": "proxy", "image": image}]
        unasked = {"confirm": "off"} if spec.get("healthCheckNodePorts") else {}
        strategy = {"rollingUpdate": {**unasked, **(rolling or {})}}
        return {
            "apiVersion": API_VERSION,
            "kind": "IngressDaemonSet",
            "metadata": {"name": name},
            "spec": {"podsPerNode": 2, "updateStrategy": strategy, "template": template, **spec},
        }

    def change(self, name: str = "web", **spec: Any) -> None:
        self.client.patch(INGRESS_DAEMONSETS, name, {"spec": spec}, self.namespace)

    def retemplate(self, image: str, name: str = "web", **pod: Any) -> None:
        """Give its pods another image."""
        containers = [{"name": "proxy", "image": image}]
        self.change(name, template={"spec": {"containers": containers, **pod}})

    def resource(self, name: str = "web") -> Raw:
        return self.client.get(INGRESS_DAEMONSETS, name, self.namespace)

    def is_gone(self, name: str = "web") -> bool:
        return self.client.find(INGRESS_DAEMONSETS, name, self.namespace) is None

    def status(self, name: str = "web") -> Raw:
        found: Raw = self.resource(name).get("status", {})
        return found

    def waiting_for(self, name: str = "web") -> dict[str, str]:
        """The phases of those nodes that its status names."""
        return {self.short(each["node"]): each["phase"] for each in self.status(name).get("waitingFor", ())}

    def why(self, node: str, name: str = "web") -> str:
        """What a node waits for, in the words of the status."""
        reported = self.status(name).get("waitingFor", ())
        return next((each["reason"] for each in reported if self.short(each["node"]) == node), "")

    def reasons(self, name: str = "web") -> dict[str, str]:
        return reasons_of(self.resource(name))

    def deployments(self, name: str = "web") -> dict[str, Raw]:
        """By the short names of their nodes."""
        found = self.client.list(DEPLOYMENTS, self.namespace, label_selector=f"app={name}").items
        return {self.short(each["spec"]["template"]["spec"]["nodeName"]): each for each in found}

    def deployment(self, node: str, name: str = "web") -> Raw:
        return self.client.get(DEPLOYMENTS, f"{name}-{self.node_name(node)}", self.namespace)

    def pods(self, node: str = "", name: str = "web") -> list[Raw]:
        """Those that are not on their way out, on this node or on all."""
        found = self.client.list(PODS, self.namespace, label_selector=f"app={name}").items
        there = [each for each in found if "deletionTimestamp" not in each["metadata"]]
        return [each for each in there if node in ("", self.short(each["spec"].get("nodeName", "")))]

    def versions(self, name: str) -> list[str]:
        """Of its pods, by their annotation."""
        return [each["metadata"].get("annotations", {}).get("version", "") for each in self.pods(name=name)]

    def short(self, node: str) -> str:
        return node.removeprefix(f"{self.token}-")

    def confirm(self, *nodes: str) -> None:
        """As node-detacher does when it has detached them."""
        for name in nodes:
            self.annotate_node(name, **{CONFIRMED: now()})

    def off(self) -> set[str]:
        """The nodes that bear an annotation, or whose Deployments do."""
        by_deployment = {
            node
            for node, each in self.deployments().items()
            if TO_BE_UPDATED in each["metadata"].get("annotations", {})
        }
        return by_deployment | {
            self.short(each["metadata"]["name"])
            for each in self.nodes()
            if DETACHED in each["metadata"].get("annotations", {})
        }

    def nodes(self) -> list[Raw]:
        found = self.client.list(NODES).items
        return [each for each in found if each["metadata"]["name"].startswith(self.token)]

    def settle(self, *nodes: str, name: str = "web", image: str = "proxy:1", pods: int = 2) -> None:
        """Until just these nodes have their pods with this image, and none is off for our sake."""

        what = f"{name} to be at rest on {', '.join(nodes)} with {image}"
        self.wait(lambda: self.is_settled(*nodes, name=name, image=image, pods=pods), what)

    def is_settled(self, *nodes: str, name: str = "web", image: str = "proxy:1", pods: int = 2) -> bool:
        found = self.deployments(name)
        at_rest = all(is_at_rest(each, image, pods) for each in found.values())
        return found.keys() == set(nodes) and at_rest and not self.detached()

    def detached(self) -> set[str]:
        """The nodes that name the uids they are detached for."""
        nodes = {self.short(each["metadata"]["name"]): each["metadata"] for each in self.nodes()}
        return {name for name, each in nodes.items() if DETACHED_BY in each.get("annotations", {})}

    def await_event(self, reason: str, name: str = "web") -> str:
        """Its message, or several."""
        what = f"an Event {reason} on {self.namespace}/{name}"
        return self.wait(lambda: self.events(name).get(reason, ""), what)

    def events(self, name: str = "web") -> dict[str, str]:
        """All messages by reason."""
        return workloads.messages(self.client, self.namespace, kind="IngressDaemonSet", name=name)

    def wait(self, condition: Callable[[], T | None], what: str) -> T:
        try:
            return until(condition, SECONDS, f"{self.namespace}: {what}", every=EVERY)
        except LabError as error:
            error.add_note(json.dumps(self._state(), indent=1))
            raise

    def _state(self) -> dict[str, Raw]:
        """Why a rollout goes no further."""
        resources = self.client.list(INGRESS_DAEMONSETS, self.namespace).items
        deployments = self.client.list(DEPLOYMENTS, self.namespace).items
        return {each["metadata"]["name"]: each.get("status", {}) for each in resources} | {
            each["metadata"]["name"]: each["metadata"] | {"managedFields": []} for each in deployments
        }

    def updated_at(self, node: str) -> datetime:
        """When its pods were created: all that a node has are replaced at once."""
        return min(datetime.fromisoformat(each["metadata"]["creationTimestamp"]) for each in self.pods(node))


@contextmanager
def confirming(edge: Edge) -> Iterator[None]:
    """Each detachment is confirmed as soon as it is seen, as node-detacher does."""
    ended = threading.Event()

    def run() -> None:
        known: set[str] = set()
        while not ended.wait(EVERY):
            detached = edge.detached()
            edge.confirm(*detached - known)
            known = detached

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            yield
        finally:
            ended.set()
        running.result()
