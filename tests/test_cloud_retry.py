"""What is repeated, and when."""

from __future__ import annotations

import pytest

from cloud import apis, errors
from cloud.caller import LONGEST
from cloud.caller import delay_of as delay
from cloud.errors import CloudError
from tests.cloud_server import error


@pytest.mark.parametrize(
    ("kind", "blindly", "if_repeatable"),
    [
        pytest.param(errors.Throttled, True, True, id="not carried out"),
        pytest.param(errors.Unreachable, True, True, id="never sent"),
        pytest.param(errors.InProgress, True, True, id="an earlier one is under way"),
        pytest.param(errors.Unavailable, False, True, id="outcome unknown"),
        pytest.param(errors.ServerFault, False, True, id="failed somewhere"),
        pytest.param(errors.StateConflict, False, False, id="look again first"),
        pytest.param(errors.QuotaExceeded, False, False, id="a human's turn"),
        pytest.param(errors.NotPermitted, False, False, id="credentials"),
        pytest.param(errors.NotConfigured, False, False, id="no credentials"),
        pytest.param(errors.Rejected, False, False, id="our mistake"),
    ],
)
def test_only_what_cannot_happen_twice_is_repeated(
    kind: type[CloudError], blindly: bool, if_repeatable: bool
) -> None:
    for repeatable, expected in ((False, blindly), (True, if_repeatable)):
        assert (delay(error(kind), 1, repeatable=repeatable, chance=0) is not None) is expected


def test_delays_double_up_to_a_longest() -> None:
    failure = error(errors.Throttled)
    delays = [delay(failure, attempt, repeatable=True, chance=1) for attempt in (1, 2, 3, 4, 5, 6, 5000)]
    assert delays == [0.25, 0.5, 1, 2, 4, LONGEST, LONGEST]


def test_chance_spreads_over_the_second_half() -> None:
    failure = error(errors.Throttled)
    assert [delay(failure, 3, repeatable=True, chance=chance) for chance in (0, 0.5)] == [0.5, 0.75]


def test_binding_unbinding_and_releasing_are_not_repeated_blindly() -> None:
    every = [api for api in vars(apis).values() if isinstance(api, apis.Api)]
    assert {api.action for api in every if not api.repeatable} == {
        "AssociateAddress",
        "DisassociateAddress",
        "ReleaseAddresses",
    }
    assert {api.action for api in every if api.writes} == {
        "AllocateAddresses",
        "AssociateAddress",
        "DisassociateAddress",
        "ReleaseAddresses",
        "CreateTags",
        "DeleteTags",
    }
