"""What a webhook costs a creation is read from the counters of the API server, which calls it as in a cluster."""

from __future__ import annotations

import json
from base64 import b64decode

import msgspec
import pytest

from bench import admission
from bench.admission import NO_MARKS, Creations, Gate
from bench.anycast_ip.gate import GATE as ANYCAST_IP
from bench.elasticity.gate import GATE as ELASTICITY
from settings import AnycastIPSettings, ElasticitySettings
from webhook.anycast_ip import TAINT
from webhook.anycast_ip.webhook import AnycastIPWebhook
from webhook.app import create_app
from webhook.elasticity import GATE as SCHEDULING_GATE
from webhook.elasticity.webhook import PlacementWebhook

SERVED = {
    ANYCAST_IP.path: AnycastIPWebhook(lambda: AnycastIPSettings(enabled=True, cluster_id="cls-1")),
    ELASTICITY.path: PlacementWebhook(lambda: ElasticitySettings(enabled=True)),
}
GATES = [
    pytest.param(ANYCAST_IP, TAINT.key, id="anycast_ip"),
    pytest.param(ELASTICITY, SCHEDULING_GATE, id="elasticity"),
]


def counted(webhook: str, calls: float, seconds: float) -> dict[str, float]:
    name = f'{{name="{webhook}"}}'
    return {
        f"{admission.CALLS}{name}": calls,
        f"{admission.DURATION}_sum{name}": seconds,
        f"{admission.DURATION}_count{name}": calls,
    }


def test_creations_are_judged_by_calls_and_what_is_held_and_compared_with_the_no_op() -> None:
    wanted = Creations(100, 99, counted("ours", 100, 0.4) | counted("noop", 200, 0.4))
    others = Creations(100, 0, counted("ours", 1, 0.1))

    found = {each.name: each for each in admission.of_creations(ANYCAST_IP, "ours", "noop", wanted, others)}

    assert found["nodes created: calls of the webhook per node"].met is True
    assert found["nodes created: tainted at birth, per node"].met is False
    assert found["nodes created: call of the webhook"].ratio == 2.0
    unwanted = found["nodes without the label: calls of the webhook"]
    assert (unwanted.value, unwanted.met) == (1, False)


@pytest.mark.parametrize("is_wanted", [True, False], ids=["wanted", "other"])
@pytest.mark.parametrize(("gate", "word"), GATES)
def test_the_reviews_of_the_bench_are_changed_only_for_marked_objects(
    gate: Gate, word: str, is_wanted: bool
) -> None:
    with create_app([SERVED[gate.path]]).test_client() as client:
        body = admission.bodies(gate, gate.marks if is_wanted else NO_MARKS)[1]
        response = client.post(gate.path, data=body, content_type="application/json").get_json()["response"]

    patch = json.loads(b64decode(response.get("patch", "W10=")))
    assert response["allowed"]
    assert any(word in json.dumps(operation) for operation in patch) is is_wanted


@pytest.mark.parametrize(("gate", "word"), GATES)
def test_a_held_object_is_recognized(gate: Gate, word: str) -> None:
    free = gate.review(1, gate.marks)["object"]
    taint = {"key": TAINT.key, "value": TAINT.value, "effect": TAINT.effect}
    held = free | {"spec": free["spec"] | {"taints": [taint], "schedulingGates": [{"name": word}]}}

    assert [gate.is_held(msgspec.Raw(msgspec.json.encode(each))) for each in (free, held)] == [False, True]
