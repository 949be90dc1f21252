"""Pause, resume, promote and abort a rollout, as `drawbridge rollout` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from cli.cluster import Cluster
from cli.errors import Failure
from cli.rollout.progress import Stored, pause, promote, rollout_of
from cli.rollout.reader import revisions_of, stored_of
from cli.rollout.revisions import aborted, undo
from cli.rollout.writer import Patch
from cli.rollout.writer import write as write_change
from kube.client import Client
from kube.errors import Conflict

Write = Callable[[str, str, str, str], None]
"""Of a namespace, a name, one of VERBS, and the stamp of the rollout that the page showed."""


def _abort(client: Client, stored: Stored) -> Patch:
    return undo(aborted(stored, revisions_of(client, stored)))


VERBS: Mapping[str, Callable[[Client, Stored], Patch | None]] = {
    "pause": lambda _, stored: pause(stored, True),
    "resume": lambda _, stored: pause(stored, False),
    "promote": lambda _, stored: promote(stored),
    "abort": _abort,
}
"""The patch of each; None when there is nothing to do."""


def writer_of(cluster: Cluster) -> Write:
    def write(namespace: str, name: str, verb: str, shown: str) -> None:
        """KubeError; Failure for another rollout than was *shown*, or when there is nothing to return to."""
        stored = stored_of(cluster.client, namespace, name)
        if rollout_of(stored).stamp != shown:
            raise _outdated()
        try:
            write_change(cluster.client, stored, partial(VERBS[verb], cluster.client))
        except Conflict:
            raise _outdated() from None

    return write


def _outdated() -> Failure:
    return Failure(
        "the rollout was changed in the meantime; nothing was changed by you", "go back, and repeat it"
    )
