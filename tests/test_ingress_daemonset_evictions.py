"""The admission of evictions: golden cases, each with what was read and written for it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import yaml

from api.health_checks import deployment_name
from api.ingress_daemonset import DRAIN_REQUESTS, INGRESS_DAEMONSETS, KIND
from api.ingress_daemonset.types import IngressDaemonSet, resource
from dev.fake_api import FakeAPI, Kind, merged
from dev.fake_api.schema import Structural
from kube.errors import KubeError, NotFound, Unreachable
from kube.resources import PODS
from kube.types import Pod
from settings import IngressDaemonSetSettings
from tests.factories import NOW
from tests.ingress_daemonset import DATA, eviction_on, pod_on, raw
from tests.test_ingress_daemonset_crd import SCHEMA
from webhook.admission import Decision, render
from webhook.ingress_daemonset.cluster_lookup import ClusterLookup
from webhook.ingress_daemonset.evictions import RETRY_SECONDS, EvictionWebhook

CASES = sorted((DATA / "ingress_daemonset_evictions").glob("*.yaml"))
Raw = dict[str, Any]
T = TypeVar("T")


POD = pod_on("n1")
DETACHING = {"updateStrategy": {"rollingUpdate": {"maxUnavailableNodes": 1}}}


class Cluster:
    """The objects, what was read of them, and the write."""

    def __init__(self, case: Raw) -> None:
        self._absent, self._fault = case.get("absent", []), case.get("fault", "")
        self._pod = msgspec.convert(merged(POD, case.get("pod", {})), Pod, strict=False)
        whole = raw(merged(DETACHING, case.get("resource", {})), **case.get("metadata", {}))
        self._resource = resource(whole | {"status": case.get("status", {})})
        self.reads: list[str] = []
        self.requested: tuple[str, str, str] | None = None

    def pod(self, namespace: str, name: str, *, deadline: float) -> Pod:
        assert (namespace, name) == ("edge", "web-n1-7d4-x")
        return self._get("pod", self._pod)

    def ingress_daemonsets(self, namespace: str, name: str, *, deadline: float) -> Sequence[IngressDaemonSet]:
        assert namespace == "edge"
        other = resource(raw(name="other-web"))
        found = [other] if "resource" in self._absent else [other, self._resource]
        return self._get("resources", [each for each in found if name in ("", each.metadata.name)])

    def request_drain(self, resource: IngressDaemonSet, node: str, at: str, *, deadline: float) -> None:
        if self._fault == "request":
            raise Unreachable("timed out")
        self.requested = (resource.metadata.name, node, at)

    def _get(self, what: str, found: T) -> T:
        self.reads.append(what)
        if what in self._absent:
            raise NotFound(404, "NotFound", what)
        if what == self._fault:
            raise Unreachable("timed out")
        return found


def review(case: Raw) -> tuple[Decision, Cluster]:
    settings = IngressDaemonSetSettings.model_validate({"enabled": True, **case.get("settings", {})})
    cluster = Cluster(case)
    decision = EvictionWebhook(lambda: settings, cluster, lambda: NOW).review(
        eviction_on("n1", **case.get("request", {})), 0
    )
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
    status = msgspec.json.decode(render(eviction_on("n1"), decision))["response"]["status"]

    assert (status["code"], status["reason"]) == (429, "TooManyRequests")
    assert status["details"]["retryAfterSeconds"] == RETRY_SECONDS
    assert "pod edge/web-n1-7d4-x keeps running until node n1 is detached" in status["message"]
    assert "kubectl describe ids -n edge web" in status["message"]


def test_names_that_are_too_long_are_found_by_their_hash() -> None:
    node, name = "n" * 60, deployment_name("web", "n" * 60)
    owners = [POD["metadata"]["ownerReferences"][0] | {"name": f"{name}-7d4"}]
    pod = {"metadata": {"ownerReferences": owners}, "spec": {"nodeName": node}}
    decision, cluster = review({"pod": pod})

    assert not decision.allowed
    assert cluster.requested == ("web", node, "2026-01-02T03:04:05Z")


def served(crd: Kind | None = None) -> tuple[FakeAPI, ClusterLookup]:
    kinds = FakeAPI().kinds
    fake = FakeAPI(*(crd if crd and each.kind == crd.kind else each for each in kinds))
    fake.put(PODS, copy.deepcopy(POD))
    fake.put(INGRESS_DAEMONSETS, raw({"drainTimeoutSeconds": 7}, uid="uid-web"))
    return fake, ClusterLookup(fake.client("drawbridge"), lambda: 0.0)


def test_an_eviction_reads_its_own_ingress_daemonset_alone() -> None:
    """A drain repeats it for each pod: all of them, with their statuses, may be megabytes."""
    fake, lookup = served()
    fake.put(INGRESS_DAEMONSETS, raw(DETACHING, uid="uid-web"))
    settings = IngressDaemonSetSettings.model_validate({"enabled": True})
    decision = EvictionWebhook(lambda: settings, lookup, lambda: NOW).review(eviction_on("n1"), 9)

    assert not decision.allowed
    asked = [each.query for each in fake.calls if each.path == INGRESS_DAEMONSETS.path("edge")]
    assert [each.get("fieldSelector") for each in asked] == ["metadata.name=web"]


def test_a_request_for_another_of_the_same_name_is_not_stored() -> None:
    fake, lookup = served()
    [found] = lookup.ingress_daemonsets("edge", "web", deadline=9)
    fake.remove(INGRESS_DAEMONSETS, "web", "edge")
    fake.put(INGRESS_DAEMONSETS, raw(uid="another"))

    with pytest.raises(KubeError):
        lookup.request_drain(found, "n1", "2026-01-02T03:04:05Z", deadline=9)


def test_a_request_that_an_older_crd_prunes_holds_no_eviction() -> None:
    """It would be made again and again, and its time would never be over."""
    schema = copy.deepcopy(SCHEMA)
    del schema["properties"]["status"]["properties"][DRAIN_REQUESTS]
    ours = next(each for each in FakeAPI().kinds if each.kind == KIND)
    _, lookup = served(replace(ours, schema=Structural(schema)))
    [found] = lookup.ingress_daemonsets("edge", "web", deadline=9)

    with pytest.raises(KubeError, match="upgrade it"):
        lookup.request_drain(found, "n1", "2026-01-02T03:04:05Z", deadline=9)
