"""`drawbridge explain pod` says whose address a pod is promised, and which reservations wait for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calico.segment import Record, body
from kube.resources import NAMESPACES, PODS
from tests.calico_pools import Raw
from tests.charts import helm_needed, render
from tests.cli import run, shown
from tests.explained import VALUES, installed
from tests.factories import raw_pod
from tests.fake_api import FakeAPI
from tests.test_cli_explain import RESERVATIONS, now
from webhook.ip_reservation.same_address import IP_ADDRS, SAME_ADDRESS_FROM, Promise

pytestmark = helm_needed
PROMISE = Promise("uid-former", ("10.0.0.1",))


@pytest.fixture
def api() -> FakeAPI:
    """A record of a former redis-0."""
    api = installed(FakeAPI(), render(VALUES))
    labels = {"kubernetes.io/metadata.name": "redis", "ip-reserve": "enabled"}
    api.put(NAMESPACES, {"metadata": {"name": "redis", "labels": labels}})
    held = Record("10.0.0.1/32", now(), "redis", "redis-0", "uid-former", owner_uid="uid-redis", ended=now())
    made = body([held])
    made["metadata"] |= {"name": "drawbridge-a", "labels": {"app.kubernetes.io/managed-by": "drawbridge"}}
    api.put(RESERVATIONS, made)
    return api


def explained(api: FakeAPI, **parts: Any) -> Raw:
    api.put(PODS, raw_pod("redis-0", **parts))
    found: Raw = shown(api, "explain", "pod", "redis-0", "-n", "redis")
    return found


def test_a_pod_that_is_created_now_would_be_promised_its_address(api: FakeAPI) -> None:
    [create] = [each for each in explained(api)["questions"] if each["action"] == "create"]

    effects = {each["webhook"]: each["effect"] for each in create["webhooks"]}
    assert effects["same-address.drawbridge.io"] == "allowed; promised: 10.0.0.1"


def test_a_reservation_that_waits_for_the_pod_says_so(api: FakeAPI) -> None:
    found = explained(api, ip="", metadata={"annotations": dict(PROMISE.annotations)})

    assert found["annotations"] == {
        IP_ADDRS: json.dumps(["10.0.0.1"]),
        SAME_ADDRESS_FROM: 'uid-former=["10.0.0.1"]',
    }
    [reserved] = found["reservations"]
    assert reserved["release"].startswith("it waits for the pod that takes the place of its pod")
    assert "it waits for the pod" in run(api, "explain", "pod", "redis-0", "-n", "redis").stdout


def test_a_reservation_whose_address_the_pod_has_is_about_to_end(api: FakeAPI) -> None:
    [reserved] = explained(api, metadata={"annotations": dict(PROMISE.annotations)})["reservations"]

    assert "has it: the leader ends it" in reserved["release"]


def test_any_other_pod_of_the_name_leaves_it_its_time(api: FakeAPI) -> None:
    [reserved] = explained(api)["reservations"]

    assert reserved["release"].startswith("in ")
