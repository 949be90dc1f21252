"""A node with its Deployment: the phase of its rollout, and why; the actions that detach, update and attach it.

Nodes join whenever an autoscaler wants it, and all of them would have a bad template at once. So their first pods get
the last template that all nodes had, and the new one in their turn, until that is proven and nothing holds it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from api.ingress_daemonset import NODE_LABEL, TEMPLATE_HASH
from api.ingress_daemonset.status import Phase
from api.ingress_daemonset.types import IngressDaemonSet, time_of
from controllers.ingress_daemonset.children import (
    COMPLETE,
    LONG_AGO,
    STUCK,
    Action,
    Target,
    Workload,
    Writes,
    change,
    create,
    digest,
    has_host_ports,
    settings_of,
    shared_digest,
    shares_ports,
    size_of,
    stops_all,
)
from controllers.ingress_daemonset.detachment import (
    Changes,
    Detachment,
    NodeChanges,
    attach_deployment,
    attach_node,
    detach_deployment,
    detach_node,
    settle_deployment,
)
from controllers.ingress_daemonset.drift import (
    Altered,
    Baseline,
    Drift,
    annotations_of,
    baseline_of,
    covers,
    drift_of,
    overwrite,
    rewritten,
)
from kube.types import after, rfc3339

LINGER_SECONDS = 60
"""A node stays detached for so long after evictions pass in any case, so that they can be retried."""


@dataclass(frozen=True, eq=False)
class NodeRollout(Detachment):
    """A node with its Deployment, which is updated, drained or left as it is.

    The status of the IngressDaemonSet says when a drain was *drain_requested*, and that its pods are *evictable*.
    """

    drain_requested: str
    evictable: bool

    @cached_property
    def uncertain(self) -> bool:
        """Whether a write to its Deployment or its Node may still arrive."""
        return not self.writes.uncertain.isdisjoint((self.target, self.node_target))

    @cached_property
    def refusal(self) -> str | None:
        """Why the API server refuses what its update needs; None while it does not."""
        if not self.outdated:
            return None
        return self.writes.refusal(self.target) or self.writes.refusal(self.node_target)

    @cached_property
    def absent(self) -> bool:
        return self.deployment is None or self.deployment.is_terminating

    @cached_property
    def in_flight(self) -> bool:
        return self.uncertain or self.deployment_mark is not None or self.node_mark is not None

    @cached_property
    def detached(self) -> bool:
        """Whether it is detached from the load balancer, by us or by others."""
        on_deployment, on_node = self.rolling.deployment_annotation, self.rolling.node_annotation
        # Where nodes are not detached, a mark without a key says that pods are being replaced.
        is_marked = self.node_mark is not None or bool(self.deployment_mark and self.deployment_mark.key)
        return (
            ((is_marked or self.uncertain) and self.settled_at is None)
            or (on_deployment is not None and on_deployment.key in self.annotations)
            or (on_node is not None and on_node.key in self.node.metadata.annotations)
            or any(each.detached_since for each in self.at_load_balancers)
        )

    @cached_property
    def lost(self) -> bool:
        """Whether a Ready node lacks pods that it had: its health checks fail."""
        return self.lacks_pods and not self.absent and self._had_pods

    @property
    def _had_pods(self) -> bool:
        """Those that were replaced count, too: the node served before, though an uninstall has attached it since."""
        return self.updated_at is not None or (
            self.deployment is not None and self.deployment.progress == COMPLETE
        )

    @property
    def lacks_pods(self) -> bool:
        """Whether a Ready node has not all of its pods: it has lost some, or they are starting."""
        return self.node.ready and not self.unmanaged and (self.absent or not self.has_its_pods)

    @property
    def has_its_pods(self) -> bool:
        """As many as its Deployment should have: a node whose number changes has the former one until its turn."""
        return self.managed is not None and self.managed.available

    @property
    def available_pods(self) -> int:
        return self.managed.status.available_replicas if self.managed else 0

    @property
    def unavailable(self) -> bool:
        """Whether it counts against the budget."""
        return self.out_of_service or self.lacks_pods

    @cached_property
    def out_of_service(self) -> bool:
        """Whether it is detached, or about to be, or just attached, or unreliable, whatever pods it has."""
        node = self.node
        return (
            self.in_flight
            or self.detached
            or not node.ready
            or node.cordoned
            or node.excluded
            or node.to_be_deleted
        )

    @cached_property
    def draining(self) -> bool:
        """Whether its pods are about to be evicted, and it can be detached before."""
        if self.absent or self.unmanaged or not self.resource.spec.detaches_for_evictions:
            return False
        return bool(self.drain_requested) or self.node.to_be_deleted

    def drain_is_over(self, now: datetime) -> bool:
        """Whether the request has timed out; on a node that is cordoned or about to be deleted it does not."""
        if self.node.cordoned or self.node.to_be_deleted:
            return False
        name, requested = self.node.name, self.drain_requested
        return after(drain_times_out_at(self.resource, name, requested, self.writes), LINGER_SECONDS) <= now

    def may_evict(self, now: datetime) -> bool:
        """Whether evictions from it may pass; once they may, they do while it stays detached."""
        if self.drain_is_over(now):
            return False
        if self.draining:
            stays = self.evictable and self.in_flight
            return stays or (not self.uncertain and self.is_released(now))
        # An unmanaged or a terminating Deployment is not detached by us.
        held = self.deployment is not None and (self.absent or self.unmanaged)
        return held and bool(self.drain_requested) and self.resource.spec.detaches_for_evictions

    @cached_property
    def degraded(self) -> bool:
        """Whether it is being updated or lacks pods; a NotReady node alone is not degraded."""
        return self.in_flight or self.lacks_pods

    @property
    def desired_hash(self) -> str:
        return str(self.body["metadata"]["annotations"][TEMPLATE_HASH])

    @cached_property
    def baseline(self) -> Baseline | None:
        return baseline_of(self.annotations)

    @cached_property
    def drift(self) -> Drift:
        if self.deployment is None:
            return Drift.NONE
        live, desired = self.deployment.spec.get("template") or {}, self.body["spec"]["template"]
        return drift_of(
            self.deployment,
            self.desired_hash,
            self.deployment.template_digest,
            lambda: covers(desired, live),
            placed=_place(live) == _place(desired),
        )

    @property
    def needs_template(self) -> bool:
        return self.drift.calls_for_update

    @cached_property
    def outdated(self) -> bool:
        """Whether it is to be updated, when it is its turn."""
        return self.needs_template or (self.needs_size and not self.resizes_at_once)

    @cached_property
    def needs_size(self) -> bool:
        """Whether its Deployment has another number of pods, or another minReadySeconds, and no policy made it so."""
        held, baseline, size = self.managed, self.baseline, size_of(self.resource)
        if held is None or not _differing(size, held):
            return False
        return baseline is None or baseline.size != digest(size) or not baseline.is_answered_by(held)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What began pod by pod, on a node that is not detached, goes on so."""
        settings, held = settings_of(self.resource), self.managed
        if held and self.phase is Phase.UPDATING and stops_all(settings) and not stops_all(held.spec):
            del settings["strategy"]
        if held and settings["progressDeadlineSeconds"] <= held.min_ready_seconds:
            # The API server refuses it, and all else of that write, until minReadySeconds is shorter.
            del settings["progressDeadlineSeconds"]
        return settings

    @cached_property
    def resizes_at_once(self) -> bool:
        """Whether that makes no health check fail: of a node that fails anyway, or with a shorter time to be ready.

        With the old template, the number of pods for the new one could refuse each other's ports. The load balancer may
        still use a node that has lost a pod, so that none is stopped there that is available: those that are not go
        first (Kubernetes, pkg/controller: ActivePodsWithRanks).
        """
        held, spec = self.deployment, self.resource.spec
        if held is None:
            return False
        is_alone = held.replicas < spec.pods_per_node and has_host_ports(held.spec.get("template") or {})
        if self.needs_template and (is_alone or shares_ports(self.resource)):
            return False
        is_shorter = held.replicas == spec.pods_per_node and spec.min_ready_seconds <= held.min_ready_seconds
        stops_none = self.in_flight or held.status.available_replicas <= spec.pods_per_node
        return is_shorter or (not held.available and stops_none)

    @cached_property
    def phase(self) -> Phase:
        if self.unmanaged:
            return Phase.UNMANAGED
        if self.absent or self.deployment is None:
            return Phase.STARTING
        if self.outdated:
            return Phase.DETACHING if self.in_flight and not self.returns else Phase.OUTDATED
        if self.draining:
            return Phase.DRAINING
        if self.in_flight:
            return Phase.ATTACHING if self.deployment.rolled_out else Phase.UPDATING
        if self.drift is Drift.ALTERED:
            return Phase.ALTERED
        if self.deployment.available:
            return Phase.CURRENT
        return Phase.DEGRADED if self._had_pods else Phase.STARTING

    @property
    def cannot_start(self) -> bool:
        """Whether its first pods are late, or its Deployment is refused, or the one before is still being deleted."""
        if self.phase is not Phase.STARTING:
            return False
        held = self.deployment
        return held.is_terminating or held.progress == STUCK if held else self.target in self.writes.refused

    @property
    def cannot_go_on(self) -> bool:
        """Whether nothing is due by which its pods come: it is NotReady, say, or has lost them while detached."""
        has_lost_pods = self.was_complete and self.lacks_pods
        return not self.node.ready or self.cannot_start or has_lost_pods

    @property
    def was_complete(self) -> bool:
        """Whether it was updated before it was detached, to be drained, say: what it lacks is lost."""
        return self.phase is Phase.UPDATING and not self._was_updated

    @property
    def is_settling(self) -> bool:
        """Whether it is attached with all its pods, and still counts."""
        return self.phase is Phase.ATTACHING and self.settled_at is not None

    @cached_property
    def joined(self) -> bool:
        """Whether its first pods have the desired template, or get it: no others were replaced there."""
        if self.absent:
            return True
        return not self.needs_template and self.baseline is not None and self.updated_at is None

    @property
    def altered(self) -> Altered | None:
        """The Deployment, if it is left as another writer made it."""
        if self.managed is None or self.drift is not Drift.ALTERED:
            return None
        return Altered("Deployment", self.name, self.managed.template_digest)

    @property
    def is_detaching(self) -> bool:
        return self.phase in (Phase.DETACHING, Phase.DRAINING)

    @cached_property
    def untouched(self) -> bool:
        """Whether it is detached, and its template has not been replaced since."""
        return self.phase is Phase.DETACHING and not self._was_updated

    @property
    def updated_at(self) -> datetime | None:
        """When it was last updated; its first pods are no update."""
        return self.baseline.updated if self.baseline else None

    @property
    def _was_updated(self) -> bool:
        """Since it was detached."""
        return self.updated_at is not None and self.updated_at >= self.marked_at

    @property
    def is_stranded(self) -> bool:
        """Whether it can neither be attached, with the pods that it has, nor begin, while others come first."""
        return self.untouched and self.lacks_pods

    @cached_property
    def stuck_at(self) -> datetime | None:
        """From when its pods have not become available in time; None while they are not waited for.

        That the Deployment's own deadline has passed may still be said of the template before. Whatever it says, the
        pods should be available some time: there, pods that become ready and crash again have made progress each time.
        And if its controller's write of the new ReplicaSet's condition meets a conflict, that is never written, and a
        Deployment whose pods cannot be created counts as complete indefinitely (Kubernetes, pkg/controller/deployment:
        DeploymentProgressing, getNewReplicaSet). A new ReplicaSet may wait for the old pods to terminate.
        """
        held, spec, began = self.deployment, self.resource.spec, self.updated_at
        if self.phase is not Phase.UPDATING or held is None:
            return None
        if began and (back := self.node.ready_since):
            # While it is NotReady, it proves nothing.
            began = max(began, back)
        if held.progress == STUCK:
            return after(began, spec.progress_deadline_seconds) if began else LONG_AGO
        if began is None or not self._was_updated:
            return None
        turns = 1 if self.rolling.detaches else held.replicas
        seconds = spec.progress_deadline_seconds + spec.min_ready_seconds
        return after(began, turns * seconds + held.termination_grace)

    @property
    def lacks_timestamp(self) -> bool:
        marked = self.is_detaching and not self.deployment_unmarked and not self.node_unmarked
        return marked and self.safe_at is None

    def is_doubted(self, now: datetime) -> bool:
        """Whether only the confirmation is missing, though it was asked for."""
        detached_at, was_asked = self.detached_at, bool(self.readings or self.backends)
        is_over = detached_at is not None and detached_at <= now
        return self.is_detaching and was_asked and is_over and not self.is_confirmed(now)


