"""The brake: few addresses are taken from instances that still run, unless an operator confirms it.

A control plane that was restored from a snapshot, or is a copy, has the claims of nodes that another one serves. When
their Node objects go there, the instances go on running: those of a node pool that is scaled in do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import msgspec

from api.anycast_ip import decoded
from controllers.anycast_ip.claim import CLUSTER_UUID, NAMESPACE
from controllers.anycast_ip.sources import Sources
from kube.client import Client, Resource
from kube.resources import CONFIG_MAPS, LEASES
from kube.types import ConfigMap
from runtime import threading
from settings import LeaderElection

MOST, PERIOD = 3, timedelta(hours=1)
"""So many are unbound in a period without an operator's word, which holds as long."""
SKEW = timedelta(minutes=5)
"""By which clocks of leaders and operators may differ."""
CONFIRMED = "drawbridge.io/release-confirmed-at"
"""The annotation with an operator's word, on the ConfigMap with the cluster's uuid: the time at which it was given."""
UNBINDS = "drawbridge.io/anycast-ip-unbinds"
"""The annotation of the leader's Lease with the last unbound addresses and the times, for the next leader."""
Unbinds = Mapping[str, datetime]
"""When each address was unbound, or its unbinding begun: an attempt whose answer was lost may have succeeded."""
DECODER = msgspec.json.Decoder(dict[str, datetime])
LOOK = 10.0
"""Seconds from one read of an operator's word to the next, while something waits for it."""


class Brake:
    """Safe to share between threads. *unbound* are the addresses that earlier leaders unbound.

    *annotate* writes them all to the leader's Lease before another one is unbound.
    """

    def __init__(
        self,
        sources: Sources,
        client: Client,
        unbound: Unbinds,
        annotate: Callable[[Mapping[str, str]], None],
    ) -> None:
        self._clocks, self._enqueue_all = sources.clocks, sources.enqueue_all
        self._client, self._unbound, self._annotate = client, unbound, annotate
        self._confirmed: datetime | None = None
        self._next = -math.inf
        self._lock = threading.Lock()

    def holds(self, address: str) -> bool:
        """Whether it stays bound for now. One whose unbinding has begun does not: trying again takes no more."""
        recent = self._recent()
        return not self._is_current(self._confirmed) and address not in recent and len(recent) >= MOST

    def take(self, address: str) -> bool:
        """Count it, once, for the next leader too; False when that would be one too many. KubeError."""
        with self._lock:
            if self.holds(address):
                return False
            recent = self._recent() | {address: self._clocks.now()}
            self._unbound = dict(sorted(recent.items(), key=lambda each: each[1])[-MOST:])
            times = {each: at.replace(microsecond=0) for each, at in self._unbound.items()}
            self._annotate({UNBINDS: msgspec.json.encode(times).decode()})
        return True

    def look(self) -> None:
        """Read an operator's word while something may wait for it, and reconcile all when it counts. KubeError."""
        now = self._clocks.monotonic()
        if len(self._recent()) < MOST or now < self._next:
            return
        self._next = now + LOOK
        before, said = self._confirmed, _annotations(self._client, CONFIG_MAPS, CLUSTER_UUID, NAMESPACE)
        try:
            found = datetime.fromisoformat(said[CONFIRMED].strip())
            self._confirmed = found if found.tzinfo else None
        except (KeyError, ValueError):
            self._confirmed = None
        if self._confirmed != before and self._is_current(self._confirmed):
            self._enqueue_all()

    def _recent(self) -> dict[str, datetime]:
        return {address: at for address, at in self._unbound.items() if self._is_current(at)}

    def _is_current(self, at: datetime | None) -> bool:
        return at is not None and -SKEW <= self._clocks.now() - at < PERIOD


def unbinds_in(annotations: Mapping[str, str]) -> Unbinds:
    """None before there were some, and where another client has written something else."""
    found = decoded(DECODER, annotations.get(UNBINDS, "{}"), {})
    return {address: at for address, at in found.items() if at.tzinfo}


def read_unbinds(client: Client, election: LeaderElection) -> Unbinds:
    """Those of earlier leaders; without an election, nothing is known of them. KubeError."""
    if not election.leader_elect:
        return {}
    return unbinds_in(_annotations(client, LEASES, election.resource_name, election.resource_namespace))


def _annotations(client: Client, resource: Resource, name: str, namespace: str) -> dict[str, str]:
    found = client.find(resource, name, namespace, type=ConfigMap)  # of a Lease, too, the metadata are read
    return found.metadata.annotations if found else {}
