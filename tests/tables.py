"""Tests that are tables."""

from __future__ import annotations

from collections.abc import Mapping

import pytest


def table(names: str, rows: Mapping[str, object]) -> pytest.MarkDecorator:
    """Run a test once for each of *rows*, which are by their id; one with several values is a tuple."""
    return pytest.mark.parametrize(names, list(rows.values()), ids=list(rows))
