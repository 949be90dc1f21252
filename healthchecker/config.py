"""What one health checker is to look at, and for how long it may answer without having looked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from healthchecker import (
    ANNOTATION,
    BOUND,
    DEFAULT_ANNOTATION,
    DEFAULT_BOUND,
    FAIL,
    INGRESS_DAEMONSET,
    KEEP,
    LONGEST_BOUND,
    NAMESPACE,
    NODE,
    ON_OUTAGE,
    PORT,
    SHORTEST_BOUND,
)
from healthchecker.naming import deployment_name


class BadTask(Exception):
    """An environment variable that is missing or cannot be used."""


@dataclass(frozen=True)
class Task:
    """*annotation* is a key, whatever the value.

    After *bound* seconds without the API server the checker *fails* its health checks, or keeps its answer.
    """

    namespace: str
    node: str
    ingress_daemonset: str
    port: int
    annotation: str = DEFAULT_ANNOTATION
    bound: int = DEFAULT_BOUND
    fails: bool = False

    @property
    def deployment(self) -> str:
        return deployment_name(self.ingress_daemonset, self.node)


def task_of(environment: Mapping[str, str]) -> Task:
    """Raises BadTask."""
    return Task(
        namespace=_text(environment, NAMESPACE),
        node=_text(environment, NODE),
        ingress_daemonset=_text(environment, INGRESS_DAEMONSET),
        port=_number(environment, PORT, 1, 65535),
        annotation=environment.get(ANNOTATION) or DEFAULT_ANNOTATION,
        bound=_number({BOUND: str(DEFAULT_BOUND), **environment}, BOUND, SHORTEST_BOUND, LONGEST_BOUND),
        fails=_one_of(environment.get(ON_OUTAGE) or KEEP, ON_OUTAGE, KEEP, FAIL) == FAIL,
    )


def _text(environment: Mapping[str, str], name: str) -> str:
    if value := environment.get(name):
        return value
    raise BadTask(f"{name} is not set; the health-check DaemonSets of an IngressDaemonSet set it")


def _number(environment: Mapping[str, str], name: str, least: int, most: int) -> int:
    text = _text(environment, name)
    if text.isdecimal() and text.isascii() and least <= int(text) <= most:
        return int(text)
    raise BadTask(f"{name} is {text!r}; write a whole number from {least} to {most}")


def _one_of(text: str, name: str, *known: str) -> str:
    if text in known:
        return text
    raise BadTask(f"{name} is {text!r}; write {' or '.join(known)}")
