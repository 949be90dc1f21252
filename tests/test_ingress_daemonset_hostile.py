"""Whatever is sent as an IngressDaemonSet, both halves of its admission answer, in time and with what is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jsonpatch
import msgspec
import pytest

from kube.client import Page, Resource
from kube.selectors import REQUIRED
from settings import IngressDaemonSetSettings
from tests.hostile_objects import WRONG, Place, places, replaced, spelt
from tests.ingress_daemonset import Templates, raw, request, webhooks
from tests.ingress_daemonset_world import raw_node
from webhook.admission import Decision, ReviewError, deny, render
from webhook.ingress_daemonset.cluster_lookup import ClusterLookup
from webhook.ingress_daemonset.webhook import DefaultingWebhook, ValidatingWebhook

TIMEOUT = 5.0
"""In seconds, that of the webhook configuration."""
WHERE = ("spec.", "request.object", "request.oldObject")
"""A refusal names one of them."""
EXPRESSION = {"key": "zone", "operator": "Gt", "values": ["1"]}
TERM = {"matchExpressions": [EXPRESSION], "matchFields": [{"key": "metadata.name", "operator": "Exists"}]}
POD = {
    "hostNetwork": True,
    "restartPolicy": "Always",
    "nodeSelector": {"edge": "true"},
    "tolerations": [{"key": "edge", "operator": "Exists", "tolerationSeconds": 5}],
    "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [TERM]}}},
    "initContainers": [{"name": "first", "image": "init"}],
    "containers": [
        {
            "name": "web",
            "image": "nginx",
            "ports": [{"name": "http", "containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
            "readinessProbe": {"httpGet": {"path": "/", "port": "http"}},
        }
    ],
}
ROLLING = {
    "maxUnavailableNodes": "10%",
    "maxUnavailablePodsPerNodes": 3,
    "maxSurgedPodsPerNode": 1,
    "maxDegradedNodes": 0,
    "annotateDeploymentToDetach": {"gracePeriodSeconds": 5},
    "annotateNodeToDetach": {"key": "example.com/detached", "value": "true", "gracePeriodSeconds": 10},
    "waitForDetachmentByAnnotatedTimestamp": {"key": "example.com/since", "gracePeriodSeconds": 30},
}
WHOLE = raw(
    {
        "podsPerNode": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "nodeSelector": {"edge": "true"},
        "healthCheckNodePorts": [10080],
        "healthChecker": {"image": "checker", "resources": {"limits": {"memory": "64Mi"}}},
        "paused": False,
        "minReadySeconds": 1,
        "progressDeadlineSeconds": 60,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": ROLLING},
        "template": {"spec": POD},
    },
    labels={"app": "web"},
    annotations={"a": "b"},
    finalizers=["drawbridge.io/ingress-daemonset"],
    deletionTimestamp=None,
    generation=1,
)
OLD = replaced(WHOLE, ("spec", "podsPerNode"), 1)
OTHER = raw({"healthCheckNodePorts": [10080], "template": {"spec": POD}}, name="other")


class Objects:
    """As a client that lists them: one more IngressDaemonSet, which binds the same port, and one node."""

    def __init__(self, *others: object) -> None:
        self._others = others

    def list_pages(
        self,
        resource: Resource,
        selection: object,
        *,
        type: Any,  # noqa: A002 - as the client has it
        timeout: Callable[[], float],
    ) -> Iterator[Page[Any]]:
        assert timeout() > 0
        yield Page(items=[msgspec.convert(each, type) for each in self._of(resource)])

    def _of(self, resource: Resource) -> Sequence[object]:
        tainted = {"taints": [{"key": "edge", "value": "", "effect": "NoSchedule"}]}
        node = raw_node(labels={"edge": "true", "zone": "2"}, **tainted)
        return [node] if resource.plural == "nodes" else self._others


def among(*others: object) -> tuple[DefaultingWebhook, ValidatingWebhook]:
    """Both halves, in a cluster with *others*."""
    defaults, _ = webhooks()
    settings = IngressDaemonSetSettings(enabled=True)
    return defaults, ValidatingWebhook(
        lambda: settings, ClusterLookup(Objects(*others)).port_users, Templates().problems
    )  # type: ignore[arg-type]


def asked(webhook: DefaultingWebhook | ValidatingWebhook, new: object, old: object = None) -> Decision:
    """An answer that came in time, and is clear; anything but a ReviewError would be a fault of ours."""
    question, deadline = request(new, old), time.monotonic() + TIMEOUT
    try:
        decision = webhook.review(question, deadline)
    except ReviewError as error:
        decision = deny(str(error), code=400)
    assert time.monotonic() < deadline
    assert decision.allowed or any(where in decision.message for where in WHERE)
    assert render(question, decision)
    return decision


def stored(defaults: DefaultingWebhook, new: Any) -> Any:
    """As the defaults have it, who have nothing to add a second time."""
    outcome = jsonpatch.apply_patch(new, list(asked(defaults, new).patch))
    assert asked(defaults, outcome).patch == ()
    return outcome


@pytest.mark.parametrize("place", list(places(WHOLE)), ids=spelt)
def test_an_object_with_anything_anywhere_is_taken_or_refused_with_what_is_wrong(place: Place) -> None:
    defaults, rules = among(OTHER)
    for new in WRONG:
        odd = replaced(WHOLE, place, new)
        asked(rules, stored(defaults, odd))
        for webhook in (defaults, rules):
            asked(webhook, odd, OLD)
            asked(webhook, WHOLE, odd)


@pytest.mark.parametrize("place", list(places(OTHER)), ids=spelt)
def test_another_object_with_anything_anywhere_does_not_block_requests(place: Place) -> None:
    for new in WRONG:
        _, rules = among(*(odd for odd in [replaced(OTHER, place, new)] if isinstance(odd, dict)))
        asked(rules, WHOLE)


def test_as_it_should_be_it_is_only_its_neighbour_that_it_is_refused_for() -> None:
    defaults, alone = among()
    _, conflicting = among(OTHER)
    whole = stored(defaults, WHOLE)

    assert asked(alone, whole).allowed
    refused = asked(conflicting, whole).message
    assert refused.partition(" is invalid: ")[2].startswith(
        "spec.healthCheckNodePorts[0]: 10080 is taken on node n1"
    )
