"""The simulator's models of Kubernetes, on a fake API server alone; tests/cluster plays the histories for real."""

from __future__ import annotations

from typing import Any

import pytest

from kube.resources import DEPLOYMENTS, NODES, PODS, STATEFUL_SETS
from tests.model_histories import HISTORIES, Modelled, conditions, pods, template, workload

Raw = dict[str, Any]


@pytest.fixture
def place() -> Modelled:
    found = Modelled()
    for name in ("node-1", "node-2"):
        found.join(name)
    return found


def ready(place: Modelled) -> list[Raw]:
    return [each for each in pods(place) if conditions(each).get("Ready") == "True"]


def active(place: Modelled) -> list[Raw]:
    return [each for each in pods(place) if "deletionTimestamp" not in each["metadata"]]


def bare(place: Modelled, name: str, image: str, **spec: Any) -> Raw:
    body = {"metadata": {"name": name}, "spec": template(place, image, **spec)["spec"]}
    created: Raw = place.client.create(PODS, body, place.namespace)
    return created


@pytest.mark.parametrize("history", HISTORIES)
def test_a_history_can_be_played_again(history: str) -> None:
    play = HISTORIES[history]
    assert list(play(Modelled("a"))) == list(play(Modelled("b"))), "chance decides no outcome"


@pytest.mark.parametrize(("surge", "unavailable"), [(1, 0), (0, 1), ("25%", "25%"), (0, "10%")])
def test_a_rollout_stays_within_its_bounds(place: Modelled, surge: Any, unavailable: Any) -> None:
    strategy = {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    body = workload(place, 5, strategy=strategy, minReadySeconds=5)
    place.client.create(DEPLOYMENTS, body, place.namespace)
    place.until(lambda: len(ready(place)) == 5, "5 pods")
    place.run(10)
    sizes, available = [], []
    place.looks.append(lambda: sizes.append(len(active(place))))
    place.looks.append(
        lambda: available.append(len([each for each in ready(place) if each in active(place)]))
    )

    change = {"spec": {"template": template(place, "web:2")}}
    place.client.patch(DEPLOYMENTS, "web", change, place.namespace)
    place.run(300)

    assert {each["spec"]["containers"][0]["image"] for each in pods(place)} == {"web:2"}
    assert max(sizes) <= 5 + (2 if surge == "25%" else surge)
    assert min(available) >= 5 - (1 if unavailable else 0)


def test_what_is_not_ready_goes_first_and_then_what_costs_least(place: Modelled) -> None:
    place.client.create(DEPLOYMENTS, workload(place, 3), place.namespace)
    place.until(lambda: len(ready(place)) == 3, "3 pods")
    names = [each["metadata"]["name"] for each in pods(place)]
    cost = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}}}
    place.client.patch(PODS, names[1], cost, place.namespace)
    place.client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 2}}, place.namespace)
    place.run(30)
    assert [each["metadata"]["name"] for each in pods(place)] == [names[0], names[2]]


def test_a_crashing_pod_is_ready_for_15_seconds_at_a_time(place: Modelled) -> None:
    bare(place, "one", "crashing:1")
    place.until(lambda: bool(ready(place)), "it to be ready")
    began = place.clock
    place.until(lambda: not ready(place), "its crash")
    assert (place.clock - began).total_seconds() == pytest.approx(15, abs=0.1)
    place.until(lambda: bool(ready(place)), "its restart")
    (container,) = pods(place)[0]["status"]["containerStatuses"]
    assert container["restartCount"] == 1


def test_pods_end_or_never_become_ready_as_their_image_says(place: Modelled) -> None:
    bare(place, "never", "never-ready:1")
    bare(place, "ending", "ending:1", restartPolicy="Never")
    place.run(120)
    phases = {each["metadata"]["name"]: each["status"]["phase"] for each in pods(place)}
    assert phases == {"never": "Running", "ending": "Succeeded"}
    assert not ready(place)


def test_a_pod_is_ready_once_its_readiness_probe_is_answered(place: Modelled) -> None:
    began, kubelets = place.clock, place.kubernetes.kubelets
    kubelets.answers = lambda pod: (place.clock - began).total_seconds() > 60
    bare(place, "one", "web:1")
    place.run(60)
    assert not ready(place)
    place.run(5)
    assert ready(place)


def test_a_deleted_pod_stops_before_it_goes_and_gives_its_address_back(place: Modelled) -> None:
    bare(place, "one", "stubborn:1", terminationGracePeriodSeconds=20)
    place.until(lambda: bool(ready(place)), "it to be ready")
    address = pods(place)[0]["status"]["podIP"]
    place.client.delete(PODS, "one", place.namespace)
    place.run(19)
    assert pods(place)
    place.run(3)
    assert not pods(place)
    bare(place, "two", "web:1")
    place.until(lambda: bool(ready(place)), "the next one")
    assert pods(place)[0]["status"]["podIP"] == address


