"""Answers of health checkers: nodes that turned 503 while attached, and pods that were replaced too soon, are found."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from lab.history import Observation
from tests.cluster.ingress_daemonset_answers import violations
from tests.cluster.ingress_daemonset_history import SeenDeployment
from tests.cluster.ingress_daemonset_promise import TO_BE_UPDATED

BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
GRACE = 10


@dataclass(frozen=True)
class Said:
    status: int
    at: datetime


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def deployment(
    seconds: float, image: str = "proxy:1", *, off: bool = False, gone: bool = False
) -> Observation:
    template = {"spec": {"nodeName": "n1", "containers": [{"image": image}]}}
    annotations = {TO_BE_UPDATED: ""} if off else {}
    metadata = {"name": "web-n1", "uid": "u", "resourceVersion": str(seconds), "annotations": annotations}
    raw = {"metadata": metadata, "spec": {"replicas": 2, "template": template}}
    return Observation(msgspec.convert(raw, SeenDeployment), gone, at(seconds))  # type: ignore[arg-type]


ROLLOUT = [
    deployment(0),
    deployment(10, off=True),
    deployment(22, "proxy:2", off=True),
    deployment(30, "proxy:2"),
]


def answers(*changes: tuple[int, int], end: int = 40) -> list[Said]:
    """One each second; *changes* are statuses, each from its second on."""
    return [
        Said([status for since, status in changes if since <= second][-1], at(second))
        for second in range(end)
    ]


@pytest.mark.parametrize(
    ("given", "history", "found"),
    [
        pytest.param(answers((0, 200), (11, 503), (31, 200)), ROLLOUT, [], id="as it should be"),
        pytest.param(
            answers((0, 200), (5, 503), (6, 200), (11, 503)), ROLLOUT, ["turned 503 at 03:04:10"], id="early"
        ),
        pytest.param(
            answers((0, 200), (20, 503), (31, 200)),
            ROLLOUT,
            ["was written at 03:04:27.000000, its health check had said 200 at 03:04:24"],
            id="it learned of the detachment late",
        ),
    ],
)
def test_what_is_found(given: list[Said], history: list[Observation], found: list[str]) -> None:
    said = violations(history, {"n1": given}, GRACE)

    assert len(said) == len(found), said
    assert all(part in each for part, each in zip(found, said, strict=True))
