"""Read what the brake rests on: how many addresses earlier leaders unbound, and whether an operator confirms more."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import structlog

from controllers.anycast_ip.brake import Unbinds, confirmed_in, unbinds_in
from controllers.anycast_ip.claim import CLUSTER_UUID
from controllers.anycast_ip.claim_store import CONFIG_MAPS, NAMESPACE
from controllers.anycast_ip.sources import Sources
from kube.client import Client, Resource
from kube.errors import KubeError, NotFound
from kube.resources import LEASES
from settings import LeaderElection

LOOK = 10.0
"""Seconds from one look for an operator's word to the next, while something waits for it."""

log = structlog.stdlib.get_logger(__name__)


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


class BrakeWatch:
    """Look for an operator's word with *read*, while something waits for it; *enqueue* adds a uid to the work queue."""

    def __init__(
        self, sources: Sources, read: Callable[[], datetime | None], enqueue: Callable[[str], None]
    ) -> None:
        self._brake, self._clock = sources.memory.brake, sources.memory.clocks.monotonic
        self._read, self._enqueue = read, enqueue
        self._next = -math.inf

    def turn(self) -> None:
        """What is due."""
        if not self._brake.held or self._clock() < self._next:
            return
        self._next = self._clock() + LOOK
        try:
            is_confirmed = self._brake.confirm(self._read())
        except KubeError as error:
            log.warning("confirmation of releases not read", error=str(error))
            return
        for uid in sorted(self._brake.held) if is_confirmed else ():
            self._enqueue(uid)
