"""Whatever fails, whenever the controller dies: one address for each living node, none for the dead, none forgotten."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloud.errors import Unavailable
from controllers.anycast_ip.claim import Claim
from kube.errors import ServerError, Unreachable
from lab.cloud import Knobs
from tests.anycast_deaths import Deaths, run_with_deaths
from tests.anycast_world import CALLS, Killed, Lab, open_lab

PLENTY: dict[str, Any] = {"quota_total": 1000, "quota_daily": 100000}


@pytest.mark.parametrize(
    "knobs",
    [
        pytest.param({"throttled": 0.3}, id="throttled"),
        pytest.param({"lost": 0.1}, id="lost responses"),
        pytest.param({"server_errors": 0.2, "html": 0.1}, id="HTML instead of answers"),
        pytest.param({"internal_errors": 0.2, "errors_after_commit": True}, id="errors after the deed"),
        pytest.param({"tag_lag_seconds": 30.0}, id="tags known late"),
        pytest.param({"tag_lag_seconds": 30.0, "stale_rows": True, "lost": 0.1}, id="stale rows"),
        pytest.param({"filter_lag_seconds": 30.0, "stale_rows": True, "lost": 0.1}, id="names known late"),
        pytest.param({"new_tag_seconds": 5.0}, id="tags usable late"),
        pytest.param({"tag_batches_atomic": False, "lost": 0.1}, id="batches half done"),
        pytest.param({"instance_shown_after_unbinding": True}, id="instances shown too long"),
        pytest.param({"instance_shown_while_binding": False}, id="instances shown late"),
        pytest.param({"token_busy_while_creating": True, "lost": 0.1}, id="tokens busy"),
        pytest.param({"already_bound_while_binding": False, "bind_fails": 0.3}, id="binds that fail"),
    ],
)
def test_nodes_come_and_go_through_trouble(knobs: dict[str, Any]) -> None:
    lab = Lab(Knobs(**PLENTY, **knobs))
    names = [f"n{number}" for number in range(20)]
    for name in names:
        lab.join(name)
    lab.run(lab.all_open, 600, "open")
    lab.run_for(60)
    assert sorted(each.instance_id for each in lab.elastic()) == sorted(f"ins-{name}" for name in names)
    for name in names[:10]:
        lab.leave(name)
    lab.run(lab.is_clean, 1200, "clean")

    assert lab.all_open()
    assert sorted(each.instance_id for each in lab.elastic()) == sorted(f"ins-{name}" for name in names[10:])
    assert lab.tag_values("aia-node-name") == set(names[10:])


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("action", CALLS)
def test_a_death_at_any_call_leaks_nothing(action: str, moment: str) -> None:
    lab = Lab(Knobs(**PLENTY))
    deaths = Deaths(lab, action, moment, 3)
    for name in ("n1", "n2"):
        lab.join(name)
    run_with_deaths(lab, lab.all_open, 300, "open")
    assert len(lab.elastic()) == 2
    lab.leave("n1")
    run_with_deaths(lab, lab.is_clean, 300, "clean")

    assert [each.instance_id for each in lab.elastic()] == ["ins-n2"]
    assert deaths.count
    assert lab.tag_values("aia-node-name") == {"n2"}


@pytest.mark.parametrize("then", ["stays", "goes", "comes again"])
@pytest.mark.parametrize("verb", ["write", "delete"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_death_while_a_claim_is_inherited_neither_loses_nor_doubles_it(
    moment: str, verb: str, then: str
) -> None:
    lab = open_lab(knobs=Knobs(**PLENTY))
    (address,) = lab.on()
    lab.leave()
    lab.join()

    def die(done: str) -> None:
        if done == verb:
            raise Killed

    setattr(lab.kube, moment, die)
    with pytest.raises(Killed):
        lab.run_for(30)
    setattr(lab.kube, moment, lambda verb: None)
    if then != "stays":
        lab.leave()
    if then == "comes again":
        lab.join()
    lab.start()
    assert {claim.address for claim in lab.claims.claims.values()} == {address.id}
    uids = {each.metadata.uid for each in lab.nodes()}
    lab.run(lambda: lab.all_open() and lab.claims.claims.keys() == uids, 60, "settled")

    assert [each.id for each in lab.elastic()] == ([] if then == "goes" else [address.id])
    assert lab.count("AllocateAddresses") == 1
    assert lab.tag_values("aia-node-name") == {each.metadata.name for each in lab.nodes()}


@pytest.mark.parametrize("status", ["", "CREATING", "UNBIND", "BINDING", "BIND"])
def test_a_node_that_goes_while_no_controller_runs_leaves_nothing_behind(status: str) -> None:
    lab = Lab(Knobs(**PLENTY))
    lab.join()
    lab.run(
        lambda: (
            [each.status for each in lab.elastic()] == ([status] if status else [])
            and bool(lab.claims.claims)
        ),
        30,
        status,
    )
    lab.leave()
    lab.world.end_instance("ins-n1")
    lab.clock.advance(3600)
    lab.start()
    lab.run(lab.is_clean, 300, "clean")

    assert lab.elastic() == []
    assert lab.tag_values("aia-node-name") == set()


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


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Unreachable("reset"), id="no answer"),
        pytest.param(ServerError(500, "InternalError", "etcd"), id="an error"),
    ],
)
def test_an_api_server_that_fails_after_the_deed_costs_no_second_address(error: Exception) -> None:
    lab = Lab(Knobs(**PLENTY))
    turns = iter(range(30))

    def fail(verb: str) -> None:
        if next(turns, 0) % 3 == 1:
            raise error

    lab.kube.after = fail
    for name in ("n1", "n2", "n3"):
        lab.join(name)
    lab.run(lab.all_open, 120, "open")
    lab.leave("n1")
    lab.run(lab.is_clean, 120, "clean")

    assert len(lab.elastic()) == 2


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "among others"])
def test_an_instance_that_comes_back_while_its_address_is_released_has_another_soon(others: int) -> None:
    lab = Lab(Knobs(**PLENTY))
    for number in range(others):
        lab.join(f"other{number}")
    lab.join("n1")
    lab.run(lab.all_open, 30, "open")
    lab.leave("n1")
    lab.run(lambda: lab.count("ReleaseAddresses") == 1, 30, "released")
    lab.join("n2", "ins-n1")
    lab.run(lab.all_open, 30, "open again")
    lab.leave("n2")
    lab.run(lab.is_clean, 60, "clean")

    assert len(lab.elastic()) == others
    assert lab.tag_values("aia-node-name") == {f"other{number}" for number in range(others)}


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
