"""Users of an original find each of its names in the page for it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controllers.ingress_daemonset.health_check_daemonsets import FOR
from lab.values_schema import REFUSED
from tests import facts
from tests.charts import CAPO_VALUES
from tests.pages import ROOT, sections, table
from webhook.ingress_daemonset import FINALIZER, NODE_LABEL, TO_BE_UPDATED

CAPO = ROOT / "docs" / "how-to" / "migrate-from-capo.md"
AIA = ROOT / "docs" / "how-to" / "migrate-from-aia-ip-controller.md"
RESILIENCE = ROOT / "docs" / "how-to" / "migrate-from-tke-resilience.md"
INGRESS = ROOT / "docs" / "how-to" / "migrate-from-ingress-daemonset-controller.md"
CAPO_FILE = """
apiVersion: config.capo.io/v1
kind: CapoConfig
health: {healthProbeBindAddress: ":8081"}
metrics: {bindAddress: ":8080"}
webhook: {port: 9443}
leaderElection: {leaderElect: true, resourceName: capo, resourceNamespace: ip-reserve}
ipReserveMaxCount: 400
ipReserveTime: 40m
ipReleasePeriod: 5s
labelSelector: {matchExpressions: []}
"""
CAPO_OTHERS = """
namespace:
image: {repository: xdfdotcn/ip-reserve-delay-release, pullPolicy: IfNotPresent, pullSecrets: [], tag: v1.0.1}
rbacImage: {repository: xdfdotcn/kube-rbac-proxy, pullPolicy: IfNotPresent, pullSecrets: [], tag: v0.12.0}
nameOverride: ""
fullnameOverride: ""
podAnnotations: ""
podSecurityContext: {runAsNonRoot: true}
securityContext: {allowPrivilegeEscalation: false}
service: {type: ClusterIP, port: 443}
resources: ""
autoscaling: {enabled: false}
nodeSelector: ""
tolerations: []
affinity: ""
"""
"""The other values of its chart."""
AIA_VALUES = """
credential: {clusterID: "", appID: "", secretID: "", secretKey: ""}
config:
  region: {shortName: hk, longName: ap-hongkong}
  aia: {bandwidth: 100, addressType: AnycastEIP, anycastZone: "", tags: ""}
  node: {labels: ""}
controller:
  maxConcurrentReconcile: 3
  kubeApiQps: 50
  kubeApiBurst: 100
  replicaCount: 2
  image: {ref: "", pullPolicy: Always}
  resources: {limits: "", requests: ""}
"""
RESILIENCE_VALUES = """
cloud:
  {uniqueID: "", appID: "", ownerUIN: "", secretID: "", secretKey: "", vpcID: "", regionShort: cq,
   regionLong: ap-chongqing, apiDomain: tencentcloudapi.com, subnets: []}
eklet:
  waitSandboxRunningTimeout: 24h
  podUsedApiserver: ""
  replicaCount: 1
  image: {ref: "", pullPolicy: IfNotPresent}
  service: {type: NodePort}
  nodeSelector: ""
  resources: ""
scheduler: {replicaCount: 1, image: {ref: "", pullPolicy: IfNotPresent}, nodeSelector: "", resources: ""}
eksAdmission:
  {replicaCount: 1, autoScaleEKS: "", image: {ref: "", pullPolicy: IfNotPresent}, nodeSelector: "", resources: ""}
"""
INGRESS_SPEC = """
podsPerNode: 2
replicas: 2
healthCheckPort: 10080
selector: {}
nodeSelector: {}
healthCheckNodePorts: []
updateStrategy:
  type: RollingUpdate
  rollingUpdate:
    maxUnavailableNodes: 2
    maxUnavaiablePodsPerNode: 3
    maxUnavailablePodsPerNodes: 3
    maxSurgedPodsPerNode: 1
    maxDegradedNodes: 3
    annotateDeploymentToDetach: {key: "", value: "", gracePeriodSeconds: 10}
    annotateNodeToDetach: {key: "", value: "", gracePeriodSeconds: 10}
    waitForDetachmentByAnnotatedTimestamp: {key: "", format: RFC3339, gracePeriodSeconds: 30}
