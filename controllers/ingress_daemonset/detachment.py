"""How far the detachment of a node is: what marks it, how long graces last, what confirms it, and what stays open.

Health checkers and load balancers prove that a detachment has reached the load balancer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from api.health_checks import SCHEDULED, State, deployment_name
from api.ingress_daemonset.node_matching import FollowedNode
from api.ingress_daemonset.types import (
    OFF,
    PREFERRED,
    REQUIRED,
    Annotation,
    IngressDaemonSet,
    RollingUpdate,
    time_of,
)
from controllers.ingress_daemonset import rollout_annotations
from controllers.ingress_daemonset.children import LONG_AGO, Target, Workload, Writes, deployment, target
from controllers.ingress_daemonset.load_balancers import NodeBackends, by_load_balancer
from controllers.ingress_daemonset.rollout_annotations import Mark
from kube.types import ObjectMeta

SERVING, REFUSED = 200, 503


@dataclass(frozen=True)
class Reading:
    """The last answer of the checker at *address* and *port*; *error* says why there is none."""

    address: str
    port: int
    state: State | None = None
    error: str | None = None

    def doubt(self, deployment: ObjectMeta, scheduled: str, grace: float) -> str | None:
        """Why it does not confirm that *deployment* is detached for *scheduled*; None when it does."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        checker = f"the health checker at {address}:{self.port}"
        if self.state is None:
            return f"{checker} cannot be read: {self.error}"
        if self.state.status != REFUSED:
            return f"{checker} answers {self.state.status}: it has not seen the detachment"
        if (self.state.uid, self.state.scheduled) != (deployment.uid, scheduled):
            return f"{checker} answers 503, but not for this detachment: {self.state.reason}"
        if self.state.detached_seconds < grace:
            return f"{checker} has not answered 503 for the whole grace of {grace:g} s"
        return None


Readings = Mapping[str, tuple[Reading, ...]]
"""By node name."""


def doubt_of(
    ports: Sequence[int], readings: Sequence[Reading], deployment: ObjectMeta, scheduled: str, grace: float
) -> str | None:
    """Why not all checkers on *ports* confirm; None when they do."""
    by_port = {each.port: each for each in readings}
    for port in ports:
        if port not in by_port:
            return f"the health checker on port {port} has not been read yet"
        if found := by_port[port].doubt(deployment, scheduled, grace):
            return found
    return None


