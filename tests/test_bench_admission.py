"""What a webhook costs a creation is read from the counters of the API server, which calls it as in a cluster."""

from __future__ import annotations

import msgspec
import pytest

from bench import admission
from bench.admission import Creations, Gate
from bench.anycast_ip.gate import GATE as ANYCAST_IP
from bench.elasticity.gate import GATE as ELASTICITY
from webhook.anycast_ip import TAINT
from webhook.elasticity import GATE as SCHEDULING_GATE

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


@pytest.mark.parametrize(("gate", "word"), GATES)
def test_a_held_object_is_recognized(gate: Gate, word: str) -> None:
    free = gate.review(1, gate.marks)["object"]
    taint = {"key": TAINT.key, "value": TAINT.value, "effect": TAINT.effect}
    held = free | {"spec": free["spec"] | {"taints": [taint], "schedulingGates": [{"name": word}]}}

    assert [gate.is_held(msgspec.Raw(msgspec.json.encode(each))) for each in (free, held)] == [False, True]
