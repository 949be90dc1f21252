"""One process runs all tests of one lab, so that each lab is brought up once."""

from __future__ import annotations

from collections.abc import Collection

import pytest


def grouped_by_lab(item: pytest.Item, shared: Collection[str]) -> pytest.MarkDecorator:
    """Of the first lab of *shared* that the test uses; the tests of a file without one stay together."""
    return pytest.mark.group(f"{item.path.parent.name}/{shared_lab(item, shared) or item.path.stem}")


def shared_lab(item: pytest.Item, shared: Collection[str]) -> str:
    """The first lab of *shared* that the test uses, or nothing."""
    assert isinstance(item, pytest.Function)
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    used = {*item.fixturenames, f"lab_{parameters.get('group')}"} - {*vars(item.module)}
    return next((each for each in shared if each in used), "")
