"""`drawbridge simulate rollout`: the controller's own planner, played forward."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import click

from api.ingress_daemonset import INGRESS_DAEMONSETS, NODE_LABEL
from api.ingress_daemonset.template import FollowedNode
from api.ingress_daemonset.types import OFF, IngressDaemonSet, RollingUpdate
from cli.errors import Failure
from cli.explain.kinds import ingress_daemonsets_of
from cli.ingress_daemonset.explanation import readable_or_failure
from cli.ingress_daemonset.rollouts import restarted
from cli.inventory import Inventory
from cli.output import Part, Report, Table, count_of, duration, title, warning
from cli.session import Command, Session, object_name, pass_session
from cli.simulate import Change, Effect
from controllers.ingress_daemonset.children import LONG_AGO, Workload
from controllers.ingress_daemonset.forecast import Forecast, Step, forecast
from controllers.ingress_daemonset.pacing import resolved
from controllers.ingress_daemonset.rollout import Snapshot
from controllers.ingress_daemonset.status import Pace, pace_of
from kube.resources import DEPLOYMENTS, NODES, Selection
from kube.types import key_of

Raw = dict[str, Any]
NAMED = 5
"""Nodes of a wave that the table names; all with ``-o wide``."""


@click.command("rollout", cls=Command)
@click.argument("name", metavar="INGRESSDAEMONSET", type=object_name)
@click.option(
    "--image", "images", metavar="[CONTAINER=]IMAGE", multiple=True, help="A new image; may be repeated."
)
@pass_session
def rollout_command(session: Session, name: str, images: tuple[str, ...]) -> None:
    """Predict in which order a rollout would take nodes, and when it would end.

    Without --image: the rollout in progress or, if there is none, a restart of all pods.
    """
    session.show(simulated(Inventory(session.cluster), session.namespace, name, images))


class Rollout(Report, frozen=True):
    """What the *forecast* foresees at this *pace*."""

    ingress_daemonset: str
    what: str
    budget_field: str
    paused: bool
    now: datetime
    assumptions: tuple[str, ...]
    pace: Pace
    forecast: Forecast

    def parts(self, now: datetime) -> Iterator[Part]:
        yield title(f"Rollout of {self.ingress_daemonset}, {self.what}: {_end(self.forecast, self.now)}")
        ahead, pace = self.forecast, self.pace
        waits = f", from {pace.waits:.0f}s after its graces on" if round(pace.waits) else ""
        source = f"the median of the last update of {pace.measured} nodes"
        yield (
            f"{count_of(ahead.nodes, 'node')}, at most {ahead.limit} at a time ({self.budget_field});"
            f" pods take {pace.pods:.0f}s on a node{waits}"
            f" ({source if pace.measured else 'assumed: no rollout has been measured yet'})."
        )
        if self.paused:
            yield warning("It is paused: this is what happens once it is resumed.")
        for each in self.assumptions:
            yield f"Assumed: {each}."
        rows = [_row(number, wave, now) for number, wave in enumerate(ahead.waves, start=1)]
        yield Table(
            ("WAVE", "BEGINS", "PODS REPLACED", "BACK", "NODES", "ALL NODES"),
            rows,
            empty="No node has to be updated.",
            wide=1,
        )
        for pause in ahead.pauses:
            goes_on = "with drawbridge rollout promote, and the time until then is not counted"
            if pause.seconds is not None:
                goes_on = f"after {duration(pause.seconds)}"
            yield f"After {_after(pause.begins_at, now)}, {pause.after} is complete: it goes on {goes_on}."
        if ahead.remaining:
            more = count_of(ahead.remaining, "more node follows", "more nodes follow")
            yield f"{more} in the same way; the time for that is estimated."
        if ahead.left:
            yield Table(
                ("NOT UPDATED", "PHASE", "WHY"), [(each.node, each.phase, each.why) for each in ahead.left]
            )


def simulated(inventory: Inventory, namespace: str, name: str, images: Sequence[str]) -> Rollout:
    """With *images*, ``[CONTAINER=]IMAGE`` each. Without any what is outdated now; if nothing is, a restart.

    KubeError; Failure for what cannot be simulated.
    """
    stored: Raw = inventory.get(INGRESS_DAEMONSETS, name, namespace, Raw)
    nodes = inventory.list(NODES, FollowedNode)
    ours = Selection(namespace, label_selector=NODE_LABEL)
    deployments, now = inventory.list(DEPLOYMENTS, Workload, ours), inventory.now()

    def snapshot_of(raw: Raw) -> Snapshot:
        """Not paused: what is paused has nothing to foresee."""
        resource = readable_or_failure({**raw, "spec": {**raw["spec"], "paused": False}})
        return Snapshot(resource, nodes, deployments, now)

    what = f"after the change to {', '.join(images)}" if images else "as it is under way"
    snapshot = snapshot_of(with_images(stored, images) if images else stored)
    is_under_way = any(
        each.outdated or (each.in_flight and not each.draining) for each in snapshot.rollouts()
    )
    if not images and not is_under_way:
        spec = {**stored["spec"], "template": restarted(stored["spec"]["template"], now)}
        what, snapshot = "after drawbridge rollout restart", snapshot_of({**stored, "spec": spec})
    if resolved(snapshot.resource, ())[1].stored:
        why = "its template has failed, and nodes have, or return to, the one before"
        raise Failure(why, "write --image to see another template")
    rollouts, course = snapshot.rollouts(), snapshot.resource.stored.rollout
    # As the leader estimates the end.
    pace = pace_of(rollouts, (course and course.started_at) or LONG_AGO)
    rolling = snapshot.resource.spec.update_strategy.rolling_update
    return Rollout(
        ingress_daemonset=f"{namespace}/{name}",
        what=what,
        budget_field="maxUnavailableNodes" if rolling.detaches else "maxDegradedNodes",
        paused=stored["spec"].get("paused", False),
        now=now,
        assumptions=tuple(_assumptions(snapshot.resource, pace)),
        pace=pace,
        forecast=forecast(snapshot, pace),
    )


def with_images(raw: Raw, images: Sequence[str]) -> Raw:
    """*raw* with these images in its template. Failure."""
    changed = copy.deepcopy(raw)
    spec = changed["spec"]["template"].get("spec") or {}
    containers = spec.get("containers") or []
    by_name = {each.get("name", ""): each for each in (*(spec.get("initContainers") or ()), *containers)}
    for each in images:
        name, _, image = each.rpartition("=")
        if not name and len(containers) == 1:
            name = containers[0].get("name", "")
        if name not in by_name:
            place = f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"
            raise Failure(
                f"the template of {place} has no such container",
                f"write CONTAINER=IMAGE: its containers are {', '.join(by_name)}",
            )
        by_name[name]["image"] = image
    return changed


def _assumptions(resource: IngressDaemonSet, pace: Pace) -> Iterator[str]:
    rolling: RollingUpdate = resource.spec.update_strategy.rolling_update
    if rolling.canary and rolling.canary.metric:
        yield "the metric of the canary is good from its first measurement on, unless it has failed before"
    if rolling.window:
        yield f"nodes begin in the window only: from {rolling.window.start} {rolling.window.time_zone} on"
    if round(pace.waits):
        return
    if rolling.timestamp:
        yield f"annotation {rolling.timestamp.key} appears as soon as a node is to be detached"
    if resource.spec.health_check_node_ports and rolling.deployment_annotation and rolling.confirm != OFF:
        yield "health checkers confirm each detachment as soon as its grace is over"
    if rolling.weights and rolling.confirm != OFF:
        yield f"{', '.join(rolling.weights.load_balancers)} have each weight as soon as it is written"
    if rolling.connections:
        longest = duration(rolling.connections.timeout_seconds)
        yield f"open connections end with the graces, though they are waited for up to {longest} longer for each turn"


def _end(found: Forecast, now: datetime) -> str:
    if found.ends_at is None and found.remaining:
        return "its end is not known"
    if found.ends_at is None:
        return "it does not end" if found.left else "nothing to do"
    about = "about " if found.remaining else ""
    ends = f"ends {about}at {found.ends_at:%Y-%m-%d %H:%M:%S} UTC, in {_after(found.ends_at, now)}"
    return f"{ends}, without {count_of(len(found.left), 'node')}" if found.left else ends


def _row(number: int, wave: Sequence[Step], now: datetime) -> tuple[str, ...]:
    first, names = wave[0], [each.node for each in wave]
    more = f" and {len(names) - NAMED} others" if len(names) > NAMED else ""
    replaced = max((each.replaced_at for each in wave if each.replaced_at), default=None)
    ends = [each.ends_at for each in wave if each.ends_at]
    back = max(ends) if len(ends) == len(wave) else None
    times = (_after(moment, now) for moment in (first.begins_at, replaced, back))
    return (str(number), *times, ", ".join(names[:NAMED]) + more, ", ".join(names))


def _after(moment: datetime | None, now: datetime) -> str:
    """Nothing for what does not happen."""
    if moment is None:
        return "never"
    seconds = (moment - now).total_seconds()
    return duration(seconds) if seconds >= 0 else f"{duration(-seconds)} ago"


def effects(inventory: Inventory, change: Change) -> Iterator[Effect]:
    """Of a change of values."""
    begins = change.then.ingress_daemonset.enabled
    if change.now.ingress_daemonset.enabled == begins:
        return
    what = "is rolled out and followed" if begins else "is followed no more, and its pods stay"
    for each in ingress_daemonsets_of(inventory, None):
        yield Effect("ingressDaemonSet", "IngressDaemonSet", key_of(each.metadata), begins, what)
