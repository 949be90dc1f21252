"""How far the detachment of a node is: what marks it, how long graces last, what confirms it, and what stays open.

Health checkers and load balancers prove that a detachment has reached the load balancer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any

import msgspec

from api.health_checks import SCHEDULED, State, deployment_name
from api.ingress_daemonset import DETACHED_BY
from api.ingress_daemonset.template import EXCLUDED, FollowedNode
from api.ingress_daemonset.types import (
    OFF,
    PREFERRED,
    REQUIRED,
    Annotation,
    IngressDaemonSet,
    RollingUpdate,
    time_of,
)
from controllers.ingress_daemonset.children import LONG_AGO, Target, Workload, Writes, deployment, target
from kube.types import Moment, ObjectMeta, Value, after, as_annotation, read_annotation

Changes = dict[str, str | None]
NodeChanges = dict[str, Changes]
"""Of its annotations and its labels."""


class Mark(Value, frozen=True):
    """Since when we detach, by the annotation *key*.

    *put* is false for an annotation that was there before and stays; *stale* is the timestamp that was there before.
    *label* is the same as *put* for the label that excludes the node from load balancers; None where it is not wanted.
    With *attached*, it is since when the node is attached, and the load balancer may not send it traffic yet. With
    *leaving*, it is since when the node does not match.
    """

    at: Moment
    key: str = ""
    put: bool = True
    stale: str = ""
    label: bool | None = None
    attached: bool = False
    leaving: bool = False


Holders = dict[str, Mark]


def deployment_mark_of(annotations: Mapping[str, str]) -> Mark | None:
    return read_annotation(annotations, SCHEDULED, Mark)


def holders_of(annotations: Mapping[str, str]) -> Holders:
    """By the uid of the IngressDaemonSet; none if they are unreadable: then the annotation is another writer's."""
    return read_annotation(annotations, DETACHED_BY, Holders) or {}


def detach_deployment(
    annotations: Mapping[str, str], wanted: Annotation | None, now: datetime, *, leaving: bool = False
) -> Changes:
    """Detach a Deployment; without *wanted* write only the mark, which health checkers ignore."""
    if wanted is None:
        return {SCHEDULED: as_annotation(Mark(now, put=False, leaving=leaving))}
    old = deployment_mark_of(annotations)
    put = wanted.key not in annotations or (old is not None and old.put and old.key == wanted.key)
    others = {old.key: None} if old and old.put and old.key != wanted.key else {}
    value = wanted.value if put else annotations[wanted.key]
    return {
        **others,
        wanted.key: value,
        SCHEDULED: as_annotation(Mark(now, wanted.key, put, leaving=leaving)),
    }


def attach_deployment(annotations: Mapping[str, str]) -> Changes:
    mark = deployment_mark_of(annotations)
    if mark is None:
        return {}
    return dict.fromkeys((SCHEDULED, mark.key) if mark.put and mark.key in annotations else (SCHEDULED,))


def settle_deployment(annotations: Mapping[str, str], now: datetime) -> Changes:
    """Attach a Deployment, with a mark that still counts against the budget."""
    return attach_deployment(annotations) | {SCHEDULED: as_annotation(Mark(now, put=False, attached=True))}


def detach_node(node: ObjectMeta, uid: str, rolling: RollingUpdate, now: datetime) -> NodeChanges:
    """Detach a Node by the annotation and the label that *rolling* wants.

    If the node is detached already, the timestamp that is there belongs to that same detachment.
    """
    held, holders, mark = node.annotations, holders_of(node.annotations), Mark(now, put=False)
    annotations, labels = Changes(), Changes()
    if wanted := rolling.node_annotation:
        same = [each for each in holders.values() if each.key == wanted.key]
        put, stale = any(each.put for each in same), next((each.stale for each in same), "")
        if wanted.key not in held:
            put, stale = True, held.get(rolling.timestamp.key, "") if rolling.timestamp else ""
        mark = msgspec.structs.replace(mark, key=wanted.key, put=put, stale=stale)
        annotations[wanted.key] = held.get(wanted.key, wanted.value)
    if rolling.labels_node:
        mark = msgspec.structs.replace(mark, label=EXCLUDED not in node.labels or _has_our_label(node))
        if EXCLUDED not in node.labels:
            labels[EXCLUDED] = ""
            holders = {each: _with_our_label(other) for each, other in holders.items()}
    changes = _held_by(node, {**holders, uid: mark})
    changes["annotations"] |= annotations
    return changes | ({"labels": labels} if labels else {})


def attach_node(node: ObjectMeta, uid: str) -> NodeChanges:
    """Attach a Node; annotation and label stay while another IngressDaemonSet needs them."""
    holders = holders_of(node.annotations)
    rest = {each: mark for each, mark in holders.items() if each != uid}
    return _held_by(node, rest) if uid in holders else {}


