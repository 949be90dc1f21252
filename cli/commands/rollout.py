"""`drawbridge rollout get|pause|resume|promote|now|restart|history|undo|abort`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from api.health_checks import shortened
from api.ingress_daemonset import INGRESS_DAEMONSETS, REVISION_OF
from cli.errors import WRONG, Failure
from cli.objects import StoredResource
from cli.output import timed
from cli.revisions import aborted, chosen, history_parts, images_of, kept_templates, undo
from cli.rollouts import (
    Rollout,
    Rollouts,
    is_wrong,
    pause,
    promote,
    restart,
    rollout_of,
    rollout_parts,
    rollouts_parts,
    update_now,
)
from cli.session import Command, Commands, Session, pass_session
from controllers.ingress_daemonset.revisions import CONTROLLER_REVISIONS, Revision
from kube.client import Client
from kube.errors import Conflict

NAME = "INGRESSDAEMONSET"
Choose = Callable[[StoredResource, list[Revision]], Revision]
Patch = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A merge patch, or a JSON patch."""
Change = Callable[[StoredResource], Patch | None]
"""The patch of what is stored; None when there is nothing to do."""
ATTEMPTS = 10
"""The leader writes a status once a second at most."""


@click.group(cls=Commands)
def rollout() -> None:
    """See, pause, resume, start or undo rollouts."""


@rollout.command(cls=Command)
@click.argument("name", metavar=f"[{NAME}]", required=False)
@click.option("-w", "--watch", is_flag=True, help="Show it again whenever it changes, until Ctrl-C.")
@pass_session
def get(session: Session, name: str | None, watch: bool) -> None:
    """Show how far rollouts are, and why they wait.

    Without a name, all of the namespace are listed. Ends with 1 when one is halted or degraded.
    """
    if name is None:
        every = session.follow(lambda: _all(session), timed(rollouts_parts, session.cluster.now), watch)
        wrong = any(map(is_wrong, every.rollouts))
    else:
        wrong = is_wrong(
            session.follow(lambda: _one(session, name), timed(rollout_parts, session.cluster.now), watch)
        )
    if wrong:
        raise SystemExit(WRONG)


@rollout.command("pause", cls=Command)
@click.argument("name", metavar=NAME)
@pass_session
def pause_rollout(session: Session, name: str) -> None:
    """Start no further node.

    Nodes that are being updated are completed, and the others attached again.
    """
    _write(session, name, lambda stored: pause(stored, True), "Pause the rollout", "paused")


@rollout.command("resume", cls=Command)
@click.argument("name", metavar=NAME)
@pass_session
def resume_rollout(session: Session, name: str) -> None:
    """Go on with a rollout that was paused."""
    _write(
        session,
        name,
        lambda stored: pause(stored, False),
        "Resume the rollout",
        "resumed",
        already="not paused",
    )


@rollout.command("promote", cls=Command)
@click.argument("name", metavar=NAME)
@pass_session
def promote_rollout(session: Session, name: str) -> None:
    """Let the other nodes follow the canary.

    It counts for this canary alone: a later template has another one.
    """
    _write(session, name, promote, "Promote the canary", "promoted")


@rollout.command("now", cls=Command)
@click.argument("name", metavar=NAME)
@pass_session
def update_nodes_now(session: Session, name: str) -> None:
    """Do not wait for the window with the present template.

    It counts for this template alone. Canary, waves and budget stay.
    """
    _write(session, name, update_now, "Update nodes outside of the window", "not waiting for its window")


@rollout.command("restart", cls=Command)
@click.argument("name", metavar=NAME)
@pass_session
def restart_rollout(session: Session, name: str) -> None:
    """Replace all pods, node by node, within the budget."""
    patch = restart(session.cluster.now())
    _write(session, name, lambda _: patch, "Replace all pods", "restarted")


@rollout.command(cls=Command)
@click.argument("name", metavar=NAME)
@pass_session
def history(session: Session, name: str) -> None:
    """List the templates that are kept, the current one first."""
    stored = _read(session, name)
    session.output.show(
        kept_templates(stored, revisions_of(session.cluster.client, stored)),
        timed(history_parts, session.cluster.now),
    )