def _place(template: dict[str, Any]) -> tuple[Any, Any]:
    labels = (template.get("metadata") or {}).get("labels") or {}
    return (template.get("spec") or {}).get("nodeName"), labels.get(NODE_LABEL)


def drain_times_out_at(resource: IngressDaemonSet, node: str, requested: str, writes: Writes) -> datetime:
    """From when evictions from *node* pass in any case; an unreadable request has timed out.

    By this clock alone: those of webhook servers may differ from it, and from each other.
    """
    if (asked := time_of(requested)) is None:
        return LONG_AGO
    return after(writes.began(asked, Target("Node", "", node)), resource.spec.drain_timeout_seconds)


def why(rollout: NodeRollout, now: datetime) -> str:
    """Why it is in its phase: what it waits for, or what happens."""
    not_ready = "" if rollout.node.ready else "; the node is NotReady"
    return _sentence(rollout, now) + not_ready


def _sentence(rollout: NodeRollout, now: datetime) -> str:
    name, held = rollout.name, rollout.deployment
    if rollout.refusal:
        return rollout.refusal
    match rollout.phase:
        case Phase.UNMANAGED:
            ours = held is not None and held.is_of(rollout.uid)
            what = "has another selector, which cannot be changed" if ours else "is not managed by Drawbridge"
            return f"Deployment {name} {what}: delete or rename it"
        case Phase.DETACHING:
            return "the rollout is paused" if rollout.resource.spec.paused else _detaching(rollout, now)
        case Phase.DRAINING if rollout.evictable and rollout.in_flight:
            return "it is detached to be drained: its pods may be evicted"
        case Phase.DRAINING if not rollout.in_flight:
            return "it is to be drained, and waits for room in maxUnavailableNodes"
        case Phase.DRAINING:
            return f"it is to be drained; {_detaching(rollout, now)}"
        case Phase.UPDATING if rollout.stuck_at and rollout.stuck_at <= now:
            return f"Deployment {name} has not become available within its progressDeadlineSeconds"
        case Phase.UPDATING if held and held.lacks:
            return held.lacks
        case Phase.STARTING if held is None and (refused := rollout.writes.refused.get(rollout.target)):
            return f"the API server refuses to create Deployment {name}: {refused}"
        case Phase.STARTING if held and held.is_terminating:
            return f"Deployment {name} is being deleted; another one follows"
        case Phase.UPDATING | Phase.STARTING | Phase.DEGRADED:
            return _pods(rollout)
        case Phase.ATTACHING:
            settled_at = rollout.settled_at
            if settled_at is None:
                return "all pods are available; its annotations are being removed"
            if settled_at <= now and (doubt := rollout.attach_doubt(now)):
                return f"it is attached, and waits for traffic: {doubt}"
            return f"it is attached; the load balancer has until {rfc3339(settled_at)} to send traffic"
        case Phase.OUTDATED if rollout.drift is Drift.DRIFTED:
            return f"Deployment {name} was changed by another writer; it waits for its turn to be restored"
        case Phase.OUTDATED:
            return f"it waits for its turn; {_pods(rollout)}" if rollout.lost else "it waits for its turn"
        case Phase.ALTERED:
            return f"Deployment {name} was changed again in the same way after it was restored, and is left as it is"
        case Phase.CURRENT:
            return "it is up to date"


