"""Capo's users leave it by its page: no pod is restarted, no address is lost, and nothing of Capo is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dev.lab import admission, install
from dev.lab.bootstrap import running
from dev.lab.session import Lab
from kube.resources import PODS
from tests.charts import CAPO_VALUES
from tests.cluster import workloads
from tests.cluster.migrations import NAMES, Migration
from tests.cluster.workloads import GROUPS, pods_of, records

pytestmark = pytest.mark.nightly


@pytest.fixture
def migration(tmp_path: Path) -> Iterator[Migration]:
    with running(chart=False, calico="projectcalico.org/v3", nodes=1) as up:
        moving = Migration(up, "capo", tmp_path)
        moving.install(
            "capo", "ip-reserve", install.merged(NAMES["capo others"], yaml.safe_load(CAPO_VALUES))
        )
        yield moving


def test_the_page_leads_from_capo_to_drawbridge(migration: Migration) -> None:
    lab = migration.lab
    # One page of Capo spells its label so.
    namespace = workloads.namespace(lab.client, "zookeeper-dev", **{"ip-reserve": "enable"})
    before = workloads.running_statefulset(lab, namespace, 3, name="zk")
    # The control: a pod that Capo does not reserve for.
    plain = workloads.namespace(lab.client, "plain")
    other = workloads.running_pod(lab, plain, "plain")

    migration.step()
    file = "-f capo-values.yaml"
    migration.step(file, f"-f {install.prepare(lab, {})} {file}")
    admission.await_evictions(lab.client)
    assert [(pod.metadata.uid, pod.status.pod_ip) for pod in pods_of(lab, namespace)] == [
        (pod.metadata.uid, pod.status.pod_ip) for pod in before
    ]
    assert reserved(lab) >= {"1.1.1.1/32", "10.77.0.9/32"}

    lab.client.delete(PODS, other.metadata.name, plain)
    first, second, third = before
    lab.client.delete(PODS, first.metadata.name, namespace)
    assert records(lab, "v3")[first.metadata.uid].cidr == f"{first.status.pod_ip}/32"

    migration.step()
    lab.client.delete(PODS, second.metadata.name, namespace)
    assert records(lab, "v3")[second.metadata.uid].cidr == f"{second.status.pod_ip}/32"

    migration.step()
    listed = [line.split()[0] for line in migration.step().splitlines()[1:]]
    assert listed == ["ip-reserve"]
    lab.kubectl("delete", "ipreservation", *listed)
    migration.assert_left()
    assert {f"{pod.status.pod_ip}/32" for pod in (first, second)} <= reserved(lab)
    assert f"{other.status.pod_ip}/32" not in reserved(lab)
    assert workloads.get_pod(lab, namespace, third.metadata.name).metadata.uid == third.metadata.uid


def reserved(lab: Lab) -> set[str]:
    """All that Calico assigns to no pod."""
    found = lab.client.list(GROUPS["v3"]).items
    return {cidr for each in found for cidr in each["spec"]["reservedCIDRs"]}
