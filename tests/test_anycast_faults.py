"""Whatever fails, whenever the controller dies: one address for each living node, none for the dead, none forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloud.errors import Unavailable
from controllers.anycast_ip.claim import Claim
from dev.lab.cloud import Knobs
from tests.anycast_deaths import run_with_deaths
from tests.anycast_world import Killed, Lab

PLENTY: dict[str, Any] = {"quota_total": 1000, "quota_daily": 100000}


def test_an_order_with_an_unknown_end_is_looked_up_by_its_name_when_it_is_old() -> None:
    lab = Lab(Knobs(**PLENTY, client_token_seconds=60))

    def die(action: str) -> None:
        if action == "AllocateAddresses":
            raise Killed

    lab.sender.after = die
    lab.join()
    with pytest.raises(Killed):
        lab.run_for(30)
    lab.sender.after = lambda action: None
    lab.clock.advance(3600)
    lab.start()
    lab.run(lab.all_open, 60, "open")

    assert len(lab.elastic()) == 1


def test_a_spent_token_is_replaced_when_it_has_brought_nothing() -> None:
    lab = Lab(Knobs(**PLENTY, errors={"AllocateAddresses": "UnsupportedOperation.DeliveryFailed"}))
    answer = lab.sender._answer

    def failing_once(api: Any, params: Any) -> tuple[bytes, str]:
        if api.action == "AllocateAddresses" and lab.knobs.errors:
            lab.knobs.errors = {}
            return (
                b'{"Response":{"Error":{"Code":"UnsupportedOperation.DeliveryFailed"},"RequestId":"r"}}',
                "X",
            )
        return answer(api, params)

    lab.sender._answer = failing_once  # type: ignore[method-assign]
    lab.join()
    lab.run(lab.all_open, 120, "open")

    tokens = [call.params["ClientToken"] for call in lab.world.calls if call.action == "AllocateAddresses"]
    assert len(set(tokens)) == 2
    assert len(lab.elastic()) == 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["join", "leave", "kill", "end"]), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.integers(1, 12)),
        st.tuples(st.just("die"), st.integers(1, 12)),
    ),
    max_size=14,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, lost=st.sampled_from([0.0, 0.3]), seed=st.integers(0, 1000), busy=st.booleans())
def test_whatever_happens_each_living_node_has_one_address_and_the_dead_have_none(
    steps: list[tuple[str, int]], lost: float, seed: int, busy: bool
) -> None:
    lab = Lab(Knobs(**PLENTY, lost=lost, bind_fails=lost / 2, seed=seed, token_busy_while_creating=busy))
    for verb, number in steps:
        happen(lab, verb, number)
    lab.sender.before = lab.kube.after = lambda verb: None
    run_with_deaths(lab, lambda: lab.all_open() and lab.is_clean(), 1500, "settled")
    lab.run_for(30)

    living = sorted(f"ins-{each.metadata.name}" for each in lab.nodes())
    assert sorted(each.instance_id for each in lab.elastic()) == living
    assert lab.tag_values("aia-node-name") == {each.metadata.name for each in lab.nodes()}


def happen(lab: Lab, verb: str, number: int) -> None:
    name, there = f"n{number}", {each.metadata.name for each in lab.nodes()}
    if verb == "join" and name not in there:
        lab.join(name)
    elif verb == "leave" and name in there:
        lab.leave(name)
    elif verb == "end" and name in there:
        lab.leave(name)
        lab.world.end_instance(f"ins-{name}")
        lab.world.ended_instances.discard(f"ins-{name}")
    elif verb == "kill":
        lab.start()
    elif verb == "die":
        die_at_write(lab, number)
    elif verb == "wait":
        end = lab.clock() + number
        run_with_deaths(lab, lambda: lab.clock() >= end, 600, "time")


def die_at_write(lab: Lab, number: int) -> None:
    """The *number*-th call or write from now on is the last that this controller makes."""
    left = iter(range(number))

    def die(verb: str) -> None:
        if verb != "list" and next(left, None) is None:
            lab.sender.before = lab.kube.after = lambda verb: None
            raise Killed

    lab.sender.before = lab.kube.after = die


def test_an_address_that_was_not_released_after_all_is_missed_again_when_it_vanishes() -> None:
    lab = Lab(Knobs(**PLENTY))

    def fail(action: str) -> None:
        if action == "ReleaseAddresses":
            raise Unavailable("Network", "no answer", action=action)

    lab.sender.before = fail
    lab.join()
    lab.run(lab.all_open, 30, "open")
    lab.leave()
    lab.run(lambda: claim_of(lab, "n1").releasing, 30, "not released")
    lab.join("n2", "ins-n1")
    lab.run(lab.all_open, 60, "open again")

    assert [each.id for each in lab.elastic()] == [claim_of(lab, "n2").address]
    assert not claim_of(lab, "n2").releasing


def claim_of(lab: Lab, name: str) -> Claim:
    (claim,) = (each for each in lab.claims.claims.values() if each.node == name)
    return claim
