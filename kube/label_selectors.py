"""Label selectors as objects of the cluster have them."""

from __future__ import annotations

from collections.abc import Mapping

from kube.node_matching import Expression, matches
from kube.types import Value, complete


class LabelSelector(Value, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[Expression, ...] = ()


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """An absent selector selects nothing, an empty one everything."""
    return (
        selector is not None
        and selector.match_labels.items() <= labels.items()
        and all(matches(each, labels) for each in selector.match_expressions)
    )


complete(LabelSelector)
