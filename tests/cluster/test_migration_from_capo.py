"""Capo's users install Drawbridge over it: no pod is restarted, no address is lost, and Capo is removed in the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dev.lab import install
from dev.lab.bootstrap import running
from dev.lab.session import Lab
from kube.resources import PODS
from tests.charts import CAPO_VALUES
from tests.cluster import workloads
from tests.cluster.workloads import GROUPS, pods_of, records

pytestmark = pytest.mark.nightly

ORIGINAL = Path(__file__).parent.parent / "data" / "originals" / "capo.yaml"
CONFIGURATION = "ip-reserve-validating-webhook-configuration"


@pytest.fixture
def lab() -> Iterator[Lab]:
    """With what Capo leaves in a cluster, and without Drawbridge."""
    with running(chart=False, calico="projectcalico.org/v3", nodes=1) as up:
        up.kubectl("apply", "-f", str(ORIGINAL))
        yield up


def test_drawbridge_takes_over_from_capo(lab: Lab) -> None:
    # One page of Capo spells its label so.
    namespace = workloads.namespace(lab.client, "zookeeper-dev", **{"ip-reserve": "enable"})
    before = workloads.running_statefulset(lab, namespace, 3, name="zk")
    # The control: a pod that Capo does not reserve for.
    plain = workloads.namespace(lab.client, "plain")
    other = workloads.running_pod(lab, plain, "plain")

    install.install_chart(lab, yaml.safe_load(CAPO_VALUES))
    assert [(pod.metadata.uid, pod.status.pod_ip) for pod in pods_of(lab, namespace)] == [
        (pod.metadata.uid, pod.status.pod_ip) for pod in before
    ]
    assert reserved(lab) == {"1.1.1.1/32", "10.77.0.9/32"}

    lab.client.delete(PODS, other.metadata.name, plain)
    first, second, third = before
    lab.client.delete(PODS, first.metadata.name, namespace)
    assert records(lab, "v3")[first.metadata.uid].cidr == f"{first.status.pod_ip}/32"

    lab.kubectl("delete", "validatingwebhookconfiguration", CONFIGURATION)
    lab.client.delete(PODS, second.metadata.name, namespace)
    assert records(lab, "v3")[second.metadata.uid].cidr == f"{second.status.pod_ip}/32"

    lab.kubectl("delete", "namespace", "ip-reserve", "--wait=false")
    leftovers = lab.kubectl(
        "get", "ipreservations", "-l", "app.kubernetes.io/managed-by!=drawbridge", "-o", "name"
    ).stdout.split()
    lab.kubectl("delete", *leftovers)
    assert [name.rpartition("/")[2] for name in leftovers] == ["ip-reserve"]
    assert {f"{pod.status.pod_ip}/32" for pod in (first, second)} <= reserved(lab)
    assert f"{other.status.pod_ip}/32" not in reserved(lab)
    assert workloads.get_pod(lab, namespace, third.metadata.name).metadata.uid == third.metadata.uid


def reserved(lab: Lab) -> set[str]:
    """All that Calico assigns to no pod."""
    found = lab.client.list(GROUPS["v3"]).items
    return {cidr for each in found for cidr in each["spec"]["reservedCIDRs"]}