@dataclass(frozen=True, eq=False)
class Detachment:
    """*readings* are of the node's health checkers, *backends* what is known of it at load balancers."""

    resource: IngressDaemonSet
    node: FollowedNode
    deployment: Workload | None
    writes: Writes
    readings: tuple[Reading, ...] = ()
    backends: tuple[NodeBackends, ...] = ()

    @cached_property
    def body(self) -> dict[str, Any]:
        return deployment(self.resource, self.node.name)

    @cached_property
    def target(self) -> Target:
        """Of its Deployment."""
        of = self.resource.metadata
        return Target("Deployment", of.namespace, deployment_name(of.name, self.node.name))

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
        return self.deployment.metadata.annotations if self.deployment and not self.unmanaged else {}

    @cached_property
    def deployment_mark(self) -> Mark | None:
        return rollout_annotations.on_deployment(self.annotations)

    @cached_property
    def node_mark(self) -> Mark | None:
        return rollout_annotations.on_node(self.node.metadata.annotations).get(self.uid)

    @cached_property
    def unmanaged(self) -> bool:
        held = self.deployment
        return held is not None and not held.is_managed(self.uid, self.body)

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
        return _lacks(self.rolling.node_annotation, self.node_mark, self.node.metadata.annotations)

    @property
    def timestamp(self) -> datetime | None:
        """When the Node was detached this time, by its annotation; None without one."""
        wanted, mark = self.rolling.timestamp, self.node_mark
        text = self.node.metadata.annotations.get(wanted.key, "") if wanted else ""
        return None if mark is None or text == mark.stale else time_of(text)

    @property
    def settled_at(self) -> datetime | None:
        """When the load balancer sends traffic to the node again; None unless it was just attached."""
        mark = self.deployment_mark
        if mark is None or not mark.attached:
            return None
        began = self.writes.began(mark.at, self.target)
        return after(began, self.rolling.attach_grace_period_seconds)

    @property
    def safe_at(self) -> datetime | None:
        """When the last grace ends; None while one has not begun."""
        return self._safe_at(self.writes)

    def _safe_at(self, writes: Writes) -> datetime | None:
        if self.deployment_unmarked or self.node_unmarked:
            return None
        graces = [
            (self.rolling.deployment_annotation, self.deployment_mark, self.target),
            (self.rolling.node_annotation, self.node_mark, target("Node", self.node.metadata)),
        ]
        ends = [
            after(writes.began(mark.at, written), annotation.grace_period_seconds)
            for annotation, mark, written in graces
            if annotation and mark
        ]
        if wanted := self.rolling.timestamp:
            if (detached_at := self.timestamp) is None:
                return None
            began = writes.began(detached_at, target("Node", self.node.metadata))
            ends.append(after(began, wanted.grace_period_seconds))
        return max(ends, default=LONG_AGO)

    @cached_property
    def doubt(self) -> str | None:
        """Why the detachment is not confirmed; None when it is, or need not be."""
        if self.rolling.confirm == OFF:
            return None
        doubts = (each.detach_doubt for each in self.at_load_balancers)
        return self._checkers_doubt or next(filter(None, doubts), None)

    @property
    def _checkers_doubt(self) -> str | None:
        ports, annotation = self.resource.spec.health_check_node_ports, self.rolling.deployment_annotation
        if not ports or annotation is None or self.deployment is None:
            return None
        scheduled = self.annotations.get(SCHEDULED, "")
        grace = annotation.grace_period_seconds
        return doubt_of(ports, self.readings, self.deployment.metadata, scheduled, grace)

    @cached_property
    def at_load_balancers(self) -> list[NodeBackends]:
        """What is known of the node, for each load balancer at which it gets weight 0."""
        weights = self.rolling.weights
        return by_load_balancer(weights.load_balancers, self.backends) if weights else []

    @cached_property
    def detached_at(self) -> datetime | None:
        """When all graces are over, those that begin with weight 0, too; None while one has not begun."""
        return self._detached_at(self.writes)

    def _detached_at(self, writes: Writes) -> datetime | None:
        if (safe_at := self._safe_at(writes)) is None or self.rolling.weights is None:
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
        detached_at = self._detached_at(replace(self.writes, seen={}))
        if (wanted := self.rolling.connections) is None or detached_at is None:
            return None
        return after(detached_at, wanted.timeout_seconds)

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
        by_port = {each.port: each for each in self.readings}
        ports = () if self.rolling.confirm == OFF else self.resource.spec.health_check_node_ports
        for port in ports:
            checker, reading = f"the health checker of {self.node.name} on port {port}", by_port.get(port)
            if reading is None:
                return f"{checker} has not been read yet"
            if reading.state is None:
                return f"{checker} cannot be read: {reading.error}"
            if reading.state.status != SERVING:
                return f"{checker} answers {reading.state.status}: {reading.state.reason}"
            if reading.state.generation < generation:
                return f"{checker} has not seen yet that the node is attached"
        return None

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
        mark = self.deployment_mark
        if mark is None or not mark.attached:
            return None
        return after(self.writes.began(mark.at, self.target), self.rolling.confirm_timeout_seconds)


def after(moment: datetime, seconds: int) -> datetime:
    return moment + timedelta(seconds=seconds)


def _lacks(wanted: Annotation | None, mark: Mark | None, annotations: dict[str, str]) -> bool:
    return wanted is not None and (mark is None or mark.key != wanted.key or wanted.key not in annotations)