def _pods(rollout: NodeRollout) -> str:
    wanted = rollout.deployment.replicas if rollout.deployment else rollout.resource.spec.pods_per_node
    return f"{rollout.available_pods} of {wanted} pods are available"


def _detaching(rollout: NodeRollout, now: datetime) -> str:
    if rollout.deployment_unmarked or rollout.node_unmarked:
        return "it is being detached"
    if rollout.is_doubted(now):
        ends = rollout.doubt_ends_at
        goes_on = f"the update goes on without a confirmation at {rfc3339(ends)}" if ends else ""
        way_out = goes_on or "see why, or set confirm to preferred or off"
        return f"its detachment is not confirmed: {rollout.doubt}; {way_out}"
    if rollout.is_confirmed(now) and rollout.waits_for_connections(now):
        ends_at = rfc3339(rollout.connections_end_at or now)
        return f"{open_connections(rollout)}; its pods are replaced at {ends_at} at the latest"
    if (detached_at := rollout.detached_at) is not None:
        return f"the load balancer has until {rfc3339(detached_at)} to stop sending traffic"
    key = rollout.rolling.timestamp.key if rollout.rolling.timestamp else ""
    return f"its detachment is not confirmed: annotation {key} is missing or old"


def open_connections(rollout: NodeRollout) -> str:
    """How many there are, or why that is not known."""
    wanted, count = rollout.rolling.connections, rollout.connections
    if count is not None:
        return f"{count} connections are open, and at most {wanted.max if wanted else 0} may be"
    errors = (each.state.connections_error if each.state else each.error for each in rollout.readings)
    why = next((each for each in errors if each), "no health checker has reported them")
    return f"it is not known how many connections are open: {why}"


