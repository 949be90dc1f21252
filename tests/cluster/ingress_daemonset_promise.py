"""What an IngressDaemonSet promises of its nodes, in the words of its documentation."""

from __future__ import annotations

from dataclasses import dataclass

TO_BE_UPDATED = "ingressdaemonsets.mumoshu.github.com/to-be-updated"


@dataclass(frozen=True)
class Annotated:
    """The key of an annotation, and how many seconds must pass after it, or after the time that it says."""

    key: str = TO_BE_UPDATED
    grace: int = 0


@dataclass(frozen=True)
class Promise:
    """What one IngressDaemonSet may do to the nodes whose names begin with *nodes*: to *limit* of them at a time.

    *node* and *timestamp* are None where nodes bear none. A template with an image of *hands* was written by
    hand; nodes that are *kept* off by a human are so in the end.
    """

    namespace: str
    name: str
    nodes: str
    limit: int
    detaches: bool = True
    deployment: Annotated | None = Annotated()
    node: Annotated | None = None
    timestamp: Annotated | None = None
    hands: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
