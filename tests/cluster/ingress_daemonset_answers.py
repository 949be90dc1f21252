"""What load balancers were answered, beside the history of Deployments: who turned 503, and whose pods went too soon.

It knows of health checks what their documentation promises, and shares no code with what answers them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Protocol

from lab.history import Observation
from tests.cluster.ingress_daemonset_history import SeenDeployment
from tests.cluster.ingress_daemonset_promise import TO_BE_UPDATED

LATE = timedelta(seconds=2)
"""Between a write and that it is seen, here or by a health checker, on a machine that has much to do."""
REFUSED = 503


class Answer(Protocol):
    @property
    def status(self) -> int: ...
    @property
    def at(self) -> datetime: ...


Answers = Mapping[str, Sequence[Answer]]
"""Of the health checker of each node, by its name, in their order."""


@dataclass(frozen=True)
class Span:
    """A Deployment bore its annotation; *end* is None while it does."""

    begin: datetime
    end: datetime | None = None

    def has(self, moment: datetime) -> bool:
        return self.begin - LATE <= moment and (self.end is None or moment <= self.end + LATE)


def violations(history: Iterable[Observation], answers: Answers, grace: float) -> list[str]:
    seen = sorted(history, key=lambda each: each.revision)
    return [*turned_while_attached(seen, answers), *replaced_unconfirmed(seen, answers, grace)]


def turned_while_attached(history: Sequence[Observation], answers: Answers) -> Iterator[str]:
    """Nodes whose health checks began to fail though nothing was to be updated there."""
    for node, given in answers.items():
        spans = list(detached(history, node))
        for before, now in pairwise(given):
            if before.status != REFUSED == now.status and not any(span.has(now.at) for span in spans):
                yield f"{node} turned {now.status} at {now.at:%H:%M:%S.%f} while it was attached"


def replaced_unconfirmed(history: Sequence[Observation], answers: Answers, grace: float) -> Iterator[str]:
    """Nodes whose template was written before each health check of the whole grace had failed."""
    for node, given in answers.items():
        for at in templates_written(history, node):
            asked = [
                each for each in given if timedelta(0) <= at - each.at <= timedelta(seconds=grace) - LATE / 2
            ]
            wrong = [each for each in asked if each.status != REFUSED]
            if wrong or not asked:
                said = f"{wrong[-1].status} at {wrong[-1].at:%H:%M:%S.%f}" if wrong else "nothing"
                yield f"the template of {node} was written at {at:%H:%M:%S.%f}, its health check had said {said}"


def detached(history: Sequence[Observation], node: str) -> Iterator[Span]:
    begin: datetime | None = None
    for each in history:
        if (deployment := _deployment(each, node)) is None:
            continue
        marked = TO_BE_UPDATED in deployment.annotations or each.gone or deployment.leaving
        if marked and begin is None:
            begin = each.seen
        elif not marked and begin is not None:
            yield Span(begin, each.seen)
            begin = None
    if begin is not None:
        yield Span(begin)


def templates_written(history: Sequence[Observation], node: str) -> Iterator[datetime]:
    found = [
        (each, deployment) for each in history if (deployment := _deployment(each, node)) and not each.gone
    ]
    for (_, before), (seen, now) in pairwise(found):
        if before.uid == now.uid and before.template != now.template:
            yield seen.seen


def _deployment(seen: Observation, node: str) -> SeenDeployment | None:
    held = seen.object
    return held if isinstance(held, SeenDeployment) and held.node == node else None
