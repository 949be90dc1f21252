"""Steps are handed out to threads: as many together as a call can serve, none twice, the failed ones later."""

from __future__ import annotations

import math
import threading
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from cloud.errors import CloudError, ServerFault, Throttled, Unavailable
from cloud.paging import in_halves
from controllers.anycast_ip.cloud_actions import Job, Refused
from controllers.anycast_ip.lanes import Lane, lane_of, pause
from controllers.anycast_ip.node_actions import StillThere
from controllers.anycast_ip.refusals import PERHAPS_FOR_ALL, Refusals
from controllers.anycast_ip.state import Case, Do, Step
from controllers.workqueue import Stopping
from kube.errors import KubeError, Unreachable
from kube.leader_election import LeadershipLost

OF_THE_CALL = (Throttled, Unavailable, ServerFault, Unreachable)
"""Failures that say nothing of any node: the whole job is repeated later."""
TRIED = (Do.WATCH, Do.LOOK, Do.BIND, Do.FIND)
"""Steps that may have to be taken many times, later each time, although none of them fails."""

Steps = Mapping[Do, Callable[[Job], Refused | None]]
Report = Callable[[Case, Do, Exception], None]

log = structlog.stdlib.get_logger(__name__)


class Spoiled(Exception):
    """A step failed for a reason that may be one node's of several."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Dispatch:
    """*hand_out* takes work for another thread; *done* is called, on that thread, when some has been done.

    *failed* reports what failed for a node, *waiting* a refusal of other nodes that a node waits for.
    """

    def __init__(
        self,
        steps: Steps,
        *,
        failed: Report,
        waiting: Report,
        hand_out: Callable[[Callable[[], None]], None],
        done: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._steps, self._failed, self._waiting = steps, failed, waiting
        self._hand_out, self._done, self._clock = hand_out, done, clock
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._running: Tally[Do] = Tally()
        self._started: dict[Do, float] = {}
        self._refusals = Refusals(clock)
        self.lost: LeadershipLost | None = None

    @property
    def busy(self) -> frozenset[str]:
        """The nodes that are taking a step, by uid."""
        with self._lock:
            return frozenset(self._busy)

    def forget(self, uid: str) -> None:
        """The node is gone, and its claim, too."""
        with self._lock:
            self._refusals.forget(uid)

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
            with self._lock:
                ready = list(self._refusals.in_order(do, ready))
            # After a refusal of several nodes, one of them tries for the others.
            size = 1 if self._refusals.is_held(do) else lane.batch
            self._begin(do, ready[:size], now)
            ready = ready[size:]
        later = [case.known.unready[do] for case, _ in wanting if case.known.unready.get(do, now) > now]
        if ready and not self._running[do]:
            later.append(self._free_at(do, lane))
        self._report_waiting(do, ready)
        return min(later, default=math.inf)

    def _report_waiting(self, do: Do, ready: Iterable[tuple[Case, Step]]) -> None:
        for case, _ in ready:
            if error := self._refusals.waits_for(do, case):
                self._waiting(case, do, error)

    def _may_start(self, do: Do, lane: Lane, now: float) -> bool:
        parallel = 1 if self._refusals.is_held(do) else lane.parallel
        return self._running[do] < parallel and self._free_at(do, lane) <= now

    def _free_at(self, do: Do, lane: Lane) -> float:
        return max(self._started.get(do, -math.inf) + lane.distance, self._refusals.free_at(do))

    def _begin(self, do: Do, job: Job, now: float) -> None:
        with self._lock:
            self._busy |= {case.uid for case, _ in job} | {
                case.forebear.uid for case, _ in job if case.forebear
            }
            self._running[do] += 1
            self._started[do] = now
        self._hand_out(lambda: self._run(do, job))

    def _run(self, do: Do, job: Job) -> None:
        """Whatever happens, the lane is free again afterwards."""
        try:
            refused = self._take(do, job)
            for case, _ in job:
                self._note(case, do, refused.get(case.uid))
            self._judge(do, job, refused)
            for case, _ in job:
                if error := refused.get(case.uid):
                    self._failed(case, do, error)
        except LeadershipLost as error:
            self.lost = error
        except Stopping:
            log.info("step not taken, stopping", step=do)
        except Exception:
            log.exception("step result not recorded", step=do)
        finally:
            self._end(do, job)

    def _take(self, do: Do, job: Job) -> Refused:
        """Take the step for all; what fails for one of several does not fail for the others."""
        by_uid = {case.uid: (case, step) for case, step in job}
        left, refused = set(by_uid), dict[str, Exception]()

        def take(uids: Sequence[str]) -> None:
            try:
                refused.update(self._steps[do]([by_uid[uid] for uid in uids]) or {})
            except (LeadershipLost, Stopping, *OF_THE_CALL):
                raise
            except Exception as error:
                raise Spoiled(error) from error
            left.difference_update(uids)

        try:
            spoiled = in_halves(take, list(by_uid), (Spoiled,), general=(Spoiled,))
        except OF_THE_CALL as error:
            return refused | dict.fromkeys(left, error)
        for cause in {id(each.cause): each.cause for each in spoiled.values()}.values():
            if not isinstance(cause, CloudError | KubeError | StillThere):
                log.error("step failed", step=do, exc_info=cause)
        return refused | {uid: each.cause for uid, each in spoiled.items()}

    def _judge(self, do: Do, job: Job, refused: Refused) -> None:
        with self._lock:
            for case, _ in job:
                if isinstance(error := refused.get(case.uid), PERHAPS_FOR_ALL):
                    alone = self._refusals.refused(do, case, error)
                    case.known.unready[do] = max(case.known.unready.get(do, 0.0), self._clock() + alone)
            served = [case for case, _ in job if case.uid not in refused]
            for case in served:
                self._refusals.served(do, case)
            if served and do is Do.RELEASE:  # what was given back may be had again
                self._refusals.try_again(Do.ALLOCATE)

    def _note(self, case: Case, do: Do, error: Exception | None) -> None:
        known = case.known
        if error is None and do not in TRIED:
            known.failures.pop(do, None)
            return
        known.failures[do] += 1
        if isinstance(error, PERHAPS_FOR_ALL):
            return  # whether it waits for itself or with the others is judged with them
        known.unready[do] = max(known.unready.get(do, 0.0), self._clock() + pause(do, known.failures[do]))

    def _end(self, do: Do, job: Job) -> None:
        with self._lock:
            self._busy -= {case.uid for case, _ in job}
            self._busy -= {case.forebear.uid for case, _ in job if case.forebear}
            self._running[do] -= 1
        self._done()
