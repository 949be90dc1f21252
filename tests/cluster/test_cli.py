"""The command against a real API server: one scene for each verb."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import Result

from api.ingress_daemonset import INGRESS_DAEMONSETS, REVISION_OF
from controllers.ingress_daemonset.revisions import CONTROLLER_REVISIONS
from dev.lab.session import Lab
from kube.resources import PODS
from tests import cli
from tests.cluster import ingress_daemonset, workloads
from tests.cluster.ingress_daemonset_edge import Edge
from tests.cluster.workloads import GROUPS, SECONDS

ROOT = Path(__file__).parents[2]


def run(lab: Lab, *arguments: str) -> Result:
    """With the kubeconfig of its administrator."""
    return cli.called("--kubeconfig", str(lab.kubeconfig), *arguments)


def shown(lab: Lab, *arguments: str) -> Any:
    result = run(lab, *arguments, "-o", "json")
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


def listed(lab: Lab, namespace: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = shown(lab, "reservations", "list", "-n", namespace)["reservations"]
    return found


def test_status_and_doctor_find_a_healthy_installation(lab: Lab) -> None:
    """In either of Calico's groups. The lab's API server proxies no Service: EndpointSlices refuse its addresses."""
    found = lab.wait(lambda: _healthy(shown(lab, "status")), SECONDS, "status to find nothing wrong")

    assert found["leader"]["holder"].startswith("drawbridge-controllers-")
    assert found["settings"]["features"]["ipReservation"]
    lab.wait(lambda: _verdicts(lab) <= {"ok", "skipped", "warning"}, SECONDS, "doctor to find nothing wrong")


def _verdicts(lab: Lab) -> set[str]:
    findings = shown(lab, "doctor")["findings"]
    return {each["verdict"] for each in findings if "clocks" not in each["check"]}


def _healthy(found: Any) -> Any:
    return None if found["problems"] else found


def test_reservations_are_listed_released_and_held(lab: Lab, group: str, redis: str) -> None:
    pod = workloads.running_pod(lab, redis, "a")
    lab.client.delete(PODS, "a", redis)
    [address] = pod.status.addresses
    lab.wait(
        lambda: [each["address"] for each in listed(lab, redis)] == [address], SECONDS, "it to be listed"
    )

    assert run(lab, "reservations", "hold", address, "--yes").exit_code == 0
    assert run(lab, "reservations", "release", address, "--yes").exit_code == 0
    lab.wait(lambda: not listed(lab, redis), SECONDS, "the leader to release it")
    names = [each["metadata"]["name"] for each in lab.client.list(GROUPS[group]).items]
    assert not [name for name in names if name.startswith("held-")]
    assert run(lab, "reservations", "release", address, "--yes").exit_code == 1


def test_a_rollout_is_aborted_and_undone(edge_lab: Lab) -> None:
    """Its canary waits to be promoted, so that it does not end before it is aborted."""
    edge = Edge(edge_lab, "a", "b")
    rolling = ingress_daemonset.detaching(1, **ingress_daemonset.by_deployment(0))
    edge.create(rolling={**rolling, "canary": {"nodes": 1}})
    edge.settle("a", "b")
    where = ("web", "-n", edge.namespace)
    edge.wait(lambda: state(edge_lab, edge) == "Complete", "the first rollout to be reported as complete")
    assert run(edge_lab, "rollout", "abort", *where, "--yes").exit_code == 1
    first = template(edge)

    assert run(edge_lab, "rollout", "restart", *where, "--yes").exit_code == 0
    second = template(edge)
    edge.wait(lambda: len(revisions(edge_lab, where)) == 2, "the second template to be kept")
    edge.wait(lambda: state(edge_lab, edge) == "CanaryPaused", "the canary to be complete")
    aborted = run(edge_lab, "rollout", "abort", *where, "--yes")
    assert aborted.exit_code == 0, (aborted.output, shown(edge_lab, "rollout", "get", *where))
    assert template(edge) == first
    edge.wait(lambda: [each["revision"] for each in revisions(edge_lab, where)] == [3, 2], "a third revision")
    edge.wait(lambda: state(edge_lab, edge) == "Complete", "the rollout back to end")

    assert run(edge_lab, "rollout", "undo", *where, "--to-revision", "2", "--yes").exit_code == 0
    assert template(edge) == second

    edge.change(revisionHistoryLimit=0)
    edge.wait(lambda: state(edge_lab, edge) == "CanaryPaused", "its canary to be complete")
    assert len(revisions(edge_lab, where)) == 2, "the one that an abort returns to is kept"
    edge.change(updateStrategy={"rollingUpdate": {"canary": None}})
    edge.wait(lambda: len(revisions(edge_lab, where)) == 1, "the former template to be deleted")

    [last] = edge_lab.client.list(CONTROLLER_REVISIONS, edge.namespace).items
    bare = {"metadata": {"labels": {REVISION_OF: None}}}
    edge_lab.client.patch(CONTROLLER_REVISIONS, last["metadata"]["name"], bare, edge.namespace)
    edge.wait(lambda: len(revisions(edge_lab, where)) == 1, "the label by which it is found to be restored")


def revisions(lab: Lab, where: tuple[str, ...]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = shown(lab, "rollout", "history", *where)["revisions"]
    return found


def template(edge: Edge) -> Any:
    return edge.lab.client.get(INGRESS_DAEMONSETS, "web", edge.namespace)["spec"]["template"]


def state(lab: Lab, edge: Edge) -> str:
    found: str = shown(lab, "rollout", "get", "web", "-n", edge.namespace)["state"]
    return found
