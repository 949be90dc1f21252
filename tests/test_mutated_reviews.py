"""Reviews with several faults at once, in the new object and in the old one, are answered without a panic."""

from __future__ import annotations

import copy
import random
from functools import cache
from typing import Any

import pytest
from werkzeug.test import Client

from settings import AnycastIPSettings, ElasticitySettings
from tests.hostile_objects import WRONG, answer, panics, places, replaced
from tests.test_elasticity_hostile import DAEMON_POD, REPLICA, gate
from tests.test_ingress_daemonset_hostile import OTHER, WHOLE, among
from webhook.admission import Webhook
from webhook.anycast_ip.webhook import AnycastIPWebhook
from webhook.app import create_app
from webhook.elasticity.daemon_sets import DaemonSetWebhook

Raw = dict[str, Any]
MUTATIONS = 400
MORE_WRONG = (*WRONG, 0, "25%", [1], ["a"], {"labels": "x"}, {"key": "a"}, {"": ""})
DAEMON_SET = {
    "metadata": {"name": "agent"},
    "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": REPLICA["spec"]}},
}
NODE = {
    "metadata": {"name": "n", "uid": "u", "labels": {"a": "b"}, "annotations": {"a": "b"}},
    "spec": {"taints": [{"key": "a", "effect": "NoSchedule", "timeAdded": None}]},
}
WITHOUT_SELECTOR = {
    **WHOLE,
    "spec": {key: value for key, value in WHOLE["spec"].items() if key != "selector"},
}


@cache
def served() -> dict[str, Webhook]:
    elasticity = ElasticitySettings(enabled=True)
    anycast_ip = AnycastIPSettings(enabled=True, node_labels={"a": "b"}, cluster_id="cls-1")
    all_of_them = (
        *among(OTHER),
        gate(),
        DaemonSetWebhook(lambda: elasticity),
        AnycastIPWebhook(lambda: anycast_ip),
    )
    return {each.name: each for each in all_of_them}


OBJECTS: dict[str, list[Raw]] = {
    "ingress_daemonset_defaults": [WHOLE, WITHOUT_SELECTOR],
    "ingress_daemonset": [WHOLE, WITHOUT_SELECTOR],
    "elasticity": [REPLICA, DAEMON_POD],
    "elasticity-daemonsets": [DAEMON_SET],
    "anycast_ip": [NODE],
}


def mutated(value: Raw, dice: random.Random) -> Any:
    for _ in range(dice.randint(1, 3)):
        place = dice.choice(list(places(value)))
        if place and dice.random() < 0.3:
            value = without(value, place)
        else:
            value = replaced(value, place, dice.choice(MORE_WRONG))
    return value


def without(value: Raw, place: tuple[str | int, ...]) -> Raw:
    part: Any = (whole := copy.deepcopy(value))
    for key in place[:-1]:
        part = part[key]
    del part[place[-1]]
    return whole


def test_each_webhook_has_its_objects() -> None:
    assert OBJECTS.keys() == served().keys()


@pytest.mark.parametrize("name", OBJECTS)
def test_reviews_with_several_faults_are_answered_without_a_panic(name: str) -> None:
    webhook, dice, before = served()[name], random.Random(name), panics(name)  # noqa: S311 - no secret
    client: Client = create_app([webhook]).test_client()
    for _ in range(MUTATIONS):
        new, old = dice.choice(OBJECTS[name]), dice.choice([None, *OBJECTS[name]])
        answer(client, webhook.path, mutated(new, dice), old and mutated(old, dice), namespace="web")
        assert panics(name) == before


def test_a_template_whose_metadata_is_no_object_is_refused_by_its_field() -> None:
    webhook = served()["ingress_daemonset"]
    new = replaced(WITHOUT_SELECTOR, ("spec", "template", "metadata"), "x")
    status = answer(create_app([webhook]).test_client(), webhook.path, new)["status"]
    assert status["code"] == 422
    assert "spec.template: it is no pod template" in status["message"]
