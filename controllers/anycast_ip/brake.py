"""The brake: few addresses are taken from instances that still run, unless an operator confirms it.

A control plane that was restored from a snapshot, or is a copy, has the claims of nodes that another one serves. When
their Node objects go there, the instances go on running: those of a node pool that is scaled in do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec
import structlog

from controllers.anycast_ip.claim import CLUSTER_UUID, NAMESPACE
from kube.client import Client, Resource
from kube.errors import KubeError, NotFound
from kube.resources import CONFIG_MAPS, LEASES
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


NOTHING: Unbinds = MappingProxyType({})


POLL, LOOK = 1.0, 10.0
"""Seconds from one look whether something waits to the next, and from one read of an operator's word to the next."""
log = structlog.stdlib.get_logger(__name__)


class Brake:
    """Safe to share between threads. *unbound* are the addresses that earlier leaders unbound.

    *report* gets them all after each change. *held* are the uids of claims that wait.
    """

    def __init__(
        self,
        now: Callable[[], datetime],
        unbound: Unbinds = NOTHING,
        report: Callable[[Unbinds], None] = lambda _: None,
    ) -> None:
        self._now, self._report = now, report
        self._unbound = unbound
        self._confirmed: datetime | None = None
        self._lock = threading.Lock()
        self.held = set[str]()

    def holds(self, address: str) -> bool:
        """Whether it stays bound for now. One whose unbinding has begun does not: trying again takes no more."""
        recent = self._recent()
        return not self._is_current(self._confirmed) and address not in recent and len(recent) >= MOST

    def take(self, address: str) -> bool:
        """Count it, once; False when that would be one too many."""
        with self._lock:
            if self.holds(address):
                return False
            latest = sorted((self._recent() | {address: self._now()}).items(), key=lambda each: each[1])
            self._unbound = dict(latest[-MOST:])
        self._report(self._unbound)
        return True

    def confirm(self, at: datetime | None) -> bool:
        """Whether an operator's word, given *at* that time, counts now."""
        self._confirmed = at
        return self._is_current(at)

    def note(self, uid: str, *, is_held: bool) -> None:
        if is_held:
            self.held.add(uid)
        else:
            self.held.discard(uid)

    def _recent(self) -> dict[str, datetime]:
        return {address: at for address, at in self._unbound.items() if self._is_current(at)}

    def _is_current(self, at: datetime | None) -> bool:
        return at is not None and -SKEW <= self._now() - at < PERIOD


def confirmed_in(annotations: Mapping[str, str]) -> datetime | None:
    """None where nothing is confirmed, or where it is no time with a zone."""
    try:
        found = datetime.fromisoformat(annotations[CONFIRMED].strip())
    except (KeyError, ValueError):
        return None
    return found if found.tzinfo else None


def annotation(unbound: Unbinds) -> dict[str, str]:
    times = {address: at.replace(microsecond=0) for address, at in unbound.items()}
    return {UNBINDS: msgspec.json.encode(times).decode()}


def unbinds_in(annotations: Mapping[str, str]) -> Unbinds:
    """None before there were some, and where another client has written something else."""
    try:
        return {
            address: at for address, at in DECODER.decode(annotations.get(UNBINDS, "{}")).items() if at.tzinfo
        }
    except (msgspec.MsgspecError, ValueError):
        return {}


@dataclass(frozen=True)
class Releases:
    """*unbound* are the addresses that earlier leaders unbound; *confirmed* brings when an operator confirmed more."""

    unbound: Unbinds = field(default_factory=dict)
    confirmed: Callable[[], datetime | None] = lambda: None


def read_releases(client: Client, election: LeaderElection) -> Releases:
    """Without an election, nothing is known of earlier leaders. KubeError."""
    lease = dict[str, str]()
    if election.leader_elect:
        lease = _annotations(client, LEASES, election.resource_name, election.resource_namespace)
    return Releases(unbinds_in(lease), partial(_confirmed, client))


def _confirmed(client: Client) -> datetime | None:
    return confirmed_in(_annotations(client, CONFIG_MAPS, CLUSTER_UUID, NAMESPACE))


def _annotations(client: Client, resource: Resource, name: str, namespace: str) -> dict[str, str]:
    try:
        found: dict[str, Any] = client.get(resource, name, namespace)
    except NotFound:
        return {}
    return found["metadata"].get("annotations") or {}


class Confirmations:
    """Read an operator's confirmation while something waits for it; *enqueue* adds the uid of a node to the queue."""

    def __init__(
        self,
        brake: Brake,
        read: Callable[[], datetime | None],
        enqueue: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._brake, self._read, self._enqueue, self._clock = brake, read, enqueue, clock
        self._next = -math.inf

    def reconcile(self, _: str) -> float:
        if not self._brake.held or self._clock() < self._next:
            return POLL
        self._next = self._clock() + LOOK
        try:
            is_confirmed = self._brake.confirm(self._read())
        except KubeError as error:
            log.warning("confirmation of releases not read", error=str(error))
            return POLL
        for uid in sorted(self._brake.held) if is_confirmed else ():
            self._enqueue(uid)
        return POLL
