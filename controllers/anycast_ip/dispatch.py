"""Steps are handed out to threads: as many together as a call can serve, none twice, the failed ones later."""

from __future__ import annotations

import math
import threading
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from cloud.errors import CloudError, NotPermitted, QuotaExceeded
from controllers.anycast_ip.case import Case, Do, Step
from controllers.anycast_ip.in_cloud import Job, Refused
from controllers.anycast_ip.in_cluster import StillThere
from controllers.anycast_ip.lanes import NO_USE, Lane, lane_of, pause
from kube.errors import KubeError
from kube.lease import LeadershipLost

FOR_ALL = (QuotaExceeded, NotPermitted)
"""What stands in the way of all nodes when it does of one."""
TRIED = (Do.WATCH, Do.LOOK, Do.BIND, Do.FIND)
"""Steps that may have to be taken many times, later each time, although none of them fails."""

Steps = Mapping[Do, Callable[[Job], Refused | None]]

log = structlog.stdlib.get_logger(__name__)


class Dispatch:
    """*hand_out* takes work for another thread; *done* is called, on that thread, when some has been done."""

    def __init__(
        self,
        steps: Steps,
        *,
        failed: Callable[[Case, Do, Exception], None],
        hand_out: Callable[[Callable[[], None]], None],
        done: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._steps, self._failed, self._hand_out = steps, failed, hand_out
        self._done, self._clock = done, clock
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._running: Tally[Do] = Tally()
        self._started: dict[Do, float] = {}
        self._held: dict[Do, float] = {}
        self._holds: Tally[Do] = Tally()
        self.lost: LeadershipLost | None = None

    @property
    def busy(self) -> frozenset[str]:
        """The nodes that are taking a step, by uid."""
        with self._lock:
            return frozenset(self._busy)

    def start(self, planned: Iterable[tuple[Case, Step]]) -> float:
        """Hand out what can be; returns when more can, on the clock, even if nothing is done until then."""
        by_step: dict[Do, list[tuple[Case, Step]]] = {}
        for case, step in planned:
            if step.do is not Do.NOTHING:
                by_step.setdefault(step.do, []).append((case, step))
        return min((self._start(do, job) for do, job in by_step.items()), default=math.inf)

    def _start(self, do: Do, wanting: Sequence[tuple[Case, Step]]) -> float:
        now, lane = self._clock(), lane_of(do)
        ready = [each for each in wanting if each[0].known.unready.get(do, now) <= now]
        while ready and self._may_start(do, lane, now):
            self._begin(do, ready[: lane.batch], now)
            ready = ready[lane.batch :]
        later = [case.known.unready[do] for case, _ in wanting if case.known.unready.get(do, now) > now]
        if ready and not self._running[do]:
            later.append(self._free_at(do, lane))
        return min(later, default=math.inf)

    def _may_start(self, do: Do, lane: Lane, now: float) -> bool:
        # After a refusal that goes for all nodes, one of them tries for the others.
        parallel = 1 if self._holds[do] else lane.parallel
        return self._running[do] < parallel and self._free_at(do, lane) <= now

    def _free_at(self, do: Do, lane: Lane) -> float:
        return max(self._started.get(do, -math.inf) + lane.distance, self._held.get(do, -math.inf))

    def _begin(self, do: Do, job: Job, now: float) -> None:
        with self._lock:
            self._busy |= {case.uid for case, _ in job} | {
                case.forebear.uid for case, _ in job if case.forebear
            }
            self._running[do] += 1
            self._started[do] = now
        self._hand_out(lambda: self._run(do, job))

    def _run(self, do: Do, job: Job) -> None:
        refused: Refused = {}
        try:
            refused = self._steps[do](job) or {}
        except LeadershipLost as error:
            self.lost = error
        except Exception as error:
            if not isinstance(error, CloudError | KubeError | StillThere):
                log.exception("a step failed", step=do)
            refused = {case.uid: error for case, _ in job}
        self._hold(do, refused.values())
        for case, _ in job:
            self._note(case, do, refused.get(case.uid))
        self._end(do, job)

    def _hold(self, do: Do, errors: Iterable[Exception]) -> None:
        with self._lock:
            if any(isinstance(error, FOR_ALL) for error in errors):
                now = self._clock()
                if self._held.get(do, -math.inf) <= now:  # others that were under way say no more than it
                    self._holds[do] += 1
                    self._held[do] = now + NO_USE.delay(self._holds[do])
                return
            self._holds.pop(do, None)
            if do is Do.RELEASE:  # what was given back may be had again
                self._held.pop(Do.ALLOCATE, None)

    def _note(self, case: Case, do: Do, error: Exception | None) -> None:
        known = case.known
        if error is None and do not in TRIED:
            known.failures.pop(do, None)
            return
        known.failures[do] += 1
        known.unready[do] = max(known.unready.get(do, 0.0), self._clock() + pause(do, known.failures[do]))
        if error:
            self._failed(case, do, error)

    def _end(self, do: Do, job: Job) -> None:
        with self._lock:
            self._busy -= {case.uid for case, _ in job}
            self._busy -= {case.forebear.uid for case, _ in job if case.forebear}
            self._running[do] -= 1
        self._done()
