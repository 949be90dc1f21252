"""Whatever fails, whenever the controller dies: one address for each living node, none for the dead, none forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from cloud.errors import Unavailable
from controllers.anycast_ip.claim import Claim
from dev.lab.cloud import Knobs
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
    lab.opened()

    tokens = [call.params["ClientToken"] for call in lab.world.calls if call.action == "AllocateAddresses"]
    assert len(set(tokens)) == 2
    assert len(lab.elastic()) == 1


def test_an_address_that_was_not_released_after_all_is_missed_again_when_it_vanishes() -> None:
    lab = Lab(Knobs(**PLENTY))

    def fail(action: str) -> None:
        if action == "ReleaseAddresses":
            raise Unavailable("Network", "no answer", action=action)

    lab.sender.before = fail
    lab.opened()
    lab.leave()
    lab.run(lambda: claim_of(lab, "n1").releasing, 30, "not released")
    lab.join("n2", "ins-n1")
    lab.run(lab.all_open, 60, "open again")

    assert [each.id for each in lab.elastic()] == [claim_of(lab, "n2").address]
    assert not claim_of(lab, "n2").releasing


def claim_of(lab: Lab, name: str) -> Claim:
    (claim,) = (each for each in lab.claims.claims.values() if each.node == name)
    return claim
