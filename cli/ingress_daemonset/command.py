"""`drawbridge rollout list|get|status|pause|resume|promote|now|restart|history|undo|abort`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import click

from api.health_checks import shortened
from api.ingress_daemonset import INGRESS_DAEMONSETS, REVISION_OF
from api.ingress_daemonset.status import Progressing
from cli.cluster import PASSING
from cli.errors import PAUSED, TIMED_OUT, WRONG, Failure
from cli.ingress_daemonset.rollouts import (
    Patch,
    Rollout,
    Rollouts,
    StoredResource,
    change,
    images_of,
    pause,
    promote,
    restarted,
    rollout_of,
    update_now,
)
from cli.output import Document, Output, Part, Report, Table, age, good
from cli.session import Commands, Session, object_name, pass_session, selector_option, watch_option
from controllers.ingress_daemonset.children import without_timestamp
from controllers.ingress_daemonset.pacing import PROMOTED_BY_HAND
from controllers.ingress_daemonset.revisions import CONTROLLER_REVISIONS, Revision, of
from kube.client import Client
from kube.errors import Forbidden, Invalid, KubeError
from kube.types import key_of

KEPT = "drawbridge rollout history shows those that are kept; spec.revisionHistoryLimit says how many"
NAME = "INGRESSDAEMONSET"
Choose = Callable[[StoredResource, list[Revision]], Revision]
Change = Callable[[StoredResource], Patch | None]
"""The patch of what is stored; None when there is nothing to do."""


@click.group(cls=Commands)
def rollout() -> None:
    """List, follow, pause, promote, abort and undo rollouts."""


@rollout.command("list")
@selector_option("IngressDaemonSets")
@watch_option
@pass_session
def list_rollouts(session: Session, selector: str, watch: bool) -> None:
    """List IngressDaemonSets with the state of their rollouts.

    Exits with 1 if one is halted or degraded.
    """

    def read() -> Rollouts:
        found = session.cluster.client.list(
            INGRESS_DAEMONSETS, session.scope, type=StoredResource, label_selector=selector
        )
        return Rollouts(tuple(map(rollout_of, found.items)))

    if session.follow(read, watch).is_wrong:
        raise SystemExit(WRONG)


def about_one(verb: str) -> Callable[[Callable[..., None]], click.Command]:
    """A command about one IngressDaemonSet."""
    named = click.argument("name", metavar=NAME, type=object_name)
    return lambda function: rollout.command(verb)(named(pass_session(function)))


@about_one("get")
@watch_option
def get_rollout(session: Session, name: str, watch: bool) -> None:
    """Show how far a rollout is, which images it replaces, and what it waits for.

    Exits with 1 if it is halted or degraded.
    """
    if session.follow(lambda: read_rollout(session.cluster.client, session.namespace, name), watch).is_wrong:
        raise SystemExit(WRONG)


@about_one("status")
@click.option(
    "--timeout",
    metavar="DURATION",
    default="0s",
    callback=lambda _context, _parameter, text: seconds_of(text),
    help="Give up after this time, such as 90s or 10m.  [default: never]",
)
def wait_for_rollout(session: Session, name: str, timeout: float) -> None:
    """Wait until a rollout has ended, as kubectl rollout status does.

    Exits with 0 once all nodes are up to date, with 1 if the rollout failed (it is halted, was rolled back, or its
    canary fails), with 4 on a timeout, and with 5 if it waits for you: it is paused, or its canary is to be promoted.
    """
    namespace = session.namespace
    rollout = wait_until_ended(
        session.output, lambda: rollout_of(stored_of(session.cluster.client, namespace, name)), timeout
    )
    if session.output.form in ("json", "yaml"):
        session.show(rollout)
    if failure := ended(rollout):
        raise failure
    if not is_done(rollout):
        raise TimedOut(f"timed out: {progress_of(rollout)}", f"it goes on: {rollout.shown_by}")


@about_one("pause")
def pause_rollout(session: Session, name: str) -> None:
    """Pause a rollout.

    Nodes that are being updated are completed; those that were only detached are attached again.
    """
    _write(session, name, lambda stored: pause(stored, True), "Pause the rollout", "paused")


@about_one("resume")
def resume_rollout(session: Session, name: str) -> None:
    """Resume a paused rollout."""
    resume, question = lambda stored: pause(stored, False), "Resume the rollout"
    _write(session, name, resume, question, "resumed", already="not paused")


@about_one("promote")
def promote_rollout(session: Session, name: str) -> None:
    """Promote the canary: the other nodes follow.

    Applies to this canary only; a later template has its own.
    """
    _write(session, name, promote, "Promote the canary", "promoted")


@about_one("now")
def update_nodes_now(session: Session, name: str) -> None:
    """Start this rollout outside its window.

    Applies to the current template only. Canary, waves and budget still count.
    """
    _write(session, name, update_now, "Update nodes outside of the window", "not waiting for its window")


@about_one("restart")
def restart_rollout(session: Session, name: str) -> None:
    """Replace all pods, node by node, within the budget."""
    now = session.cluster.now()

    def restart(stored: StoredResource) -> Patch:
        return change(stored, "template", restarted(stored.spec.get("template") or {}, now))

    _write(session, name, restart, "Replace all pods", "restarted")


@about_one("history")
def history(session: Session, name: str) -> None:
    """List the templates that are kept, the current one first."""
    stored = stored_of(session.cluster.client, session.namespace, name)
    session.show(kept_templates(stored, revisions_of(session.cluster.client, stored)))


@about_one("undo")
@click.option(
    "--to-revision",
    type=int,
    help="A number from the history.  [default: the template before the current one]",
)
def undo_rollout(session: Session, name: str, to_revision: int | None) -> None:
    """Roll back to an earlier template, node by node, within the budget."""
    _return(session, name, lambda stored, held: chosen(stored, held, to_revision))


@about_one("abort")
def abort_rollout(session: Session, name: str) -> None:
    """Abort a rollout: return to the last template that all nodes had.

    Updated nodes are updated back, within the budget; the others stay as they are.
    """
    _return(session, name, aborted)


def _return(session: Session, name: str, choose: Choose) -> None:
    client = session.cluster.client
    stored = stored_of(client, session.namespace, name)
    revision = choose(stored, revisions_of(client, stored))
    question = f"Return to revision {revision.revision} ({', '.join(_images(revision))})"
    paused = "; it is paused: resume it" if stored.spec.get("paused") else ""
    _apply(
        session, stored, undo(stored, revision), question, f"returns to revision {revision.revision}{paused}"
    )


def _write(
    session: Session, name: str, change: Change, question: str, done: str, *, already: str = ""
) -> None:
    """*already* is what is said when there is nothing to change."""
    stored = stored_of(session.cluster.client, session.namespace, name)
    if patch := change(stored):
        _apply(session, stored, patch, question, done)
    else:
        found = already or f"{done} already"
        session.output.say(f"{session.namespace}/{name}: {found}; nothing was changed")


def _apply(session: Session, shown: StoredResource, patch: Patch, question: str, done: str) -> None:
    name, place = shown.metadata.name, key_of(shown.metadata)
    session.confirm(f"{question} of {place}?")
    write(session.cluster.client, shown, patch)
    session.output.say(f"{place}: {done}; drawbridge rollout get {name} -n {session.namespace} -w shows it")


class Paused(Failure):
    exit_code = PAUSED


class TimedOut(Failure):
    exit_code = TIMED_OUT


def wait_until_ended(output: Output, read: Callable[[], Rollout], limit: float) -> Rollout:
    """The rollout when it has ended, or after *limit* seconds. An API server that is away for a while ends nothing.

    KubeError.
    """

    def attempt() -> Rollout | KubeError:
        try:
            return read()
        except PASSING as error:
            return error

    found = output.wait(
        attempt,
        lambda found: f"{found}; trying again" if isinstance(found, KubeError) else progress_of(found),
        lambda found: isinstance(found, Rollout) and (is_done(found) or ended(found) is not None),
        limit,
    )
    if isinstance(found, KubeError):
        raise found
    return found


def is_done(rollout: Rollout) -> bool:
    # A node that is drained has the template, and may be cordoned for days.
    return rollout.is_observed and rollout.state in (Progressing.COMPLETE, Progressing.DRAINING)


def ended(rollout: Rollout) -> Failure | None:
    """Why it does not go on by itself; None while it does, and when all nodes are up to date."""
    if not rollout.is_observed:
        return None
    place, name = rollout.place, f"{rollout.name} -n {rollout.namespace}"
    if rollout.failure:
        return Failure(rollout.failure, f"{rollout.shown_by} shows why; drawbridge rollout undo {name}")
    # A suspension ends by itself.
    if rollout.state == Progressing.PAUSED and rollout.paused:
        return Paused(f"the rollout of {place} is paused", f"drawbridge rollout resume {name}")
    if PROMOTED_BY_HAND in rollout.message:
        way_out = f"drawbridge rollout promote {name}, or abort"
        return Paused(f"the canary of {place} waits to be promoted", way_out)
    return None


def progress_of(rollout: Rollout) -> str:
    """In a line."""
    if not rollout.is_observed:
        return f"{rollout.place}: waiting for the controllers to see the change"
    counted = f"{rollout.updated_nodes} of {rollout.desired_nodes} nodes updated"
    waits = f"; {rollout.waits_for}" if rollout.waits_for else ""
    return f"{rollout.place}: {rollout.state}, {counted}{waits}"


def seconds_of(text: str) -> float:
    from settings.values import seconds  # which takes a tenth of a second to load

    try:
        return seconds(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def read_rollout(client: Client, namespace: str, name: str) -> Rollout:
    """With its images, as far as former templates may be read. KubeError."""
    stored = stored_of(client, namespace, name)
    try:
        held = revisions_of(client, stored)
    except Forbidden:
        held = []
    return rollout_of(stored, {each.digest: each.template for each in of(stored.metadata.uid, held)})


def stored_of(client: Client, namespace: str, name: str) -> StoredResource:
    """KubeError."""
    return client.get(INGRESS_DAEMONSETS, name, namespace, type=StoredResource)


def revisions_of(client: Client, stored: StoredResource) -> list[Revision]:
    """KubeError."""
    selector = f"{REVISION_OF}={shortened(stored.metadata.name)}"
    namespace = stored.metadata.namespace
    return client.list(CONTROLLER_REVISIONS, namespace, type=Revision, label_selector=selector).items


def write(client: Client, shown: StoredResource, patch: Patch) -> None:
    """KubeError; Failure when the spec is not as *shown* any more."""
    at = shown.metadata
    try:
        client.patch(INGRESS_DAEMONSETS, at.name, patch, at.namespace)
    except Invalid:
        if stored_of(client, at.namespace, at.name).metadata.generation == at.generation:
            raise
        raise changed(shown) from None


def changed(shown: StoredResource) -> Failure:
    what = f"{key_of(shown.metadata)} was changed in the meantime; nothing was changed by you"
    return Failure(what, "repeat it")


class Former(Document, frozen=True):
    """*current* is the one that the spec has; *template* is whole."""

    revision: int
    current: bool
    created_at: datetime | None
    images: tuple[str, ...]
    template: dict[str, Any]


class History(Report, frozen=True):
    """The latest one first."""

    namespace: str
    name: str
    revisions: tuple[Former, ...]

    def parts(self, now: datetime) -> Iterator[Part]:
        rows = [
            (
                str(each.revision),
                good("yes") if each.current else "",
                age(each.created_at, now),
                ", ".join(each.images),
            )
            for each in self.revisions
        ]
        columns = ("REVISION", "CURRENT", "AGE", "IMAGES")
        yield Table(columns, rows, empty="no revision is recorded yet: is there a leader?")


def kept_templates(stored: StoredResource, held: Sequence[Revision]) -> History:
    shown = []
    for each in reversed(of(stored.metadata.uid, held)):
        created, is_current = each.metadata.creation_timestamp, _is_current(stored, each)
        shown.append(Former(each.revision, is_current, created, _images(each), each.template))
    return History(stored.metadata.namespace, stored.metadata.name, tuple(shown))


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
    if not rollout.current_revision:
        raise Failure("no template has reached all nodes yet: there is none to return to", KEPT)
    if not rollout.is_of_template:
        raise Failure(
            "no template is being rolled out: the spec has the last one that all nodes had",
            "drawbridge rollout undo starts a rollout, to the former template",
        )
    found = [each for each in of(stored.metadata.uid, held) if each.digest == rollout.current_revision]
    if not found:
        raise Failure(f"the last template that all nodes had, {rollout.current_revision}, is not kept", KEPT)
    return found[0]


def undo(stored: StoredResource, revision: Revision) -> Patch:
    return change(stored, "template", revision.template)


def _is_current(stored: StoredResource, revision: Revision) -> bool:
    return revision.template == without_timestamp(stored.spec.get("template") or {})


def _images(revision: Revision) -> tuple[str, ...]:
    return tuple(images_of(revision.template).values())
