"""No more nodes are detached than allowed, and no pod is replaced before its node is detached."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kube.errors import ApiError
from tests.cluster.ingress_daemonset import (
    BALANCER,
    MISSING_ACCOUNT,
    Raw,
    by_deployment,
    by_node,
    detaching,
    image_of,
)
from tests.cluster.ingress_daemonset_edge import Edge
from tests.cluster.ingress_daemonset_scenarios import Scenario, title


def a_rollout_halts_when_its_first_pods_do_not_come(edge: Edge) -> None:
    edge.create(progressDeadlineSeconds=3, rolling=detaching(2))
    edge.settle(*"abcd")
    edge.retemplate("proxy:2", serviceAccountName=MISSING_ACCOUNT)
    # The Event names those that are stuck by then. On a busy machine the very first pods may have come late, too.
    edge.wait(
        lambda: "did not become available" in edge.events().get("RolloutHalted", ""), "an Event of its halt"
    )
    edge.wait(lambda: edge.reasons().get("Progressing") == "False Halted", "the status to say so")
    assert edge.off() == {"a", "b"}
    assert [image_of(pod) for name in "cd" for pod in edge.pods(name)] == ["proxy:1"] * 4

    edge.retemplate("proxy:3", serviceAccountName="default")
    edge.settle(*"abcd", image="proxy:3")


def the_status_has_the_plan_of_the_rollout_and_then_how_it_ended(edge: Edge) -> None:
    edge.create(rolling=detaching(1, **by_node(4, value="true")))
    edge.settle(*"abc")
    before = edge.wait(lambda: edge.status().get("currentRevision"), "the revision in the status")
    edge.retemplate("proxy:2")
    plan = edge.wait(lambda: edge.status().get("rollout"), "the plan in the status")
    assert (plan["fromRevision"], plan["nodes"], plan["waves"]) == (before, 3, 3)
    assert {edge.short(each) for each in plan["nextNodes"]} <= {*"abc"}
    assert plan["estimatedEnd"] > plan["startedAt"]
    edge.wait(lambda: edge.status().get("rollout", {}).get("wave") == 2, "the second wave")
    edge.settle(*"abc", image="proxy:2")

    edge.wait(lambda: "rollout" not in edge.status(), "the plan to go with the rollout")
    (ended,) = edge.status()["history"]
    assert (ended["result"], ended["nodes"], ended["atATime"]) == ("Complete", 3, 1)
    assert ended["toRevision"] == plan["toRevision"] == edge.status()["currentRevision"]
    assert ended["seconds"] >= 3 * 4


def weights_are_0_before_pods_are_replaced_and_return(edge: Edge) -> None:
    cloud, grace = edge.lab.cloud, 2
    instances = {name: f"ins-{edge.token}{name}" for name in "abc"}
    for name, instance in instances.items():
        edge.patch_node(name, spec={"providerID": f"qcloud:///200001/{instance}"})
    targets = [{"listener": "lbl-1", "instance": each, "port": 443} for each in instances.values()]
    cloud.put_load_balancer(BALANCER, *targets)
    foreign = {"setWeightToDetach": {"loadBalancers": ["lb-foreign0"]}}
    with pytest.raises(ApiError, match="lb-foreign0 is not for namespace"):
        edge.create(rolling=detaching(1, **foreign))

    weights = {"setWeightToDetach": {"loadBalancers": [BALANCER], "gracePeriodSeconds": grace}}
    edge.create(rolling=detaching(1, **weights))
    edge.settle(*"abc")
    edge.retemplate("proxy:2")
    edge.settle(*"abc", image="proxy:2")
    assert {*cloud.weights(BALANCER).values()} == {10}
    written = [each for each in cloud.calls() if each.action == "BatchModifyTargetWeight"]
    for name, instance in instances.items():
        off_at = next(each.at for each in written if weight_in(each.params, instance) == 0)
        assert edge.updated_at(name).timestamp() >= int(off_at + WEIGHT_SECONDS + grace)


WEIGHT_SECONDS = 1.0
"""That the cloud takes to change weights."""


def weight_in(params: Raw, instance: str) -> int | None:
    """What a call gives to the instance; None when it is for others."""
    targets = [target for rule in params["ModifyList"] for target in rule["Targets"]]
    return next((each["Weight"] for each in targets if each["InstanceId"] == instance), None)


def a_canary_that_crashes_again_and_again_is_rolled_back(edge: Edge) -> None:
    node = edge.borrow()
    canary = {"canary": {"nodeSelector": {"kubernetes.io/hostname": node}}, "autoRollback": True}
    tolerated = {"tolerations": [{"key": "drawbridge.io/lab", "operator": "Exists"}]}
    times = {"minReadySeconds": 3, "progressDeadlineSeconds": 15}
    pod = {"containers": [program(RUNS)], "terminationGracePeriodSeconds": 2, **tolerated}
    edge.create(pod=pod, podsPerNode=1, rolling=detaching(1, **by_deployment(1), **canary), **times)
    edge.wait(lambda: edge.reasons().get("Progressing") == "False Complete", "the first template")
    good = edge.wait(lambda: edge.status().get("currentRevision"), "the revision in the status")

    spared = [each["metadata"]["uid"] for each in edge.pods() if each["spec"]["nodeName"] != node]
    bad = {"spec": {"containers": [program(CRASHES)]}}
    edge.change(template=bad)
    edge.wait(lambda: any(restarts(each) for each in edge.pods(node)), "the canary to crash")
    assert "did not become available" in edge.await_event("RollbackStarted")
    edge.wait(lambda: edge.reasons().get("Progressing") == "False RolledBack", "the node to return")
    assert edge.status()["rollback"]["toRevision"] == edge.status()["currentRevision"] == good

    # As a GitOps tool does, together with a change beside the template.
    edge.change(template=bad, minReadySeconds=2)
    generation = edge.resource()["metadata"]["generation"]
    edge.wait(lambda: edge.status().get("observedGeneration") == generation, "the controllers to see it")
    # The pods that take the other minReadySeconds may be under way when the status is written first.
    edge.wait(lambda: edge.reasons()["Progressing"] == "False RolledBack", "the rollback to stand")
    assert {each["spec"]["containers"][0]["command"][-1] for each in edge.pods()} == {RUNS}
    assert set(spared) <= {each["metadata"]["uid"] for each in edge.pods()}


RUNS, CRASHES = "import time; time.sleep(3600)", "raise SystemExit(3)"


def program(code: str) -> Raw:
    return {"name": "proxy", "image": "drawbridge:test", "command": ["python", "-c", code]}


def restarts(pod: Raw) -> int:
    return sum(each["restartCount"] for each in pod["status"].get("containerStatuses", ()))


SCENARIOS: dict[Scenario, tuple[str, ...]] = {
    the_status_has_the_plan_of_the_rollout_and_then_how_it_ended: tuple("abc"),
    a_rollout_halts_when_its_first_pods_do_not_come: tuple("abcd"),
    a_canary_that_crashes_again_and_again_is_rolled_back: tuple("ab"),
    weights_are_0_before_pods_are_replaced_and_return: tuple("abc"),
}


@pytest.mark.promise
@pytest.mark.parametrize("scenario", SCENARIOS, ids=title)
def test_in_the_lab(played: Callable[[Scenario], None], scenario: Scenario) -> None:
    played(scenario)
