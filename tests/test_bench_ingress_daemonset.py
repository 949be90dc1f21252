"""The benchmark of ingress_daemonset shows by what was seen when all is done, and judges what is promised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest

from bench.ingress_daemonset import figures, manifests
from bench.ingress_daemonset.ours import Rest, Rolled
from bench.ingress_daemonset.phases import Cost
from bench.ingress_daemonset.progress import Creation, Deployment, Made, Observed, Rollout, follow
from bench.processes import MIB, Usage
from bench.report import Figure
from controllers.ingress_daemonset import desired
from kube.types import Node, ObjectMeta
from tests.ingress_daemonset import outcome, request, webhooks
from webhook.ingress_daemonset import DETACHED_BY, NODE_LABEL, TO_BE_UPDATED
from webhook.ingress_daemonset.types import resource

OLD, NEW = manifests.OLD, manifests.NEW


def by_name(found: Sequence[Figure]) -> dict[str, Figure]:
    return {each.name.partition(": ")[2]: each for each in found}


def missed(found: Mapping[str, Figure]) -> set[str]:
    return {name for name, each in found.items() if each.met is False}


# What is created


def test_the_ingress_daemonset_is_one_that_is_taken_without_a_warning() -> None:
    defaults, rules = webhooks()
    wanted = manifests.ingress_daemonset("ours", 50)

    stored, warned = outcome(wanted, request(wanted), defaults.review(request(wanted), deadline=0))

    decision = rules.review(request(stored), deadline=0)
    assert (decision.allowed, decision.warnings, warned) == (True, (), [])


def test_a_plain_deployment_is_that_of_the_ingress_daemonset_but_of_no_concern_to_the_controllers() -> None:
    wanted = manifests.ingress_daemonset("ours", 50)

    plain, ours = manifests.plain(wanted, "kwok-7"), desired.deployment(resource(wanted), "kwok-7")

    assert plain["spec"] == ours["spec"]
    assert plain["spec"]["template"]["spec"]["nodeName"] == "kwok-7"
    assert plain["metadata"]["name"] == ours["metadata"]["name"]
    assert "ownerReferences" not in plain["metadata"]
    assert NODE_LABEL not in plain["metadata"]["labels"]


# When all is done


def deployment(
    name: str = "a", *, image: str = OLD, available: int = 2, updated: int = 2, old: int = 0, **more: Any
) -> Deployment:
    status = {"replicas": updated + old, "updatedReplicas": updated, "availableReplicas": available}
    raw = {
        "metadata": {"name": name, "generation": 2, "annotations": more.get("annotations", {})},
        "spec": {"replicas": 2, "template": {"spec": {"containers": manifests.containers(image)}}},
        "status": status | {"observedGeneration": more.get("observed", 2)},
    }
    return msgspec.convert(raw, Deployment)


def node(name: str = "a", *, off: bool = False) -> Node:
    return Node(ObjectMeta(name=name, annotations={DETACHED_BY: "{}"} if off else {}))


def observed(*seen: Deployment | Node) -> Observed:
    """One after the other, a second between them."""
    queue: Observed = SimpleQueue()
    for at, each in enumerate(seen, 1):
        queue.put((each, float(at)))
    return queue


def test_all_exist_when_the_last_one_is_seen_and_are_available_with_the_last_ones_pods() -> None:
    course = Creation(2)

    seen = observed(
        node(),
        deployment("a", available=0),
        deployment("a"),
        deployment("b", available=1),
        deployment("a", available=1),
        deployment("b"),
        deployment("b"),
    )
    follow(seen, course, "", deadline=0.0)

    assert course.since(1.0) == Made(first=1.0, existed=3.0, available=5.0)


@pytest.mark.parametrize(
    "unfinished",
    [
        pytest.param(deployment(image=OLD), id="of the old template"),
        pytest.param(deployment(image=NEW, observed=1), id="not looked at yet"),
        pytest.param(deployment(image=NEW, old=1), id="an old pod is left"),
        pytest.param(deployment(image=NEW, available=1), id="a pod is not available"),
        pytest.param(deployment(image=NEW, annotations={TO_BE_UPDATED: ""}), id="still off"),
    ],
)
def test_a_rollout_is_over_when_nothing_is_left_to_be_done(unfinished: Deployment) -> None:
    course = Rollout(NEW, ["a"])

    follow(
        observed(unfinished, deployment("other", image=NEW), deployment(image=NEW)), course, "", deadline=0.0
    )

    assert course.ended_at == 3.0


def test_a_rollout_is_over_when_each_node_was_off_and_is_back() -> None:
    course = Rollout(NEW, ["a"], ["a", "b", "c"])

    seen = observed(
        node("a"),
        node("a", off=True),
        node("b", off=True),
        node("a"),
        node("c", off=True),
        node("b"),
        deployment("a", image=NEW),
        node("c"),
        node("a"),
    )
    follow(seen, course, "", deadline=0.0)

    assert (course.most_off, course.ended_at) == (2, 8.0)


# The figures


def cost(seconds: float = 1.0, own: int = 0, plans: int = 4, **api: int) -> Cost:
    """*api* as RESOURCE_VERB, or RESOURCE_VERB_CODE."""
    seen = {}
    for name, count in api.items():
        which, verb, code = [*name.split("_"), "200"][:3]
        labels = f'code="{code}",resource="{which}",subresource="",verb="{verb}"'
        seen[f"apiserver_request_total{{{labels}}}"] = float(count)
    observed = {
        'drawbridge_ingress_daemonset_writes_total{kind="Node"}': float(own),
        "drawbridge_ingress_daemonset_plan_seconds_count": float(plans),
        "drawbridge_ingress_daemonset_plan_seconds_sum": 0.5,
    }
    return Cost(seen, observed, {"leader": Usage(seconds, 50 * MIB, 60 * MIB)})


ALONE = (Made(first=0.1, existed=10.0, available=40.0), cost(seconds=4.0))
WAVES = (40.0, cost(seconds=4.0))


@pytest.mark.parametrize(
    ("made", "counted", "misses"),
    [
        pytest.param(
            Made(1.0, 15.0, 52.0), {"deployments_POST": 1000, "deployments_PATCH": 16}, set(), id="just so"
        ),
        pytest.param(
            Made(1.0, 15.1, 52.0),
            {"deployments_POST": 1000},
            {"until all Deployments exist, against a plain client"},
            id="too late",
        ),
        pytest.param(
            Made(1.0, 15.0, 52.0),
            {"deployments_POST": 1000, "deployments_PATCH": 10, "deployments_PATCH_409": 7},
            {"changes of Deployments afterwards"},
            id="more changed than are written at once",
        ),
    ],
)
def test_a_thousand_nodes_are_judged_by_the_plain_client(
    made: Made, counted: dict[str, int], misses: set[str]
) -> None:
    assert missed(by_name(list(figures.of_creation(1000, ALONE, (made, cost(**counted)))))) == misses


@pytest.mark.parametrize(
    ("spent", "misses"),
    [
        pytest.param(cost(deployments_GET=9, nodes_PATCH=9), set(), id="nothing of ours is written"),
        pytest.param(cost(own=1), {"writes of the leader, but for status"}, id="by its own account"),
        *(
            pytest.param(
                cost(**{f"{each}_PATCH": 1}),
                {"writes of any client to objects of the feature"},
                id=f"a write to {each}",
            )
            for each in ("deployments", "daemonsets", "roles", "rolebindings", "ingressdaemonsets")
        ),
        pytest.param(cost(plans=0), {"looks at all of it"}, id="no resync"),
    ],
)
def test_at_rest_nothing_may_be_written_though_it_is_looked_at(spent: Cost, misses: set[str]) -> None:
    found = by_name(list(figures.of_rest(1000, Rest(60.0, 5000), spent)))

    assert missed(found) == misses
    assert found["heartbeats per node"].value == 5


@pytest.mark.parametrize(
    ("rolled", "counted", "misses"),
    [
        pytest.param(Rolled(60.0, 50), {"deployments_PATCH": 3016, "nodes_PATCH": 2000}, set(), id="just so"),
        pytest.param(Rolled(60.0, 51), {}, {"nodes that were off at a time, at most"}, id="too many off"),
        pytest.param(Rolled(60.0, 50), {"nodes_PATCH": 2001}, {"changes per Node"}, id="a node once more"),
    ],
)
def test_a_rollout_is_judged_by_its_budget_and_its_writes(
    rolled: Rolled, counted: dict[str, int], misses: set[str]
) -> None:
    found = by_name(list(figures.of_rollout(1000, 50, WAVES, (rolled, cost(**counted)))))

    assert missed(found) == misses
    assert found["wall, against waves of a plain client"].ratio == 1.5
    assert found["CPU of all programs, against a plain client"].ratio == 0.25
