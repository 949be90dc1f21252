"""The switches of elasticity: the tables of the original, row by row, and words that are none."""

from __future__ import annotations

import pytest

from controllers.elasticity.annotations import allows, parse

ON, OFF, UNSET = True, False, None


@pytest.mark.parametrize(
    ("everywhere", "of_pod", "in_table", "with_opt_out"),
    [
        pytest.param(ON, OFF, True, False, id="all on, pod off"),
        pytest.param(ON, UNSET, True, True, id="all on, pod unset"),
        pytest.param(ON, ON, True, True, id="all on, pod on"),
        pytest.param(OFF, OFF, False, False, id="all off, pod off"),
        pytest.param(OFF, UNSET, False, False, id="all off, pod unset"),
        pytest.param(OFF, ON, True, True, id="all off, pod on"),
        pytest.param(UNSET, OFF, True, False, id="all unset, pod off"),
        pytest.param(UNSET, UNSET, True, True, id="all unset, pod unset"),
        pytest.param(UNSET, ON, True, True, id="all unset, pod on"),
    ],
)
def test_the_tables_of_the_original(
    everywhere: bool | None, of_pod: bool | None, in_table: bool, with_opt_out: bool
) -> None:
    assert allows(everywhere, of_pod, local_opt_out=False) is in_table
    assert allows(everywhere, of_pod, local_opt_out=True) is with_opt_out


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        pytest.param("true", True, id="true"),
        pytest.param("false", False, id="false"),
        pytest.param("True", True, id="with a capital"),
        pytest.param(" FALSE\n", False, id="with space around it"),
        pytest.param(None, None, id="absent"),
    ],
)
def test_a_switch_says_true_or_false_in_any_case(said: str | None, meant: bool | None) -> None:
    assert parse(said) == (meant, "")


@pytest.mark.parametrize("said", ["", "yes", "1", "on", "true,false"])
def test_another_word_counts_as_not_set_and_is_a_problem(said: str) -> None:
    value, problem = parse(said)

    assert value is None
    assert problem == f'AUTO_SCALE_EKS is {said!r}, neither "true" nor "false", and counts as not set'
