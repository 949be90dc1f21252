"""The parts of the feature, put together; nothing runs yet."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from controllers.elasticity.decision import Rejections
from controllers.elasticity.eligibility import Eligibility
from controllers.elasticity.event_handlers import EventHandlers
from controllers.elasticity.nodes import Outages
from controllers.elasticity.quota import Quota
from controllers.elasticity.reconciler import Reconciler, SuperNodeState
from controllers.elasticity.reporter import Reporter
from controllers.elasticity.snapshot import Sources
from controllers.elasticity.takeover import Takeover
from controllers.elasticity.upkeep import Upkeep
from controllers.elasticity.writer import PAUSES, Writer
from controllers.workqueue import WorkQueue
from kube.backoff import Backoff
from kube.client import Client
from kube.event_recorder import EventRecorder

FENCE_PAUSES = Backoff(base=0.2, cap=5.0)


@dataclass(frozen=True)
class Clock:
    """*seconds* are monotonic, *now* is the time of day."""

    seconds: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


class Elasticity:
    """Keys are decided on, and pods written to and fenced, by three queues."""

    def __init__(
        self, sources: Sources, client: Client, recorder: EventRecorder, clock: Clock | None = None
    ) -> None:
        clock = clock or Clock()
        self.keys = WorkQueue("elasticity", clock=clock.seconds)
        self.writes = WorkQueue("elasticity-writes", pauses=PAUSES, clock=clock.seconds)
        self.fences = WorkQueue("elasticity-takeover", pauses=FENCE_PAUSES, clock=clock.seconds)
        limits = sources.settings().max_super_pods
        self.takeover = Takeover(
            sources.pods,
            f"{os.environ.get('POD_NAME', 'controllers')}_{secrets.token_hex(4)}",
            self.keys.add,
            is_limited=bool(limits.total or limits.per_namespace),
            clock=clock.seconds,
        )
        quota = Quota(self.keys.add)
        reporter = Reporter(recorder, clock.now)
        eligibility = Eligibility(client, lambda: sources.settings().excluded_namespaces, clock.seconds)
        self.writer = Writer(sources.pods, quota, reporter, self.writes, self.keys.add, clock.seconds)
        state = SuperNodeState(quota, eligibility, Outages(clock.seconds), Rejections(clock.seconds))
        self.reconciler = Reconciler(sources, self.takeover, self.writer, state, reporter, clock.now)
        self.handlers = EventHandlers(sources, quota, self.keys.add)
        self.upkeep = Upkeep(sources, self.handlers, reporter, eligibility, self.writer)
        for uid in self.takeover.due:
            self.fences.add(uid)
