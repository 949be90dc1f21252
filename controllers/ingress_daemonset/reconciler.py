"""One IngressDaemonSet after the other, in one thread: gather, plan, write, and only then look again.

So budgets are exact: whatever was written before counts, by its answer or, while none has come, as uncertain.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
import structlog
from prometheus_client import Histogram

from controllers.ingress_daemonset.confirmation import Readings
from controllers.ingress_daemonset.copies import NAMESPACE, NAMESPACED, RESOURCES, Books
from controllers.ingress_daemonset.drift import Altered
from controllers.ingress_daemonset.field_managers import Managed, alteration
from controllers.ingress_daemonset.node_rollout import Site
from controllers.ingress_daemonset.planner import Plan, plan
from controllers.ingress_daemonset.readings import Reader, checkers_of
from controllers.ingress_daemonset.reporter import Reporter
from controllers.ingress_daemonset.writer import CALL_TIMEOUT, Writer
from kube.client import Client
from kube.errors import KubeError
from kube.types import ObjectMeta
from settings import IngressDaemonSetSettings
from webhook.ingress_daemonset.types import IngressDaemonSet

PLAN_SECONDS = Histogram(
    "drawbridge_ingress_daemonset_plan_seconds",
    "To decide what is to be done for one IngressDaemonSet.",
    buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
)

COMPANY = 0.02
"""Seconds between two looks at least, in which changes that come together gather."""
LOAD = 2.0
"""A look is followed by a pause of so many times the length of its plan, in which others get the processor."""
STATUS_PERIOD = 1.0
"""Seconds between two writes of a status, at least: each goes to all who watch."""
STRANGERS_PERIOD = 15.0
"""Seconds after which an object that is not ours, though its name should be, is read again: it is not followed."""

Settings = Callable[[], IngressDaemonSetSettings]

log = structlog.stdlib.get_logger(__name__)


@dataclass
class Past:
    """What is remembered of an IngressDaemonSet, to be fast and not too fast; times are on the clock."""

    took: float = 0.0
    status_at: float = -STATUS_PERIOD
    sites: Sequence[Site] = ()
    altered: frozenset[str] = frozenset()
    """Digests of what Events have been about: the same for all nodes that are altered in the same way."""


@dataclass
class Reconciler:
    client: Client
    books: Books
    writer: Writer
    reporter: Reporter
    reader: Reader
    settings: Settings
    check: Callable[[], None]
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _past: dict[str, Past] = field(default_factory=dict)

    def pace(self, key: str) -> float:
        """Seconds to wait after a change of *key* before it is looked at."""
        past = self._past.get(key)
        return max(COMPANY, LOAD * past.took if past else 0.0)

    def reconcile(self, key: str) -> float | None:
        """Seconds until the next look; None when only a change is worth one. KubeError, LeadershipLost."""
        self.writer.settle()
        resource = self.books.resources.get(key)
        if resource is None:
            self._past.pop(key, None)
            self.reporter.forget(key)
            self.writer.troubles.forget(key)
            return None
        past = self._past.setdefault(key, Past())
        strangers = self._meet_strangers()
        readings, more = self.reader.look(checkers_of(past.sites))
        decided = self.clock()
        planned = self._plan(resource, past, readings)
        learned = self.writer.carry_out(resource.metadata, planned.steps, decided)
        past.altered = frozenset(self._explained(resource.metadata, planned.altered, past.altered))
        later = (
            self.pace(key) if learned else None,
            strangers,
            more,
            self.writer.retry_after(resource.metadata, planned.actions),
            self._tell(resource, planned, past),
            self._until(planned.look_again_at),
        )
        soonest = min((each for each in later if each is not None), default=None)
        return None if soonest is None else max(soonest, self.pace(key))

    def _plan(self, resource: IngressDaemonSet, past: Past, readings: Readings) -> Plan:
        namespace, books = resource.metadata.namespace, self.books
        began = self.clock()
        planned = plan(
            resource,
            books.nodes.list(),
            books.deployments.by_index(NAMESPACE, namespace),
            books.daemonsets.by_index(NAMESPACE, namespace),
            self.now(),
            roles=books.roles.by_index(NAMESPACE, namespace),
            bindings=books.bindings.by_index(NAMESPACE, namespace),
            checker=self.settings().health_checker,
            writes=self.writer.writes(namespace),
            before=past.sites,
            readings=readings,
        )
        past.took, past.sites = self.clock() - began, planned.sites
        PLAN_SECONDS.observe(past.took)
        return planned

    def _explained(
        self, owner: ObjectMeta, altered: Sequence[Altered], known: frozenset[str]
    ) -> Iterator[str]:
        """Say once of each alteration which fields it is about; the digests of those that are explained."""
        for digest, each in {each.digest: each for each in altered}.items():
            if digest in known or self._explain(owner, each):
                yield digest

    def _explain(self, owner: ObjectMeta, altered: Altered) -> bool:
        """Whether the object could be read: it is not kept with its managed fields, which are most of it."""
        kind, name = altered.kind, altered.name
        try:
            raw = self.client.get(
                RESOURCES[kind], name, owner.namespace, type=msgspec.Raw, timeout=CALL_TIMEOUT
            )
            found = alteration(msgspec.json.decode(raw, type=Managed))
        except (KubeError, msgspec.MsgspecError) as error:
            log.warning("managed fields cannot be read", kind=kind, name=name, error=str(error))
            return False
        self.reporter.altered(owner, altered, found)
        return True

    def _meet_strangers(self) -> float | None:
        """Read again what nobody tells us of; seconds until the next time, if there is any."""
        now = self.clock()
        due = {
            (kind, key): read_at + STRANGERS_PERIOD - now
            for kind in NAMESPACED
            for key, read_at in self.books.of(kind).strangers().items()
        }
        for kind, key in [each for each, left in due.items() if left <= 0]:
            self.writer.look(kind, *key.split("/"))
        return max(COMPANY, min(due.values())) if due else None

    def _tell(self, resource: IngressDaemonSet, planned: Plan, past: Past) -> float | None:
        """Write the status, if it is another, and not too often; seconds until there is more to tell."""
        if planned.status is None:
            return None
        reminder = self.reporter.wait(
            resource, planned.unconfirmed, self.settings().detachment_reminder, self.now()
        )
        if planned.status == resource.reported:
            self.reporter.show(resource, planned)
            return reminder
        if (left := past.status_at + STATUS_PERIOD - self.clock()) > 0:
            return left
        past.status_at = self.clock()
        self._write_status(resource, planned.status)
        self.reporter.show(resource, planned)
        self.reporter.tell(resource, planned.status)
        return reminder

    def _write_status(self, resource: IngressDaemonSet, status: object) -> None:
        """Without what evictions are handed over by: it is written as part of the plan, or by the webhook."""
        self.check()
        at = resource.metadata
        written = self.client.patch(
            RESOURCES["IngressDaemonSet"].sub("status"),
            at.name,
            {"metadata": {"uid": at.uid}, "status": status},
            at.namespace,
            type=msgspec.Raw,
            timeout=CALL_TIMEOUT,
        )
        self.books.resources.wrote(written)

    def _until(self, moment: datetime | None) -> float | None:
        return None if moment is None else max(0.0, (moment - self.now()).total_seconds())
