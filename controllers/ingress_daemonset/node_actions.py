"""The actions for one node: detach it, update its Deployment, attach it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from msgspec.structs import replace

from controllers.ingress_daemonset import rollout_annotations
from controllers.ingress_daemonset.actions import Action, change, create
from controllers.ingress_daemonset.desired import digest, settings_of, shared_digest, size_of
from controllers.ingress_daemonset.drift import Baseline, Drift, annotations_of, covers, overwrite, rewritten
from controllers.ingress_daemonset.node_rollout import NodeRollout, Phase
from controllers.ingress_daemonset.rollout_annotations import Changes
from controllers.ingress_daemonset.types import Workload


class Turn(NamedTuple):
    """Whether the update or the drain of a node may begin or has begun, and whether its template stays as it is.

    It stays while the rollout is paused, or other nodes get it first.
    """

    begun: bool
    waits: bool = False


def node_actions(rollout: NodeRollout, turn: Turn, now: datetime) -> Iterable[Action]:
    """In their order."""
    if rollout.unmanaged:
        return
    if rollout.deployment is None:
        yield create("Deployment", _with_baseline(rollout))
        return
    if rollout.absent:
        return
    turn = turn._replace(begun=turn.begun or rollout.phase is Phase.DETACHING)
    metadata, spec = _deployment_changes(rollout, rollout.deployment, turn, now)
    if metadata or spec:
        yield change("Deployment", rollout.deployment.metadata, metadata, spec=spec)
    if on_node := _node_changes(rollout, turn, now):
        yield change("Node", rollout.node.metadata, {"annotations": on_node})


def _with_baseline(rollout: NodeRollout) -> dict[str, Any]:
    metadata = rollout.body["metadata"]
    return rollout.body | {"metadata": metadata | {"annotations": annotations_of(_asked(rollout, 1))}}


def _deployment_changes(
    rollout: NodeRollout, held: Workload, turn: Turn, now: datetime
) -> tuple[dict[str, Any], dict[str, Any]]:
    annotations, update = _annotations_and_update(rollout, held, turn, now)
    spec = _settings(rollout, held) | (update or _size_at_once(rollout, held))
    if annotations or spec or rollout.drift is Drift.UNRECORDED:
        # The mark may be of a clock that is ahead.
        times = (max(now, rollout.marked_at), None) if update else _times(rollout, now)
        annotations = annotations | _recorded(rollout, held, spec, *times)
    labels = rollout.body["metadata"]["labels"]
    metadata = {} if covers(labels, held.metadata.labels) else {"labels": labels}
    return metadata | ({"annotations": annotations} if annotations else {}), spec


def _annotations_and_update(
    rollout: NodeRollout, held: Workload, turn: Turn, now: datetime
) -> tuple[Changes, dict[str, Any]]:
    if _is_over(rollout, turn):
        return _attached(rollout, now), {}
    wanted, mark = rollout.rolling.deployment_annotation, rollout.deployment_mark
    if _should_detach(rollout, turn) and rollout.deployment_unmarked:
        marked = rollout_annotations.schedule(rollout.annotations, wanted, now)
        return marked | _before(now, rollout.baseline), {}
    if turn.begun and rollout.outdated and not turn.waits and rollout.is_released(now):
        is_marked = mark is not None and not rollout.returns
        marked = {} if is_marked else rollout_annotations.schedule(rollout.annotations, None, now)
        return marked, _update(rollout, held)
    # Another writer may have removed it during the update.
    lost = wanted and mark and wanted.key == mark.key and wanted.key not in rollout.annotations
    return ({wanted.key: wanted.value} if wanted and lost else {}), {}


def _before(now: datetime, baseline: Baseline | None) -> Changes:
    """The last update comes before a detachment of *now*, though it may have been made by a clock that is ahead."""
    if baseline is None or baseline.updated is None or baseline.updated < now:
        return {}
    return annotations_of(replace(baseline, updated=now - timedelta(seconds=1)))


def _update(rollout: NodeRollout, held: Workload) -> dict[str, Any]:
    size = _differing(size_of(rollout.resource), held) if rollout.needs_size else {}
    if not rollout.needs_template:
        return size
    return {**size, "template": overwrite(rollout.body["spec"]["template"], held.spec.get("template"))}


def _size_at_once(rollout: NodeRollout, held: Workload) -> dict[str, Any]:
    at_once = rollout.needs_size and rollout.resizes_at_once
    return _differing(size_of(rollout.resource), held) if at_once else {}


def _attached(rollout: NodeRollout, now: datetime) -> Changes:
    """The node is attached at once; what counts it against the budget stays for the grace."""
    rolling, settled_at = rollout.rolling, rollout.settled_at
    if settled_at is not None:
        waits = settled_at > now or rollout.attach_doubt(now)
        return {} if waits else rollout_annotations.unschedule(rollout.annotations)
    settles = rolling.attach_grace_period_seconds or rolling.weights
    if rollout.deployment_mark and rolling.detaches and settles:
        return rollout_annotations.settle(rollout.annotations, now)
    return rollout_annotations.unschedule(rollout.annotations)


def _recorded(
    rollout: NodeRollout, held: Workload, spec: Mapping[str, Any], updated: datetime | None, took: int | None
) -> Changes:
    """The baseline after a write of *spec*, which makes a generation.

    *updated* is when the node was updated, or is by this write, and *took* as in the baseline.

    While the template is not as we applied it, the baseline stays; one without digest gets it before the generation
    moves on, because the template may be desired again.
    """
    old, asked = rollout.baseline or Baseline(), _asked(rollout, held.metadata.generation + 1)
    if rollout.needs_size and spec.keys().isdisjoint(size_of(rollout.resource)):
        asked = replace(asked, size="")
    asked = replace(asked, updated=updated, took=took)
    if "template" in spec:
        return annotations_of(rewritten(asked, rollout.drift, old, held.template_digest))
    if rollout.drift.is_accepted:
        return annotations_of(replace(asked, undone=old.undone, digest=held.template_digest))
    if old.template and not old.digest and old.is_answered_by(held):
        return annotations_of(replace(old, digest=held.template_digest))
    return {}


def _times(rollout: NodeRollout, now: datetime) -> tuple[datetime | None, int | None]:
    """When the node was updated, and in how many seconds, which is known when it is attached for the first time."""
    old = rollout.baseline or Baseline()
    if old.updated is None or old.took is not None or rollout.phase is not Phase.ATTACHING:
        return old.updated, old.took
    is_of_this = rollout.marked_at <= old.updated <= now
    return old.updated, round((now - old.updated).total_seconds()) if is_of_this else None


def _asked(rollout: NodeRollout, generation: int) -> Baseline:
    shared, resource = shared_digest(rollout.body["spec"]["template"]), rollout.resource
    size, settings = digest(size_of(resource)), digest(settings_of(resource))
    return Baseline(rollout.desired_hash, shared, size, settings, generation)


def _settings(rollout: NodeRollout, held: Workload) -> dict[str, Any]:
    """Those that differ, unless a policy made them of ours."""
    desired, baseline = settings_of(rollout.resource), rollout.baseline
    if baseline and baseline.settings == digest(desired) and baseline.is_answered_by(held):
        return {}
    return _differing(desired, held)


def _differing(desired: Mapping[str, Any], held: Workload) -> dict[str, Any]:
    live = held.spec
    return {
        name: overwrite(value, live.get(name))
        for name, value in desired.items()
        if not covers(value, live.get(name))
    }


def _node_changes(rollout: NodeRollout, turn: Turn, now: datetime) -> Changes:
    held, wanted = rollout.node.metadata.annotations, rollout.rolling.node_annotation
    if _is_over(rollout, turn):
        return rollout_annotations.attach(held, rollout.uid)
    lost = rollout.phase is Phase.UPDATING and rollout.node_mark is not None
    if wanted is None or not rollout.node_unmarked or not (_should_detach(rollout, turn) or lost):
        return {}
    timestamp = rollout.rolling.timestamp
    return rollout_annotations.detach(held, rollout.uid, wanted, timestamp.key if timestamp else "", now)


def _should_detach(rollout: NodeRollout, turn: Turn) -> bool:
    """A drain waits for no rollout, not even for a paused one."""
    if rollout.draining:
        return turn.begun or rollout.in_flight
    return turn.begun and not turn.waits


def _is_over(rollout: NodeRollout, turn: Turn) -> bool:
    """Whether the node is to be attached; one that waits is given back, unless its pods were touched."""
    if rollout.draining or rollout.may_be_evictable:
        return False
    if rollout.returns and rollout.outdated and not turn.begun:
        return True
    untouched = rollout.phase is Phase.DETACHING and turn.waits
    done = rollout.deployment is not None and rollout.deployment.rolled_out
    return rollout.phase is Phase.ATTACHING or (untouched and done)
