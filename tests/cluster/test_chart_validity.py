"""A real API server accepts every object that the chart renders, with the real CRDs of other projects."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import yaml

from dev.lab import binaries, chart, renders
from dev.lab.install import DEFINITIONS
from dev.lab.manifests import DEPLOY
from dev.lab.session import Lab
from dev.lab.waiting import at_most
from kube.client import Resource
from kube.resources import CONFIG_MAPS, DEPLOYMENTS
from tests.charts import SETS
from tests.cluster.elasticity import await_account

NAMESPACE = "chart-validity"
FLOW_SCHEMAS = Resource("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", namespaced=False)
KINDS = ("servicemonitors", "podmonitors", "prometheusrules", "certificates", "issuers")
PRIORITY = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: platform-critical}
value: 1000
"""
"""Named by one of the sets; for a pod, unlike a template of pods, it must be there."""


@pytest.fixture(scope="module")
def judge(bare_lab: Lab) -> Iterator[Lab]:
    """A lab that knows all kinds of the chart, and a namespace in which pods must be restricted."""
    define(bare_lab)
    bare_lab.kubectl("create", "namespace", NAMESPACE)
    for mode in ("enforce", "warn"):
        bare_lab.kubectl("label", "namespace", NAMESPACE, f"pod-security.kubernetes.io/{mode}=restricted")
    bare_lab.kubectl("apply", "--filename=-", stdin=PRIORITY)
    await_account(bare_lab, NAMESPACE)
    yield bare_lab
    bare_lab.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def define(lab: Lab) -> None:
    for directory in (binaries.prometheus_operator_crds(), binaries.cert_manager_crds()):
        for kind in KINDS:
            for file in directory.glob(f"*[_-]{kind}.yaml"):
                definition: dict[str, Any] = yaml.safe_load(file.read_text())
                definition["metadata"].pop("labels", None)  # cert-manager's are placeholders of a template
                lab.client.create(DEFINITIONS, definition)
                name = definition["metadata"]["name"]
                lab.kubectl("wait", "--for=condition=Established", at_most(60), f"crd/{name}")


def judged(lab: Lab, manifests: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """What the API server says of them; nothing is stored, but all of admission is passed."""
    options = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "--filename=-")
    return lab.kubectl("apply", *options, stdin="---\n".join(manifests), check=False)


def objects_of(name: str) -> list[str]:
    return [*renders.objects(chart.manifests(json.dumps(SETS[name]), "--namespace", NAMESPACE)).values()]


def can_be_restricted(manifest: str) -> bool:
    """All but what is on the network of its node, and the provider's own."""
    return "hostNetwork: true" not in manifest and "name: drawbridge-eklet\n" not in manifest


def test_every_object_is_accepted(judge: Lab, subtests: pytest.Subtests) -> None:
    accepted: set[str] = set()  # most sets have most objects in common
    for name in sorted(SETS):
        new = [each for each in objects_of(name) if each not in accepted]
        if new:
            with subtests.test(name):
                assert_accepted(judge, new)
        accepted.update(new)


def assert_accepted(judge: Lab, new: list[str]) -> None:
    # The pod of `helm test` needs its own there.
    accounts = [each for each in new if "kind: ServiceAccount\n" in each]
    if accounts:
        judge.kubectl("apply", "--server-side", "--filename=-", stdin="---\n".join(accounts))
    done = judged(judge, new)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(new)
    warnings = [line for line in done.stderr.splitlines() if line.startswith("Warning:")]
    assert all("would violate PodSecurity" in line for line in warnings), done.stderr
    deployments = [each for each in new if "kind: Deployment\n" in each]
    assert (warnings == []) == all(can_be_restricted(each) for each in deployments), done.stderr


def test_a_faulty_object_is_refused(judge: Lab) -> None:
    objects = objects_of("all-monitoring-of-all-features")
    for right, wrong, field in (
        ('interval: "15s"', 'interval: "15"', "interval"),
        ("      rules:\n", "      ruls:\n", "ruls"),
        ("request.operation == ", "request.operation = ", "expression"),
    ):
        faulty = [each.replace(right, wrong) for each in objects if right in each]

        assert faulty != []
        done = judged(judge, faulty)
        assert done.returncode != 0, field
        assert field in done.stderr


def test_the_plain_manifests_are_accepted(lab_v3: Lab) -> None:
    """Strictly: unknown fields are errors, too."""
    checked = lab_v3.kubectl("apply", "-k", str(DEPLOY), "--dry-run=server", "--validate=strict").stdout

    assert checked.count("(server dry run)") == len(checked.splitlines()) > 15


def test_the_priority_level_of_the_flow_schema_exists(judge: Lab) -> None:
    name = "of-the-priority-level"  # another test of this lab may have installed the chart's own
    [schema] = [yaml.safe_load(each) for each in objects_of("all-features") if "kind: FlowSchema\n" in each]
    judge.client.create(FLOW_SCHEMAS, schema | {"metadata": {"name": name}})

    def dangling() -> str:
        conditions = judge.client.get(FLOW_SCHEMAS, name).get("status", {}).get("conditions", [])
        return next((each["status"] for each in conditions if each["type"] == "Dangling"), "")

    try:
        assert judge.wait(dangling, 60, "the API server to judge the FlowSchema") == "False"
    finally:
        judge.client.delete(FLOW_SCHEMAS, name)


def test_a_leader_without_an_election_ends_before_the_first_that_is_elected(judge: Lab) -> None:
    where = ("scaled", str(chart.CHART), "--namespace", NAMESPACE, "--set=ipReservation.enabled=false")
    alone = ("--set=config.leaderElectionEnable=false", "--set=controllers.replicaCount=1")

    def strategy(command: str, *values: str) -> str:
        judge.helm(command, *where, *values)
        found = judge.client.get(DEPLOYMENTS, "scaled-drawbridge-controllers", NAMESPACE)
        return str(found["spec"]["strategy"]["type"])

    try:
        assert strategy("install") == "RollingUpdate"
        assert strategy("upgrade", *alone) == "Recreate"
        assert strategy("upgrade") == "Recreate"
        assert strategy("upgrade") == "RollingUpdate"

        # An edit that the programs refuse keeps no upgrade from what sets it right.
        edited = {"data": {"config.yaml": "leaderElection:\nelasticity: {}\n"}}
        judge.client.patch(CONFIG_MAPS, "scaled-drawbridge-config", edited, NAMESPACE)
        judge.helm("upgrade", *where, "--dry-run=server")
    finally:
        judge.helm("uninstall", "scaled", "--namespace", NAMESPACE)
