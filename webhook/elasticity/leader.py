"""The webhooks of elasticity, and how long there has been no leader.

Its Lease says so, read at most every few seconds and only when a pod needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec
import structlog

from kube.client import Client
from kube.errors import KubeError
from kube.lease_spec import Observed, expired_for, first_seen, observe, spec_of
from kube.resources import LEASES
from runtime import threading, time, utc_now
from settings import ElasticitySettings, LeaderElection
from webhook.admission import Webhook
from webhook.elasticity.daemon_sets import DaemonSetWebhook
from webhook.elasticity.webhook import PlacementWebhook
from webhook.replica import Replica

REFRESH = 5.0
"""Seconds for which what was read is believed; longer where a leader takes longer to renew its Lease."""
READ_TIMEOUT = 1.0

log = structlog.stdlib.get_logger(__name__)


def webhooks(replica: Replica) -> Sequence[Webhook]:
    def settings() -> ElasticitySettings:
        return replica.settings().elasticity

    leader = LeaseReader(replica.client, lambda: replica.settings().leader_election, now=replica.now)
    return PlacementWebhook(settings, leader.absence), DaemonSetWebhook(settings)


class LeaseReader:
    """Safe to share between threads; *clock* is monotonic, *now* is the time of day."""

    def __init__(
        self,
        client: Client,
        election: Callable[[], LeaderElection],
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._client, self._election, self._clock, self._now = client, election, clock, now
        self._reading = threading.Lock()
        self._observed: Observed | None = None
        self._absence = 0.0
        self._next_read = 0.0

    def absence(self, deadline: float) -> float:
        """Seconds since the leader's Lease expired; 0 while it is held, and while that is not known.

        One request in a few seconds reads the Lease; the others wait for it only where all that is known is an absence
        of long ago: no pod has needed the Lease since, and there may be a leader. *deadline* is of this clock.
        """
        election = self._election()
        if not election.leader_elect:
            return 0.0
        is_outdated = self._absence > 0 and self._clock() >= self._next_read + REFRESH
        patience = max(0.0, min(READ_TIMEOUT, deadline - self._clock()))
        if self._reading.acquire(timeout=patience) if is_outdated else self._reading.acquire(blocking=False):
            try:
                if self._clock() >= self._next_read:
                    self._read(election, deadline)
            finally:
                self._reading.release()
        return self._absence

    def _read(self, election: LeaderElection, deadline: float) -> None:
        """A Lease that cannot be read says nothing: what was known before stays."""
        name, namespace = election.resource_name, election.resource_namespace
        timeout = min(READ_TIMEOUT, max(0.1, deadline - self._clock()))
        try:
            # One that is not there is expired as soon as it is seen.
            spec = spec_of(self._client.find(LEASES, name, namespace, timeout=timeout) or {})
        except (KubeError, msgspec.ValidationError) as error:
            log.warning("leader lease not read", lease=election.resource_name, error=str(error))
        else:
            now = self._clock()
            if self._observed is None:
                # What this says depends on the clocks of two machines, until the record has stayed as it is.
                self._observed = first_seen(spec, now, self._now())
            else:
                self._observed = observe(self._observed, spec, now)
                self._absence = expired_for(self._observed, now)
        self._next_read = self._clock() + max(REFRESH, 2 * election.retry_period)