healthChecker: {image: "", imagePullPolicy: Always, serviceAccountName: default}
template: {spec: {nodeSelector: {}}}
"""
"""By its page, and by its program, which knows other spellings."""


def keys(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        for key, part in document.items():
            yield key
            yield from keys(part)


def dotted(values: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, part in values.items():
        yield from dotted(part, f"{path}{key}.") if isinstance(part, dict) else (f"{path}{key}",)


@pytest.mark.parametrize("name", [*dotted(yaml.safe_load(CAPO_VALUES))])
def test_every_value_of_the_originals_chart_is_in_the_migration_page(name: str) -> None:
    assert [row[1] for row in table(CAPO, "Value by value") if row[0] == f"`{name}`"] == [f"`{name}`"]


@pytest.mark.parametrize("name", [*dotted(yaml.safe_load(CAPO_OTHERS))])
def test_the_page_says_of_every_other_value_of_the_original_whether_the_chart_accepts_it(name: str) -> None:
    block = name.partition(".")[0]
    accepted = {name, block}.isdisjoint(REFUSED)
    [said] = [
        row[1]
        for row in table(CAPO, "Values to remove")
        if {f"`{name}`", f"`{block}`"} & {*re.findall("`.+?`", row[0])}
    ]

    assert said.startswith("accepted" if accepted else "refused")


@pytest.mark.parametrize("name", [*keys(yaml.safe_load(CAPO_FILE))])
def test_every_field_of_the_originals_file_is_in_the_migration_page(name: str) -> None:
    fields = " ".join(row[0] for row in table(CAPO, "The ConfigMap"))

    assert re.search(rf"\b{name}\b", fields)


def test_the_originals_labels_and_metrics_are_in_the_migration_page() -> None:
    said = sections(CAPO)["Labels and metrics"]

    for name in (
        "ip-reserve=enabled",
        "ip-reserve=enable",
        "ip_reserve_count",
        "ip_reserve_count_max",
        "leader_election_master_status",
    ):
        assert f"`{name}`" in said
    assert "`ip_reserve_evictions_count`" in said


VALUES = [(AIA, name) for name in dotted(yaml.safe_load(AIA_VALUES))]
VALUES += [(RESILIENCE, name) for name in dotted(yaml.safe_load(RESILIENCE_VALUES))]


@pytest.mark.parametrize(("page", "name"), VALUES, ids=lambda each: getattr(each, "stem", each))
def test_every_value_of_the_other_originals_is_in_its_migration_page(page: Path, name: str) -> None:
    [row] = [row for row in table(page, "Value by value") if row[0] == f"`{name}`"]

    assert {*re.findall("`(.+?)`", row[1])} <= facts.chart_values()
    assert row[1] or name.startswith("scheduler.") or page == AIA


@pytest.mark.parametrize("name", [*keys(yaml.safe_load(INGRESS_SPEC))])
def test_every_field_of_the_original_of_ingress_daemonset_is_in_its_migration_page(name: str) -> None:
    rows = [" ".join(row) for row in table(INGRESS, "Field by field")]

    assert name == "rollingUpdate" or any(re.search(rf"\b{name}\b", row) for row in rows)


def test_the_objects_of_the_original_of_ingress_daemonset_are_in_its_migration_page() -> None:
    said = sections(INGRESS)["Objects"]

    for name in (
        "ingress-daemonset-node: <name>-<node>",
        "ingress-daemonset-hc: <name>-<port>",
        "ingressdaemonsets.mumoshu.github.io",
        TO_BE_UPDATED,
        FINALIZER,
        FOR,
        NODE_LABEL,
    ):
        assert re.search(rf"`[^`]*{re.escape(name)}[^`]*`", said), name
