"""Keep the match condition by which the API server does not ask for the deletion of marked pods.

The condition has the epoch of the marks that count. One that is missing is written with a new epoch: with a webhook
configuration that was deleted, reservations went, too. While standing reservations are off, it is
removed, which makes all marks void at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from api.standing import epoch_in, keys_of, owner_of, with_epoch
from controllers.controller import Clock, Controller, Watch
from controllers.ip_reservation.caches import Caches
from controllers.ip_reservation.calls import PAUSES
from controllers.workqueue import WorkQueue
from kube.client import Client
from kube.resources import VALIDATING_WEBHOOKS
from kube.types import OwnerReference, Pod
from runtime import secrets

KEY = "epoch"
PERIOD = 5.0
"""Seconds within which a configuration that was created again gets its condition."""
PROPAGATION = 10.0
"""Seconds until each API server goes by a webhook configuration that was changed."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Epoch:
    """*owner* is the webhook configuration that has it."""

    value: str
    owner: OwnerReference


class EpochReconciler:
    """*current* is the epoch in which marks are written; None while none is known to be in force."""

    def __init__(
        self, client: Client, name: str, caches: Caches, is_enabled: Callable[[], bool], clock: Clock
    ) -> None:
        self._client, self._name, self._is_enabled, self._clock = client, name, is_enabled, clock
        self.caches = caches
        self._void_since = math.inf
        self.current: Epoch | None = None
        self.known: set[str] = set()
        """Epochs that this installation has had, as far as this process knows."""
        self._queue = WorkQueue("ip_reservation_epoch", pauses=PAUSES)

    def look(self) -> None:
        """Now: what the configuration owns has gone."""
        self._queue.add(KEY)

    def controller(self) -> Controller:
        watch = Watch(self.caches.pods, self.observe)
        return Controller(self._queue, self.reconcile, watch, first=[KEY])

    def observe(self, _old: Pod | None, new: Pod | None) -> Iterable[str]:
        """Its reservations are relied on, also when another leader wrote the mark."""
        claims = self.caches.claims
        if new is None or new.finished:
            return ()
        if claims.has_mark_in_force(new):
            claims.found_marked(new.metadata.uid, keys_of(new))
        return ()

    def reconcile(self, _key: str) -> float:
        """Raises KubeError when it is to be tried again."""
        found = self._client.find(VALIDATING_WEBHOOKS, self._name)
        if found is None:
            self._found(None)
            return PERIOD
        epoch = epoch_in(found) or secrets.token_hex(8) if self._is_enabled() else None
        wanted = with_epoch(found, epoch)
        if wanted != found:
            found = self._client.replace(VALIDATING_WEBHOOKS, self._name, wanted)
            log.info("match condition written", name=self._name, epoch=epoch or "")
        self._found(Epoch(epoch, owner_of(found)) if epoch and epoch_in(found) == epoch else None)
        return PERIOD

    def _found(self, epoch: Epoch | None) -> None:
        self.current, claims = epoch, self.caches.claims
        if epoch is not None:
            self._void_since = math.inf
            self.known.add(epoch.value)
            claims.begin(epoch.value, epoch.owner)
            return
        now = self._clock.monotonic()
        self._void_since = min(self._void_since, now)
        if now - self._void_since >= PROPAGATION:
            claims.end()
