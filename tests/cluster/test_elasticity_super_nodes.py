"""There is a super node for each configured subnet: on a real control plane."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.promise
def test_super_nodes_come_with_their_subnets_and_go_when_these_are_taken_away_and_no_pod_is_there(
    subnets: Callable[[], None],
) -> None:
    subnets()
