"""The admission of evictions: golden cases, each with what was read and written for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import yaml

from kube.errors import NotFound, Unreachable
from kube.objects import ObjectMeta, Pod
from lab.install import merged
from settings import IngressDaemonSetSettings
from tests.api_server import Api
from tests.factories import NOW
from tests.ingress_daemonset import DATA, raw
from tests.misbehaving_server import serving
from webhook.admission import Decision, Request, parse, render
from webhook.ingress_daemonset import API_VERSION, DRAIN_REQUESTED, KIND
from webhook.ingress_daemonset.eviction_lookup import EvictionLookup
from webhook.ingress_daemonset.evictions import RETRY_SECONDS, Evictions
from webhook.ingress_daemonset.model import IngressDaemonSet, resource

CASES = sorted((DATA / "ingress_daemonset_evictions").glob("*.yaml"))
Raw = dict[str, Any]
T = TypeVar("T")


def owner(kind: str, name: str, api: str = "apps/v1") -> list[Raw]:
    return [{"apiVersion": api, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}]


LABELS = {"app": "web", "ingress-daemon-for-node": "n1"}
POD = {
    "metadata": {
        "name": "web-n1-7d4-x",
        "namespace": "edge",
        "uid": "uid-pod",
        "labels": LABELS | {"pod-template-hash": "7d4"},
        "ownerReferences": owner("ReplicaSet", "web-n1-7d4"),
    },
    "spec": {"nodeName": "n1"},
    "status": {"phase": "Running"},
}
DEPLOYMENT = {
    "metadata": {
        "name": "web-n1",
        "namespace": "edge",
        "uid": "uid-web-n1",
        "labels": LABELS,
        "annotations": dict[str, str](),
        "ownerReferences": owner(KIND, "web", API_VERSION),
    }
}
DETACHING = {"updateStrategy": {"rollingUpdate": {"maxUnavailableNodes": 1}}}
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web-n1-7d4-x"}}


class Cluster:
    """What there is, what was read of it, and the write."""

    def __init__(self, case: Raw) -> None:
        self._absent, self._fault = case.get("absent", []), case.get("fault", "")
        self._pod = msgspec.convert(_without_nulls(merged(POD, case.get("pod", {}))), Pod, strict=False)
        self._deployment = msgspec.convert(
            merged(DEPLOYMENT, case.get("deployment", {}))["metadata"], ObjectMeta, strict=False
        )
        self._resource = resource(raw(merged(DETACHING, case.get("resource", {}))))
        self.reads: list[str] = []
        self.requested = ""

    def pod(self, namespace: str, name: str, *, deadline: float) -> Pod:
        assert (namespace, name) == ("edge", "web-n1-7d4-x")
        return self._get("pod", self._pod)

    def deployment(self, namespace: str, name: str, *, deadline: float) -> ObjectMeta:
        assert (namespace, name) == ("edge", "web-n1")
        return self._get("deployment", self._deployment)

    def ingress_daemonset(self, namespace: str, name: str, *, deadline: float) -> IngressDaemonSet:
        assert (namespace, name) == ("edge", "web")
        return self._get("resource", self._resource)

    def request_drain(self, deployment: ObjectMeta, at: str, *, deadline: float) -> None:
        if self._fault == "request":
            raise Unreachable("timed out")
        self.requested = at

    def _get(self, what: str, found: T) -> T:
        self.reads.append(what)
        if what in self._absent:
            raise NotFound(404, "NotFound", what)
        if what == self._fault:
            raise Unreachable("timed out")
        return found


def _without_nulls(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: _without_nulls(value) for key, value in part.items() if value is not None}
    return part


def request(**parts: Any) -> Request:
    fields = {
        "uid": "request-1",
        "operation": "CREATE",
        "namespace": "edge",
        "name": "web-n1-7d4-x",
        "subResource": "eviction",
        "object": EVICTION,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": fields | parts}
    return parse(msgspec.json.encode(review))


def review(case: Raw) -> tuple[Decision, Cluster]:
    settings = IngressDaemonSetSettings.model_validate({"enabled": True, **case.get("settings", {})})
    cluster = Cluster(case)
    decision = Evictions(lambda: settings, cluster, lambda: NOW).review(request(**case.get("request", {})), 0)
    return decision, cluster


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    decision, cluster = review(case)
    expected = case["expect"]

    assert decision.allowed is ("denied" not in expected)
    assert expected.get("denied", "") in decision.message
    assert expected.get("skipped", "") in decision.audit.get("skipped", "")
    assert bool(decision.audit.get("skipped")) is ("skipped" in expected)
    assert (
        [expected["warned"] in each for each in decision.warnings] == [True] if "warned" in expected else True
    )
    assert bool(cluster.requested) is expected.get("requested", False)
    assert cluster.reads == expected.get("reads", cluster.reads)
    assert len(cluster.reads) == len(set(cluster.reads))


def test_an_eviction_is_refused_as_kubectl_drain_waits_for() -> None:
    decision, _ = review({})
    status = msgspec.json.decode(render(request(), decision))["response"]["status"]

    assert (status["code"], status["reason"]) == (429, "TooManyRequests")
    assert status["details"]["retryAfterSeconds"] == RETRY_SECONDS
    assert "pod edge/web-n1-7d4-x keeps running until node n1 is off" in status["message"]
    assert "kubectl describe ids -n edge web" in status["message"]


def test_what_is_read_and_written_goes_to_the_api_server() -> None:
    api = Api()
    with serving(api) as server:
        client = server.client()
        lookup = EvictionLookup(client, lambda: 0.0)
        api.put("/api/v1/pods", POD)
        api.put("/apis/apps/v1/deployments", DEPLOYMENT)
        path = "/apis/ingressdaemonsets.mumoshu.github.io/v1alpha1/ingressdaemonsets"
        api.put(path, raw({"drainTimeoutSeconds": 7}))

        deployment = lookup.deployment("edge", "web-n1", deadline=9)
        lookup.request_drain(deployment, "2026-01-02T03:04:05Z", deadline=9)
        assert lookup.pod("edge", "web-n1-7d4-x", deadline=9).metadata.uid == "uid-pod"
        assert lookup.ingress_daemonset("edge", "web", deadline=9).spec.drain_timeout_seconds == 7
        changed = lookup.deployment("edge", "web-n1", deadline=9)
        assert changed.annotations[DRAIN_REQUESTED] == "2026-01-02T03:04:05Z"

        api.put(path, raw({"podsPerNode": "two"}))
        with pytest.raises(NotFound, match="cannot be read"):
            lookup.ingress_daemonset("edge", "web", deadline=9)
        client.close()
