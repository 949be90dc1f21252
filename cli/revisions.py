"""Former templates of an IngressDaemonSet, its ControllerRevisions, and how to return to one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from cli.errors import Failure
from cli.objects import StoredResource
from cli.output import Cell, Document, Part, Table, age, good
from cli.rollouts import rollout_of
from controllers.ingress_daemonset.children import without_timestamp
from controllers.ingress_daemonset.revisions import Revision, of

KEPT = "drawbridge rollout history shows those that are kept; spec.revisionHistoryLimit says how many"


class Former(Document, frozen=True):
    """*current* is the one that the spec has; *template* is whole."""

    revision: int
    current: bool
    created_at: datetime | None
    images: tuple[str, ...]
    template: dict[str, Any]


class History(Document, frozen=True):
    """The latest one first."""

    namespace: str
    name: str
    revisions: tuple[Former, ...]


def kept_templates(stored: StoredResource, held: Sequence[Revision]) -> History:
    ours = of(stored.metadata.uid, held)
    shown = tuple(_former(each, is_current=_is_current(stored, each)) for each in reversed(ours))
    return History(stored.metadata.namespace, stored.metadata.name, shown)


def chosen(stored: StoredResource, held: Sequence[Revision], number: int | None) -> Revision:
    """The revision of this *number*, or the latest that the spec does not have; Failure without it."""
    former = [each for each in of(stored.metadata.uid, held) if not _is_current(stored, each)]
    if number is None and not former:
        raise Failure("no former template is kept", KEPT)
    found = former[-1:] if number is None else [each for each in former if each.revision == number]
    if not found:
        raise Failure(f"revision {number} is not kept, or is the current one", KEPT)
    return found[0]


def aborted(stored: StoredResource, held: Sequence[Revision]) -> Revision:
    """The revision that all nodes had last; Failure when no template is being rolled out."""
    rollout = rollout_of(stored)
    if not rollout.revision:
        raise Failure("no template has reached all nodes yet: there is none to return to", KEPT)
    if not rollout.is_of_template:
        raise Failure(
            "no template is being rolled out: the spec has the last one that all nodes had",
            "drawbridge rollout undo starts a rollout, to the former template",
        )
    found = [each for each in of(stored.metadata.uid, held) if each.digest == rollout.revision]
    if not found:
        raise Failure(f"the last template that all nodes had, {rollout.revision}, is not kept", KEPT)
    return found[0]


def undo(revision: Revision) -> list[dict[str, Any]]:
    """The JSON patch; a merge patch would keep fields that the former one lacks."""
    return [{"op": "replace", "path": "/spec/template", "value": revision.template}]


def _is_current(stored: StoredResource, revision: Revision) -> bool:
    return revision.template == without_timestamp(stored.spec.get("template") or {})


def history_parts(history: History, now: datetime) -> Iterator[Part]:
    columns = ("REVISION", "CURRENT", "AGE", "IMAGES")
    rows = [_former_row(each, now) for each in history.revisions]
    yield Table(columns, rows, empty="no revision is recorded yet: is there a leader?")


def images_of(revision: Revision) -> tuple[str, ...]:
    pod = revision.template.get("spec") or {}
    containers = (*(pod.get("initContainers") or ()), *(pod.get("containers") or ()))
    return tuple(each.get("image", "") for each in containers)


def _former_row(each: Former, now: datetime) -> list[Cell]:
    current: Cell = good("yes") if each.current else ""
    return [str(each.revision), current, age(each.created_at, now), ", ".join(each.images)]


def _former(each: Revision, *, is_current: bool) -> Former:
    created = each.metadata.creation_timestamp
    return Former(each.revision, is_current, created, images_of(each), each.template)
