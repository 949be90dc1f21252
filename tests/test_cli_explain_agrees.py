"""`drawbridge explain` says what the webhook server does: both are asked about thousands of generated objects."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.elasticity import PATH
from api.ingress_daemonset import INGRESS_DAEMONSETS
from calico.reservations import Reservations
from calico.segment import IPReservation, Record
from cli.explain.kinds import snapshot_of
from cli.explain.matching import ApiRequest, Outcome, Verdict
from cli.explain.prediction import UID, Prediction, change_of, creation_of, deletion_of, eviction_of, predict
from cli.installation import WebhookConfiguration
from cli.inventory import Inventory
from dev.fake_api import FakeAPI
from features import FEATURES
from kube.resources import LEASES, NAMESPACES, NODES, PODS
from settings import Settings
from tests import cli
from tests.charts import helm_needed, render, settings_in
from tests.explained import (
    NAMESPACES_OF_ALL_SORTS,
    NODES_OF_ALL_SORTS,
    PODS_OF_ALL_SORTS,
    VALUES,
    pod_in,
    registered,
)
from tests.factories import NOW, raw_pod
from tests.fakes import FakeClock
from tests.ingress_daemonset import raw
from tests.tables import table
from webhook.admission import parse
from webhook.app import create_app
from webhook.elasticity.leader import REFRESH, LeaseReader
from webhook.elasticity.webhook import PlacementWebhook
from webhook.replica import Replica

pytestmark = helm_needed

Raw = dict[str, Any]
WITH_A_DEFAULT = {**VALUES, "elasticity": {"enabled": True, "localReplicas": 1}}
MANY = 5_000
CHANGES = {"reserved", "gated", "scheduler", "kept-off-super-nodes", "not-believed", "failed-open"}
"""Audit annotations of what a webhook does to a pod. Who gates a pod by hand needs no explanation."""


@dataclass(frozen=True)
class Installation:
    configurations: Sequence[WebhookConfiguration]
    settings: Settings


@cache
def installation(*, local_replicas: bool) -> Installation:
    """As the chart installs it."""
    objects = render(WITH_A_DEFAULT if local_replicas else VALUES)
    return Installation([WebhookConfiguration(webhooks=tuple(registered(objects)))], settings_in(objects))


@dataclass(frozen=True)
class World:
    """What `explain` foresees, and a server with the same cluster."""

    api: FakeAPI
    settings: Settings
    predicted: Sequence[Prediction] = ()

    def asked(self, answer: Verdict, request: ApiRequest) -> Raw:
        """The response of the whole server: its WSGI application, ledger and API server."""
        replica = Replica(self.api.client(), lambda: self.settings, "replica")
        client = create_app(replica.webhooks(FEATURES)).test_client()
        path = answer.webhook.path
        sent = client.post(path, data=request.review(UID), content_type="application/json")
        assert sent.status_code == 200, sent.text
        response: Raw = json.loads(sent.data)["response"]
        return response


def inventory_of(api: FakeAPI, found: Installation) -> Inventory:
    inventory = Inventory(cli.cluster_of(api))
    # Reading them has its own test.
    inventory.__dict__.update(configurations=found.configurations, settings=found.settings)
    return inventory


def world(found: Installation, namespace: Raw, pod: Raw) -> World:
    api = FakeAPI()
    api.put(NAMESPACES, namespace)
    stored = api.put(PODS, pod)
    evicting = {"updateStrategy": {"rollingUpdate": {"maxUnavailableNodes": 1}}}
    api.put(INGRESS_DAEMONSETS, raw(evicting, name="redis", namespace=namespace["metadata"]["name"]))
    inventory = inventory_of(api, found)
    snapshot = snapshot_of(inventory, [stored])
    # What the others reserve would be promised to a new pod.
    asked = (creation_of(PODS, stored), deletion_of(stored), eviction_of(stored))
    return World(api, found.settings, [predict(each, snapshot) for each in asked])


def decided(answer: Verdict) -> Raw:
    """As the server would render it."""
    assert answer.decision is not None
    decision = answer.decision
    return {
        "allowed": decision.allowed,
        "message": decision.message,
        "code": decision.code if not decision.allowed else 0,
        "audit": dict(decision.audit),
        "patch": [dict(each) for each in decision.patch],
    }


def rendered(response: Raw) -> Raw:
    status = response.get("status", {})
    audit = response.get("auditAnnotations", {})
    patch = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    return {
        "allowed": response["allowed"],
        "message": status.get("message", ""),
        "code": status.get("code", 0),
        "audit": audit,
        "patch": patch,
    }


def reserved(api: FakeAPI) -> set[tuple[str, str, str, str]]:
    segments: Sequence[IPReservation] = Reservations(api.client()).list()
    return {_essence(record) for each in segments for record in each.records}


def check(namespace: Raw, part: Raw, *, local_replicas: bool) -> None:
    given_pod = pod_in(namespace["metadata"]["name"], part)
    found = world(installation(local_replicas=local_replicas), namespace, given_pod)
    for predicted in found.predicted:
        assert not predicted.others
        for answer in predicted.answers:
            agree(found, predicted.request, answer)
    expected = {_essence(record) for each in found.predicted for record in each.records}
    assert reserved(found.api) == expected


def agree(found: World, request: ApiRequest, answer: Verdict) -> None:
    assert answer.outcome in (Outcome.CALLED, Outcome.SKIPPED), answer.effect
    if answer.decision is not None:
        assert decided(answer) == rendered(found.asked(answer, request))
    elif answer.by.startswith("matchCondition"):
        # The conditions leave out what the webhook would let through as it is.
        assert is_untouched(rendered(found.asked(answer, request))), answer.effect


def is_untouched(response: Raw) -> bool:
    return bool(response["allowed"] and CHANGES.isdisjoint(response["audit"]))


PODS_AROUND = given(NAMESPACES_OF_ALL_SORTS, PODS_OF_ALL_SORTS, st.booleans())


@PODS_AROUND
def test_explain_and_the_server_say_the_same_about_pods(
    namespace: Raw, part: Raw, local_replicas: bool
) -> None:
    check(namespace, part, local_replicas=local_replicas)


@pytest.mark.slow
@settings(max_examples=MANY)
@PODS_AROUND
def test_explain_and_the_server_say_the_same_about_thousands_of_pods(
    namespace: Raw, part: Raw, local_replicas: bool
) -> None:
    check(namespace, part, local_replicas=local_replicas)


@given(NODES_OF_ALL_SORTS, NODES_OF_ALL_SORTS)
def test_explain_and_the_server_say_the_same_about_nodes(old: Raw, new: Raw) -> None:
    api, known = FakeAPI(), installation(local_replicas=False)
    inventory = inventory_of(api, known)
    snapshot = snapshot_of(inventory)
    for request in (creation_of(NODES, new), change_of(NODES, old, new)):
        predicted = predict(request, snapshot)
        found = World(api, known.settings)
        (answer,) = (each for each in predicted.answers if each.by != "rules")
        response = rendered(found.asked(answer, request))
        # Exactly the nodes that are to be tainted cost a call.
        assert (answer.outcome is Outcome.CALLED) is bool(response["patch"]), answer.effect
        if answer.decision:
            assert decided(answer) == response


SPECS: dict[str, tuple[Raw, bool]] = {
    "valid": ({}, True),
    "a port of another one": ({"healthCheckNodePorts": [10254]}, False),
    "a rollout that could never go on": (
        {"updateStrategy": {"rollingUpdate": {"maxUnavailableNodes": 0, "maxDegradedNodes": "0%"}}},
        False,
    ),
    "no template": ({"template": {"spec": {"containers": "none"}}}, False),
}


def test_explain_and_the_server_say_the_same_about_ingress_daemonsets(subtests: pytest.Subtests) -> None:
    known = installation(local_replicas=False)
    for case, (spec, expected) in SPECS.items():
        api = FakeAPI()
        api.put(NAMESPACES, {"metadata": {"name": "shop"}})
        api.put(INGRESS_DAEMONSETS, raw({"healthCheckNodePorts": [10254]}, name="other", namespace="shop"))
        api.put(NODES, {"metadata": {"name": "node-1"}})
        inventory = inventory_of(api, known)
        asked = creation_of(INGRESS_DAEMONSETS, raw(spec, name="web", namespace="shop"))

        predicted = predict(asked, snapshot_of(inventory, namespaces=["shop"]))

        with subtests.test(case):
            assert predicted.allowed is expected, predicted.denials
            assert sum(each.decision is not None for each in predicted.answers) == 2
            for answer in predicted.answers:
                agree(World(api, known.settings), asked, answer)


@table(
    "expired, ahead, gated",
    {
        "a leader": (-5, 0, True),
        "none for a moment": (40, 0, True),
        "none for long": (300, 0, False),
        "a leader, by a clock that is off": (-5, 3600, True),
    },
)
def test_explain_and_the_server_say_the_same_while_there_is_no_leader(
    expired: float, ahead: float, gated: bool
) -> None:
    renewed = NOW - timedelta(seconds=15 + expired)
    known, api, clock = installation(local_replicas=True), FakeAPI(now=lambda: renewed), FakeClock(0.0)
    api.fault = cli.answered
    api.put(NAMESPACES, {"metadata": {"name": "shop"}})
    election = known.settings.leader_election
    name, namespace = election.resource_name, election.resource_namespace
    api.put(LEASES, cli.lease(renewed) | {"metadata": {"name": name, "namespace": namespace}})
    reader = LeaseReader(api.client(), lambda: election, clock=clock, now=lambda: NOW)
    server = PlacementWebhook(lambda: known.settings.elasticity, reader.absence)
    pod = raw_pod("web-0", namespace="shop")
    # It decides about a leader by its second look.
    reader.absence(clock())
    clock.advance(REFRESH if expired > 0 else 0)

    inventory = inventory_of(api, known)
    inventory.now = lambda: NOW + timedelta(seconds=ahead)
    answer = predict(creation_of(PODS, pod), snapshot_of(inventory, namespaces=["shop"])).answer(PATH)

    assert answer is not None
    assert answer.decision is not None
    by_server = server.review(parse(creation_of(PODS, pod).review(UID)), clock() + 1)
    assert ("gated" in answer.decision.audit) == ("gated" in by_server.audit) == gated


def _essence(record: Record) -> tuple[str, str, str, str]:
    return record.cidr, record.uid, record.owner, record.node