def attach_node_for_all(node: ObjectMeta) -> NodeChanges:
    """Attach a Node for all IngressDaemonSets at once; what others put there stays."""
    return _held_by(node, {}) if holders_of(node.annotations) else {}


def _held_by(node: ObjectMeta, after: Holders) -> NodeChanges:
    """Have these holders, and nothing of ours that none of them wants."""
    before = holders_of(node.annotations)
    keys = {mark.key for mark in before.values() if mark.put} - {mark.key for mark in after.values()}
    annotations: NodeChanges = {
        "annotations": {**dict.fromkeys(keys), DETACHED_BY: as_annotation(after) if after else None}
    }
    is_wanted = any(mark.label is not None for mark in after.values())
    return annotations | ({"labels": {EXCLUDED: None}} if _has_our_label(node) and not is_wanted else {})


def _has_our_label(node: ObjectMeta) -> bool:
    """A label with another value is no longer ours."""
    is_put = any(mark.label for mark in holders_of(node.annotations).values())
    return is_put and node.labels.get(EXCLUDED) == ""


def _with_our_label(mark: Mark) -> Mark:
    return mark if mark.label is None else msgspec.structs.replace(mark, label=True)


SERVING, REFUSED = 200, 503


@dataclass(frozen=True)
class Reading:
    """The last answer of the checker at *address* and *port*; *error* says why there is none."""

    address: str
    port: int
    state: State | None = None
    error: str | None = None


Readings = Mapping[str, tuple[Reading, ...]]
"""By node name."""


def doubt_of(
    ports: Sequence[int], readings: Sequence[Reading], judge: Callable[[State], str | None]
) -> str | None:
    """Why not all checkers on *ports* answer as they should: *judge* says what is wrong. None when they do."""
    by_port = {each.port: each for each in readings}
    for port in ports:
        found = by_port.get(port)
        if found is None:
            return f"the health checker on port {port} has not been read yet"
        checker = (
            f"the health checker at {f'[{found.address}]' if ':' in found.address else found.address}:{port}"
        )
        if found.state is None:
            return f"{checker} cannot be read: {found.error}"
        if wrong := judge(found.state):
            return f"{checker} {wrong}"
    return None


def detach_doubt(uid: str, scheduled: str, grace: float, state: State) -> str | None:
    """Why it does not confirm that the Deployment of *uid* is detached for *scheduled*."""
    if state.status != REFUSED:
        return f"answers {state.status}: it has not seen the detachment"
    if (state.uid, state.scheduled) != (uid, scheduled):
        return f"answers 503, but not for this detachment: {state.reason}"
    if state.detached_seconds < grace:
        return f"has not answered 503 for the whole grace of {grace:g} s"
    return None


@dataclass(frozen=True)
class NodeBackends:
    """The backends of a node at *load_balancer*, as they were last read; *error* says why they are not known.

    All of them have read weight 0 since *detached_since*. *restored*: none of them waits for its former weight.
    *unhealthy* ones get no traffic yet.
    """

    load_balancer: str
    detached_since: datetime | None = None
    restored: bool = False
    unhealthy: int = 0
    error: str | None = None

    @property
    def detach_doubt(self) -> str | None:
        """Why it may still send traffic; None when it does not."""
        if self.error:
            return f"load balancer {self.load_balancer} {self.error}"
        if self.detached_since is None:
            return (
                f"load balancer {self.load_balancer} has not reported weight 0 for all backends of the node"
            )
        return None

    @property
    def attach_doubt(self) -> str | None:
        """Why it may not have the former weights again; None when it has."""
        if self.error:
            return f"load balancer {self.load_balancer} {self.error}"
        return None if self.restored else f"weights at load balancer {self.load_balancer} are not restored"

    @property
    def health_doubt(self) -> str | None:
        if not self.unhealthy:
            return None
        return f"load balancer {self.load_balancer} finds {self.unhealthy} backends of the node unhealthy"


BackendsByNode = Mapping[str, tuple[NodeBackends, ...]]
METALLB = "MetalLB"
"""A load balancer that follows the label of the Node, and says in the API server what it announces from where."""


def by_load_balancer(wanted: Sequence[str], known: Sequence[NodeBackends]) -> list[NodeBackends]:
    """One for each of *wanted*."""
    found = {each.load_balancer: each for each in known}
    return [found.get(each, NodeBackends(each, error="has not been read yet")) for each in wanted]


