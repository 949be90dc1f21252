"""What was last read of the nodes' backends at load balancers, for as long as it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from api.ingress_daemonset.types import IngressDaemonSet, load_balancers, not_allowed
from controllers.clock import CLOCK, Clock
from controllers.ingress_daemonset.clb.backends import BackendsByNode, NodeBackends
from runtime import threading
from settings import CLBSettings

OLD = 30.0
"""Seconds after which it no longer counts."""


@dataclass(frozen=True)
class Known:
    """By node, since a time on the clock."""

    nodes: Mapping[str, NodeBackends]
    at: float


class LoadBalancerCache:
    """Safe to use from any thread."""

    def __init__(self, settings: Callable[[], CLBSettings], clock: Clock = CLOCK) -> None:
        self._settings, self._clock = settings, clock
        self._known: dict[str, Known] = {}
        self._lock = threading.Lock()

    def put(self, load_balancer: str, nodes: Mapping[str, NodeBackends]) -> bool:
        """Whether it differs from what was known."""
        before = self.nodes(load_balancer)
        with self._lock:
            self._known[load_balancer] = Known(nodes, self._clock.monotonic())
        return before != nodes

    def nodes(self, load_balancer: str) -> Mapping[str, NodeBackends]:
        """What still counts."""
        with self._lock:
            known = self._known.get(load_balancer)
        return known.nodes if known and self._clock.monotonic() - known.at <= OLD else {}

    def of(self, resource: IngressDaemonSet, names: Iterable[str]) -> BackendsByNode:
        """For those of *names* of which something is known; a load balancer that is not allowed is so for all."""
        namespace, clb = resource.metadata.namespace, self._settings()
        found: dict[str, tuple[NodeBackends, ...]] = {}
        for each in load_balancers(resource):
            nodes = self.nodes(each)
            if not clb.allows(each, namespace):
                refused = NodeBackends(each, error=f"is not used: {not_allowed(each, namespace, clb)}")
                nodes = dict.fromkeys(names, refused)
            for name, backends in nodes.items():
                found[name] = (*found.get(name, ()), backends)
        return found
