"""How many nodes may be off at a time."""

from __future__ import annotations

import pytest

from controllers.ingress_daemonset.planner import limit, share
from webhook.ingress_daemonset.types import RollingUpdate


@pytest.mark.parametrize(
    ("value", "whole", "number"),
    [
        pytest.param(2, 30, 2, id="a number"),
        pytest.param(0, 30, 0, id="none"),
        pytest.param("10%", 30, 3, id="a percentage"),
        pytest.param("10%", 31, 4, id="rounded up"),
        pytest.param("1%", 3, 1, id="at least one"),
        pytest.param("10%", 0, 1, id="at least one, even of nothing"),
        pytest.param("0%", 30, 0, id="none in percent"),
        pytest.param("100%", 30, 30, id="all"),
    ],
)
def test_a_percentage_is_rounded_up_and_at_least_one(value: int | str, whole: int, number: int) -> None:
    assert share(value, whole) == number


def test_what_is_no_budget_is_an_error() -> None:
    with pytest.raises(ValueError, match="no budget"):
        share("many", 30)


def test_only_one_of_the_two_budgets_counts() -> None:
    assert limit(RollingUpdate(max_unavailable_nodes=2, max_degraded_nodes=3), 30) == 2
    assert limit(RollingUpdate(max_unavailable_nodes=0, max_degraded_nodes="50%"), 30) == 15