@rollout.command("undo", cls=Command)
@click.argument("name", metavar=NAME)
@click.option(
    "--to-revision", type=int, help="By its number in the history; default: the one before the current one."
)
@pass_session
def undo_rollout(session: Session, name: str, to_revision: int | None) -> None:
    """Return to a former template, node by node, within the budget."""
    _return(session, name, lambda stored, held: chosen(stored, held, to_revision))


@rollout.command("abort", cls=Command)
@click.argument("name", metavar=NAME)
@pass_session
def abort_rollout(session: Session, name: str) -> None:
    """Return from a rollout in progress to the last template that all nodes had.

    Nodes that were updated are updated back, within the budget; the others are left as they are.
    """
    _return(session, name, aborted)


def _all(session: Session) -> Rollouts:
    found = session.cluster.client.list(INGRESS_DAEMONSETS, session.scope, type=StoredResource).items
    return Rollouts(tuple(map(rollout_of, found)))


def _one(session: Session, name: str) -> Rollout:
    return rollout_of(_read(session, name))


def _read(session: Session, name: str) -> StoredResource:
    return stored_of(session.cluster.client, session.namespace, name)


def _return(session: Session, name: str, choose: Choose) -> None:
    def chosen_now(stored: StoredResource) -> Revision:
        return choose(stored, revisions_of(session.cluster.client, stored))

    stored = _read(session, name)
    revision = chosen_now(stored)
    images = ", ".join(images_of(revision))
    question = f"Return to revision {revision.revision} ({images})"
    paused = "; it is paused: resume it" if stored.spec.get("paused") else ""
    done = f"returns to revision {revision.revision}{paused}"
    _apply(session, stored, lambda each: undo(chosen_now(each)), question, done)


def _write(
    session: Session, name: str, change: Change, question: str, done: str, *, already: str = ""
) -> None:
    """*already* is what is said when there is nothing to change."""
    stored = _read(session, name)
    if change(stored) is None:
        found = already or f"{done} already"
        session.output.say(f"{session.namespace}/{name}: {found}; nothing was changed")
        return
    _apply(session, stored, change, question, done)


def _apply(session: Session, shown: StoredResource, change: Change, question: str, done: str) -> None:
    name = shown.metadata.name
    place = f"{session.namespace}/{name}"
    session.confirm(f"{question} of {place}?")
    try:
        write(session.cluster.client, shown, change)
    except Conflict:
        raise Failure(
            f"{place} was changed in the meantime; nothing was changed by you", "repeat it"
        ) from None
    session.output.say(f"{place}: {done}; drawbridge rollout get {name} -n {session.namespace} -w shows it")


def stored_of(client: Client, namespace: str, name: str) -> StoredResource:
    """KubeError."""
    return client.get(INGRESS_DAEMONSETS, name, namespace, type=StoredResource)


def revisions_of(client: Client, stored: StoredResource) -> list[Revision]:
    """KubeError."""
    selector = f"{REVISION_OF}={shortened(stored.metadata.name)}"
    namespace = stored.metadata.namespace
    return client.list(CONTROLLER_REVISIONS, namespace, type=Revision, label_selector=selector).items


def write(client: Client, shown: StoredResource, change: Change) -> bool:
    """Write the *change* of what was *shown*; whether there was one.

    KubeError; Conflict when the spec is another one by now, or the change would be.
    """
    wanted, stored = change(shown), shown
    if wanted is None:
        return False
    for attempt in range(1, ATTEMPTS + 1):
        try:
            client.patch(INGRESS_DAEMONSETS, *_place(shown, _at_version(wanted, stored)))
        except Conflict:
            stored = stored_of(client, shown.metadata.namespace, shown.metadata.name)
            if attempt == ATTEMPTS or not _has_same_spec(stored, shown) or change(stored) != wanted:
                raise
        else:
            break
    return True


def _place(stored: StoredResource, patch: object) -> tuple[str, object, str]:
    return stored.metadata.name, patch, stored.metadata.namespace


def _at_version(patch: Patch, stored: StoredResource) -> object:
    version = stored.metadata.resource_version
    if isinstance(patch, Mapping):
        return {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": version}}
    return [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}, *patch]


def _has_same_spec(one: StoredResource, other: StoredResource) -> bool:
    return (one.metadata.uid, one.metadata.generation) == (other.metadata.uid, other.metadata.generation)
