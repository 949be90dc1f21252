"""Amounts as Kubernetes writes them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from kube.types import amount


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("0", "0"),
        ("12", "12"),
        ("100m", "0.1"),
        ("1.5", "1.5"),
        (".5", "0.5"),
        ("1k", "1000"),
        ("1Ki", "1024"),
        ("1.5Gi", "1610612736"),
        ("2E", "2000000000000000000"),
        ("2e3", "2000"),
        ("2E3", "2000"),
        ("250n", "0.00000025"),
    ],
)
def test_an_amount_is_read_with_its_suffix(written: str, expected: str) -> None:
    assert amount(written) == Decimal(expected)


@pytest.mark.parametrize("written", ["", "Ki", "1 Gi", "1Gb", "one", "1e", "--1"])
def test_what_is_no_amount_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="no quantity"):
        amount(written)
