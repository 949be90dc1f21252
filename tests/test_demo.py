"""The demo's promises about reserved addresses are judged by the history alone."""

from __future__ import annotations

import pytest

from dev.demo.burst import Replicas
from dev.demo.burst_promises import never_more_local, placed_first, split, super_node_first
from dev.demo.fleet import Fleet
from dev.demo.fleet_promises import no_pod_too_early, nothing_left, one_address_each, opened_when_bound
from dev.demo.promises import (
    Promise,
    died_in_between,
    held_for_their_time,
    never_reserved,
    not_restarted,
    oldest_released_first,
    reserved_before_gone,
)
from dev.demo.rollout import Rollout
from dev.demo.rollout_promises import never_more_off, off_before_replaced, on_when_complete
from dev.lab.history import History
from tests.factories import pod

REDIS = pod("redis-0")


@pytest.mark.parametrize(
    "promise",
    [
        reserved_before_gone(History(), [REDIS]),
        never_reserved(History(), REDIS),
        held_for_their_time(History(), [], 12.0),
        oldest_released_first([], 1),
        died_in_between(History(), [], [REDIS]),
        not_restarted([], []),
        placed_first(Replicas(), 1),
        split(Replicas(), 1, home=1, away=1),
        never_more_local(Replicas(), 1),
        super_node_first(Replicas(), 1, 2),
        off_before_replaced(Rollout(), 1, 1.0),
        never_more_off(Rollout(), 1),
        on_when_complete(Rollout(), 1, 1),
        opened_when_bound(Fleet(), 1),
        no_pod_too_early(Fleet(), 1),
        one_address_each(Fleet()),
        nothing_left(Fleet(), "cloud-0"),
    ],
    ids=lambda promise: promise.text,
)
def test_a_promise_about_nothing_is_not_kept(promise: Promise) -> None:
    assert not promise.kept
