"""What the API server changes itself, by policies of the chart: the same as the webhooks that they replace."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given

from cli.explain.matching import ApiRequest, Outcome, judge
from cli.explain.prediction import change_of, creation_of
from cli.installation import MutatingPolicy
from dev.fake_api.patches import JSON_PATCH, patched
from dev.lab import chart
from dev.simulator.policies import operations
from kube.resources import NODES
from tests.admission import admitted
from tests.charts import ANYCAST_IP, helm_needed, render
from tests.explained import NODES_OF_ALL_SORTS
from tests.test_anycast_webhook import webhook
from webhook.admission import parse

pytestmark = helm_needed
Raw = dict[str, Any]


def after_policy(policy: Raw, asked: ApiRequest) -> Raw:
    """The new object, as the simulated API server has it."""
    new: Raw = dict(asked.object or {})
    if judge(msgspec.convert(policy, MutatingPolicy).as_webhook, asked, {}).outcome is not Outcome.CALLED:
        return new
    variables = {"object": new, "oldObject": asked.old_object, "request": asked.admission}
    [mutation] = policy["spec"]["mutations"]
    changed: Raw = patched(new, operations(mutation, variables), JSON_PATCH)
    return changed


@given(NODES_OF_ALL_SORTS, NODES_OF_ALL_SORTS)
def test_the_policy_and_the_webhook_make_the_same_of_a_node(old: Raw, new: Raw) -> None:
    rendered = render(ANYCAST_IP | {"admission": {"mutations": "policy"}})
    policy = rendered["MutatingAdmissionPolicy", "drawbridge-anycast-ip"]

    for asked in (creation_of(NODES, new), change_of(NODES, old, new)):
        review = parse(asked.review("uid-1"))
        expected = admitted(dict(asked.object or {}), review, webhook().review(review, deadline=0))
        assert after_policy(policy, asked) == expected


@pytest.mark.parametrize(
    ("mutations", "served", "by"),
    [
        ("auto", False, "webhook"),
        ("auto", True, "policy"),
        ("webhook", True, "webhook"),
        ("policy", False, "policy"),
    ],
)
def test_nodes_are_tainted_by_one_of_the_two(mutations: str, served: bool, by: str) -> None:
    values = yaml.safe_dump(ANYCAST_IP | {"admission": {"mutations": mutations}})
    kind = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"

    text = chart.manifests(values, *([f"--api-versions={kind}"] if served else []))

    found = [each for each in yaml.safe_load_all(text) if each and each["kind"].startswith("Mutating")]
    assert [each["kind"] for each in found] == {
        "webhook": ["MutatingWebhookConfiguration"],
        "policy": ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"],
    }[by]