def test_a_reboot_gives_a_pod_another_sandbox(place: Modelled) -> None:
    bare(place, "one", "web:1")
    place.until(lambda: bool(ready(place)), "it to be ready")
    node = pods(place)[0]["spec"]["nodeName"]
    place.kubernetes.kubelets.reboot(node, place.clock, 20)
    place.until(lambda: "podIP" not in pods(place)[0]["status"], "its kubelet to show that it has no sandbox")
    place.run(60)
    (container,) = pods(place)[0]["status"]["containerStatuses"]
    assert (container["restartCount"], len(ready(place))) == (1, 1)


def test_a_pod_that_is_not_bound_any_more_starts_once_more_where_it_is_bound_then(place: Modelled) -> None:
    bare(place, "one", "web:1", schedulingGates=[{"name": "example.com/gate"}])
    backup = place.api.snapshot()
    place.client.patch(PODS, "one", {"spec": {"schedulingGates": None}}, place.namespace)
    place.until(lambda: "nodeName" in pods(place)[0]["spec"], "its binding")
    place.api.restore(backup)
    place.run(60)
    assert pods(place)[0].get("status", {}).get("phase", "Pending") == "Pending", "its kubelet has written"
    place.client.patch(PODS, "one", {"spec": {"schedulingGates": None}}, place.namespace)
    place.until(lambda: bool(ready(place)), "it to be ready again")


def test_a_pod_that_ended_after_a_backup_ends_again_once_that_is_restored(place: Modelled) -> None:
    bare(place, "one", "web:1")
    place.until(lambda: bool(ready(place)), "it to be ready")
    backup = place.api.snapshot()
    place.kubernetes.kubelets.evict(pods(place)[0], place.clock)
    place.run(10)
    place.api.restore(backup)
    place.run(10)
    assert [each["status"].get("reason") for each in pods(place)] == ["Evicted"]


def test_a_node_that_was_silent_in_a_backup_is_ready_again_once_that_is_restored(place: Modelled) -> None:
    bare(place, "one", "web:1")
    place.until(lambda: bool(ready(place)), "it to be ready")
    node, kubelets = pods(place)[0]["spec"]["nodeName"], place.kubernetes.kubelets
    kubelets.silence(node, place.clock)
    place.run(60)
    backup = place.api.snapshot()
    kubelets.recover(node, place.clock)
    place.run(5)
    place.api.restore(backup)
    place.run(5)
    assert ready(place)
    assert conditions(place.client.get(NODES, node))["Ready"].startswith("True")


def test_pods_of_a_silent_node_are_replaced_after_five_minutes_and_end_with_it(place: Modelled) -> None:
    place.client.create(DEPLOYMENTS, workload(place, 2), place.namespace)
    place.until(lambda: len(ready(place)) == 2, "2 pods")
    lost = ready(place)[0]["spec"]["nodeName"]
    place.kubernetes.kubelets.silence(lost, place.clock)
    place.run(60)
    node = place.client.get(NODES, lost)
    assert conditions(node)["Ready"].startswith("Unknown")
    assert {each["effect"] for each in node["spec"]["taints"]} == {"NoSchedule", "NoExecute"}
    assert all(each["spec"]["nodeName"] != lost for each in ready(place))
    place.run(310)
    assert len(ready(place)) == 2
    assert any("deletionTimestamp" in each["metadata"] for each in pods(place)), "no kubelet ends it"

    place.kubernetes.kubelets.recover(lost, place.clock)
    place.run(30)
    assert len(pods(place)) == len(ready(place)) == 2
    assert not place.client.get(NODES, lost)["spec"].get("taints")


def test_pods_of_a_node_that_is_gone_are_collected(place: Modelled) -> None:
    place.client.create(STATEFUL_SETS, workload(place, 2, serviceName="web"), place.namespace)
    place.until(lambda: len(ready(place)) == 2, "2 pods")
    lost = ready(place)[0]["spec"]["nodeName"]
    place.kubernetes.kubelets.switch_off(lost, place.clock)
    place.client.delete(NODES, lost)
    place.run(120)
    assert len(ready(place)) == 2
    assert {each["spec"]["nodeName"] for each in pods(place)} == {"node-1", "node-2"} - {lost}


def test_a_kubelet_that_starts_again_may_reject_what_runs(place: Modelled) -> None:
    place.client.create(DEPLOYMENTS, workload(place, 1), place.namespace)
    place.until(lambda: len(ready(place)) == 1, "a pod")
    (pod,) = pods(place)
    node = pod["spec"]["nodeName"]
    place.client.patch(NODES, node, {"metadata": {"labels": {"histories": None}}})
    place.kubernetes.kubelets.restart(node, place.clock)
    place.until(lambda: len(ready(place)) == 1, "its successor")
    rejected = place.client.get(PODS, pod["metadata"]["name"], place.namespace)
    assert (rejected["status"]["phase"], rejected["status"]["reason"]) == ("Failed", "NodeAffinity")


def test_nothing_is_written_at_rest(place: Modelled) -> None:
    place.client.create(DEPLOYMENTS, workload(place, 3), place.namespace)
    place.client.create(STATEFUL_SETS, workload(place, 2, serviceName="web"), place.namespace)
    place.run(120)
    version = place.api.version
    place.run(3600)
    assert place.api.version == version