class Clearance(NamedTuple):
    """Whether the update or the drain of a node may begin or has begun, and whether its template stays as it is.

    It stays while the rollout is paused, or other nodes get it first.
    """

    begun: bool
    waits: bool


def node_actions(rollout: NodeRollout, clearance: Clearance, now: datetime) -> Iterable[Action]:
    """In their order."""
    if rollout.unmanaged:
        return
    if rollout.deployment is None:
        annotations = {"annotations": annotations_of(_asked(rollout, 1))}
        yield create(rollout.body | {"metadata": rollout.body["metadata"] | annotations})
        return
    if rollout.absent:
        return
    metadata, spec = _deployment_changes(rollout, rollout.deployment, clearance, now)
    if metadata or spec:
        yield change("Deployment", rollout.deployment.metadata, metadata, spec=spec)
    if on_node := _node_changes(rollout, clearance, now):
        yield change("Node", rollout.node.metadata, on_node)


def _deployment_changes(
    rollout: NodeRollout, held: Workload, clearance: Clearance, now: datetime
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of its metadata, and of its spec."""
    wanted, mark, baseline = rollout.rolling.deployment_annotation, rollout.deployment_mark, rollout.baseline
    size = _differing(size_of(rollout.resource), held) if rollout.needs_size else {}
    annotations, update = Changes(), dict[str, Any]()
    if _is_over(rollout, clearance):
        annotations = _attached(rollout, now)
    elif _should_detach(rollout, clearance) and rollout.deployment_unmarked:
        annotations = detach_deployment(rollout.annotations, wanted, now)
        if baseline and baseline.updated and baseline.updated >= now:
            # It comes before this detachment, though it may have been made by a clock that is ahead.
            before = msgspec.structs.replace(baseline, updated=now - timedelta(seconds=1))
            annotations = annotations | annotations_of(before)
    elif clearance.begun and rollout.outdated and not clearance.waits and rollout.is_released(now):
        if mark is None or rollout.returns:
            annotations = detach_deployment(rollout.annotations, None, now)
        update = size
        if rollout.needs_template:
            template = overwrite(rollout.body["spec"]["template"], held.spec.get("template"))
            update = {**size, "template": template}
    elif wanted and mark and wanted.key == mark.key and wanted.key not in rollout.annotations:
        # Another writer has removed it during the update.
        annotations = {wanted.key: wanted.value}
    settings, spec = rollout.settings, update
    is_by_policy = baseline and baseline.settings == digest(settings) and baseline.is_answered_by(held)
    if not is_by_policy:
        spec = _differing(settings, held) | spec
    if not update and rollout.resizes_at_once:
        spec = spec | size
    if annotations or spec or rollout.drift is Drift.UNRECORDED:
        annotations = annotations | _recorded(rollout, held, spec, now, updates=bool(update))
    metadata = held.missing_labels(rollout.body)
    return metadata | ({"annotations": annotations} if annotations else {}), spec


def _attached(rollout: NodeRollout, now: datetime) -> Changes:
    """The node is attached at once; what counts it against the budget stays for the grace."""
    settled_at = rollout.settled_at
    if settled_at is not None:
        waits = settled_at > now or rollout.attach_doubt(now)
        return {} if waits else attach_deployment(rollout.annotations)
    if rollout.deployment_mark and rollout.settles:
        return settle_deployment(rollout.annotations, now)
    return attach_deployment(rollout.annotations)


def _recorded(
    rollout: NodeRollout, held: Workload, spec: Mapping[str, Any], now: datetime, *, updates: bool
) -> Changes:
    """The baseline after a write of *spec*, which makes a generation; *updates* is whether it is the node's update.

    While the template is not as we applied it, the baseline stays; one without digest gets it before the generation
    moves on, because the template may be desired again.
    """
    old, asked = rollout.baseline or Baseline(), _asked(rollout, held.metadata.generation + 1)
    if rollout.needs_size and spec.keys().isdisjoint(size_of(rollout.resource)):
        asked = msgspec.structs.replace(asked, size="")
    updated, waited, took = old.updated, old.waited, old.took
    if updates:
        # The mark may be of a clock that is ahead.
        updated, took = max(now, rollout.marked_at), None
        detached = (updated - rollout.marked_at).total_seconds() if rollout.marked_at > LONG_AGO else 0
        waited = max(0, round(detached) - rollout.rolling.grace_seconds)
    elif (
        updated and took is None and rollout.phase is Phase.ATTACHING and rollout.marked_at <= updated <= now
    ):
        # It is attached for the first time since.
        took = round((now - updated).total_seconds())
    asked = msgspec.structs.replace(asked, updated=updated, waited=waited, took=took)
    if "template" in spec:
        return annotations_of(rewritten(asked, rollout.drift, old, held.template_digest))
    if rollout.drift in (Drift.NONE, Drift.UNRECORDED):
        return annotations_of(msgspec.structs.replace(asked, undone=old.undone, digest=held.template_digest))
    if old.template and not old.digest and old.is_answered_by(held):
        return annotations_of(msgspec.structs.replace(old, digest=held.template_digest))
    return {}


def _asked(rollout: NodeRollout, generation: int) -> Baseline:
    shared, resource = shared_digest(rollout.body["spec"]["template"]), rollout.resource
    size, settings = digest(size_of(resource)), digest(rollout.settings)
    return Baseline(rollout.desired_hash, shared, size, settings, generation)


def _differing(desired: Mapping[str, Any], held: Workload) -> dict[str, Any]:
    live = held.spec
    return {
        name: overwrite(value, live.get(name))
        for name, value in desired.items()
        if not covers(value, live.get(name))
    }


def _node_changes(rollout: NodeRollout, clearance: Clearance, now: datetime) -> NodeChanges:
    node = rollout.node.metadata
    if _is_over(rollout, clearance):
        return attach_node(node, rollout.uid)
    lost = rollout.phase is Phase.UPDATING and rollout.node_mark is not None
    if not rollout.node_unmarked or not (_should_detach(rollout, clearance) or lost):
        return {}
    return detach_node(node, rollout.uid, rollout.rolling, now)


def _should_detach(rollout: NodeRollout, clearance: Clearance) -> bool:
    """A drain waits for no rollout, not even for a paused one."""
    if rollout.draining:
        return clearance.begun or rollout.in_flight
    return clearance.begun and not clearance.waits


def _is_over(rollout: NodeRollout, clearance: Clearance) -> bool:
    """Whether the node is to be attached; one that waits is given back, unless its pods were touched."""
    # The status says that its pods may be evicted, or a write of that may still arrive: until withdrawn, it stays.
    if rollout.draining or rollout.evictable or rollout.owner_target in rollout.writes.uncertain:
        return False
    if rollout.returns and rollout.outdated and not clearance.begun:
        return True
    untouched = rollout.phase is Phase.DETACHING and clearance.waits
    done = rollout.deployment is not None and rollout.deployment.rolled_out
    return rollout.phase is Phase.ATTACHING or (untouched and done)