@dataclass(frozen=True, eq=False)
class Detachment:
    """*readings* are of the node's health checkers, *backends* what is known of it at load balancers."""

    resource: IngressDaemonSet
    node: FollowedNode
    deployment: Workload | None
    writes: Writes
    readings: tuple[Reading, ...]
    backends: tuple[NodeBackends, ...]

    @cached_property
    def body(self) -> dict[str, Any]:
        return deployment(self.resource, self.node.name)

    @cached_property
    def target(self) -> Target:
        """Of its Deployment."""
        of = self.resource.metadata
        return Target("Deployment", of.namespace, deployment_name(of.name, self.node.name))

    @cached_property
    def node_target(self) -> Target:
        return target("Node", self.node.metadata)

    @cached_property
    def owner_target(self) -> Target:
        return target("IngressDaemonSet", self.resource.metadata)

    @property
    def written(self) -> tuple[Target, ...]:
        """What is written for it."""
        return self.target, self.node_target, self.owner_target

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def rolling(self) -> RollingUpdate:
        return self.resource.spec.update_strategy.rolling_update

    @property
    def uid(self) -> str:
        return self.resource.metadata.uid

    @cached_property
    def annotations(self) -> dict[str, str]:
        """Of the Deployment; none of an unmanaged one."""
        return self.managed.metadata.annotations if self.managed else {}

    @cached_property
    def deployment_mark(self) -> Mark | None:
        return deployment_mark_of(self.annotations)

    @cached_property
    def node_mark(self) -> Mark | None:
        return holders_of(self.node.metadata.annotations).get(self.uid)

    @cached_property
    def unmanaged(self) -> bool:
        held = self.deployment
        return held is not None and not held.is_managed(self.uid, self.body)

    @cached_property
    def managed(self) -> Workload | None:
        """Its Deployment, if it is ours."""
        return None if self.unmanaged else self.deployment

    @cached_property
    def marked_at(self) -> datetime:
        """The first of its marks; long ago without any."""
        return min((mark.at for mark in (self.deployment_mark, self.node_mark) if mark), default=LONG_AGO)

    @property
    def returns(self) -> bool:
        """Whether its Deployment is marked since a time at which the node did not match."""
        return self.deployment_mark is not None and self.deployment_mark.leaving

    @cached_property
    def deployment_unmarked(self) -> bool:
        wanted = self.rolling.deployment_annotation
        return _lacks(wanted, None if self.returns else self.deployment_mark, self.annotations)

    @cached_property
    def node_unmarked(self) -> bool:
        mark, is_excluded = self.node_mark, self.node.excluded
        is_labelled = is_excluded and mark is not None and mark.label is not None
        annotations = self.node.metadata.annotations
        return _lacks(self.rolling.node_annotation, mark, annotations) or (
            self.rolling.labels_node and not is_labelled
        )

    @property
    def timestamp(self) -> datetime | None:
        """When the Node was detached this time, by its annotation; None without one."""
        wanted, mark = self.rolling.timestamp, self.node_mark
        text = self.node.metadata.annotations.get(wanted.key, "") if wanted else ""
        return None if mark is None or text == mark.stale else time_of(text)

    @property
    def settled_at(self) -> datetime | None:
        """When the load balancer sends traffic to the node again; None unless it was just attached."""
        return self._after_attachment(self.rolling.attach_grace_period_seconds)

    def _after_attachment(self, seconds: int) -> datetime | None:
        mark = self.deployment_mark
        return after(self.writes.began(mark.at, self.target), seconds) if mark and mark.attached else None

    @property
    def safe_at(self) -> datetime | None:
        """When the last grace ends; None while one has not begun."""
        if self.deployment_unmarked or self.node_unmarked:
            return None
        rolling, writes, ends = self.rolling, self.writes, [LONG_AGO]
        if (annotation := rolling.deployment_annotation) and (mark := self.deployment_mark):
            ends.append(after(writes.began(mark.at, self.target), annotation.grace_period_seconds))
        if mark := self.node_mark:
            ends.append(after(writes.began(mark.at, self.node_target), rolling.node_grace_seconds))
        if wanted := rolling.timestamp:
            if (detached_at := self.timestamp) is None:
                return None
            ends.append(after(writes.began(detached_at, self.node_target), wanted.grace_period_seconds))
        return max(ends)

    @cached_property
    def doubt(self) -> str | None:
        """Why the detachment is not confirmed; None when it is, or need not be."""
        if self.rolling.confirm == OFF:
            return None
        ports, annotation = self.resource.spec.health_check_node_ports, self.rolling.deployment_annotation
        if annotation and self.deployment:
            uid, scheduled = self.deployment.metadata.uid, self.annotations.get(SCHEDULED, "")
            judge = partial(detach_doubt, uid, scheduled, annotation.grace_period_seconds)
            if doubt := doubt_of(ports, self.readings, judge):
                return doubt
        announcements = [each for each in self.backends if each.load_balancer == METALLB]
        return next(
            filter(None, (each.detach_doubt for each in (*self.at_load_balancers, *announcements))), None
        )

    @cached_property
    def at_load_balancers(self) -> list[NodeBackends]:
        """What is known of the node, for each load balancer at which it gets weight 0."""
        weights = self.rolling.weights
        return by_load_balancer(weights.load_balancers, self.backends) if weights else []

    @cached_property
    def detached_at(self) -> datetime | None:
        """When all graces are over, those that begin with weight 0, too; None while one has not begun."""
        if (safe_at := self.safe_at) is None or self.rolling.weights is None:
            return safe_at
        grace = self.rolling.weights.grace_period_seconds
        since = (each.detached_since for each in self.at_load_balancers)
        return max([safe_at, *(after(each, grace) for each in since if each)])

    @property
    def doubt_ends_at(self) -> datetime | None:
        """When the update goes on without a confirmation; None when it never does."""
        if self.rolling.confirm != PREFERRED or (safe_at := self.safe_at) is None:
            return None
        return after(safe_at, self.rolling.confirm_timeout_seconds)

    def is_confirmed(self, now: datetime) -> bool:
        """Whether the load balancer sends it nothing more: the graces are over, and the detachment is confirmed."""
        if (detached_at := self.detached_at) is None or detached_at > now:
            return False
        ends = self.doubt_ends_at
        return not self.doubt or (ends is not None and ends <= now)

    def is_released(self, now: datetime) -> bool:
        """Whether its pods may end: the load balancer sends it nothing more, and few connections are open."""
        return self.is_confirmed(now) and not self.waits_for_connections(now)

    @property
    def connections(self) -> int | None:
        """Open ones, by the last reading of its health checkers; None when that is not known."""
        counts = [each.state.connections for each in self.readings if each.state]
        return max((each for each in counts if each is not None), default=None)

    @property
    def connections_end_at(self) -> datetime | None:
        """Until when connections are waited for; None while the graces have not begun, and where they do not count.

        Another leader does not wait for them once more: however often it changes, the pods are replaced.
        """
        if (wanted := self.rolling.connections) is None:
            return None
        detached_at = replace(self, writes=replace(self.writes, seen={})).detached_at
        return after(detached_at, wanted.timeout_seconds) if detached_at else None

    @property
    def has_connections(self) -> bool:
        """Whether more are open than may be, or it is not known how many."""
        wanted, count = self.rolling.connections, self.connections
        return wanted is not None and (count is None or count > wanted.max)

    def waits_for_connections(self, now: datetime) -> bool:
        ends = self.connections_end_at
        return self.has_connections and ends is not None and ends > now

    def unserved(self, generation: int = 0) -> str | None:
        """Why its health checkers are not known to answer 200; None when they do, or need not.

        An answer before they have seen this *generation* of the Deployment does not count.
        """
        ports = () if self.rolling.confirm == OFF else self.resource.spec.health_check_node_ports

        def judge(state: State) -> str | None:
            if state.status != SERVING:
                return f"answers {state.status}: {state.reason}"
            return "has not seen yet that the node is attached" if state.generation < generation else None

        return doubt_of(ports, self.readings, judge)

    @property
    def follows_label(self) -> bool:
        """Whether it waits for load balancers to follow the label."""
        return self.rolling.labels_node and self.rolling.confirm != OFF and self.node_mark is not None

    @property
    def settles(self) -> bool:
        """Whether it counts against the budget for a while after it is attached."""
        rolling, ports = self.rolling, self.resource.spec.health_check_node_ports
        is_read = bool(ports) and rolling.confirm != OFF
        return rolling.detaches and bool(rolling.attach_grace_period_seconds or rolling.weights or is_read)

    def attach_doubt(self, now: datetime) -> str | None:
        """Why load balancers may not send it traffic yet, after it was attached; None when they do.

        Health checks that fail are waited for as long as a confirmation, and weights without end if required.
        """
        ends, is_required = self.attach_doubt_ends_at, self.rolling.confirm == REQUIRED
        if ends is None or self.deployment is None or self.rolling.confirm == OFF:
            return None
        weights = (each.attach_doubt for each in self.at_load_balancers if is_required or ends > now)
        health = (each.health_doubt for each in self.at_load_balancers if ends > now)
        unserved = self.unserved(self.deployment.metadata.generation) if ends > now else None
        return unserved or next(filter(None, (*weights, *health)), None)

    @property
    def attach_doubt_ends_at(self) -> datetime | None:
        """When less of it is waited for."""
        return self._after_attachment(self.rolling.confirm_timeout_seconds)


def _lacks(wanted: Annotation | None, mark: Mark | None, annotations: dict[str, str]) -> bool:
    return wanted is not None and (mark is None or mark.key != wanted.key or wanted.key not in annotations)
