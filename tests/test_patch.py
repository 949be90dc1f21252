"""Any change of an object survives its way through a JSON patch."""

from __future__ import annotations

from typing import Any

import jsonpatch
from hypothesis import given
from hypothesis import strategies as st

from webhook.admission import patch

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=4)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("ab/~0", max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text("ab/~0", max_size=3), VALUES, max_size=4)


@given(OBJECTS, OBJECTS)
def test_every_patch_applies(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert jsonpatch.apply_patch(before, patch(before, after)) == after


@given(OBJECTS)
def test_nothing_changed_is_no_operation(before: dict[str, Any]) -> None:
    assert patch(before, before) == ()


@given(OBJECTS, st.dictionaries(st.text("ab/~0", max_size=3), VALUES, max_size=2))
def test_what_stays_as_it_is_may_be_shared(before: dict[str, Any], change: dict[str, Any]) -> None:
    after = {**before, **change, "spec": {**before, **change}}

    assert jsonpatch.apply_patch(before, patch(before, after)) == after
    assert jsonpatch.apply_patch({"spec": before}, patch({"spec": before}, {"spec": after})) == {
        "spec": after
    }


def test_true_is_not_1() -> None:
    before, after = {"a": 1, "b": [1]}, {"a": True, "b": [True]}

    assert repr(jsonpatch.apply_patch(before, patch(before, after))) == repr(after)
