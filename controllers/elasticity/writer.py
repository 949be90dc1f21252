"""What was decided counts until the cluster shows it, and is written meanwhile.

Each action is written for the version it was decided on; one of unknown outcome is repeated, never replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import structlog

from controllers.elasticity.patches import TO_SUPER_NODES, Action, Kind
from controllers.elasticity.pods import keep_only
from controllers.elasticity.reporter import Reporter
from controllers.elasticity.sources import PodCache
from controllers.workqueue import WorkQueue
from kube.errors import ApiError, Backoff, Conflict, KubeError, NotFound, ServerError
from runtime import threading

PAUSES = Backoff(base=0.2, cap=30.0)
"""Between two attempts at one pod."""

log = structlog.stdlib.get_logger(__name__)


class Assumptions:
    """One action for each pod at most; safe to share between threads.

    Read it before the pods: an action goes after its outcome is known there.
    """

    def __init__(self) -> None:
        self._actions: dict[str, Action] = {}
        self._by_key: dict[str, dict[str, Action]] = {}
        self._lock = threading.Lock()

    def get(self, uid: str) -> Action | None:
        return self._actions.get(uid)

    def of(self, key: str) -> Mapping[str, Action]:
        """By uid, those of the pods of *key*."""
        with self._lock:
            return dict(self._by_key.get(key, {}))

    def to_super_nodes(self) -> Sequence[Action]:
        with self._lock:
            return [action for action in self._actions.values() if action.kind in TO_SUPER_NODES]

    def assume(self, action: Action) -> None:
        with self._lock:
            self._actions[action.uid] = action
            self._by_key.setdefault(action.pod.key, {})[action.uid] = action

    def forget(self, action: Action) -> None:
        """It was seen, or did not come about."""
        key = action.pod.key
        with self._lock:
            self._actions.pop(action.uid, None)
            of_key = self._by_key.get(key, {})
            of_key.pop(action.uid, None)
            if not of_key:
                self._by_key.pop(key, None)


class Writer:
    """*queue* holds uids of pods; *enqueue* is called with the key of a pod that must be decided on again."""

    def __init__(
        self,
        pods: PodCache,
        reporter: Reporter,
        queue: WorkQueue,
        enqueue: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._pods, self._reporter = pods, reporter
        self.assumptions = Assumptions()
        self._queue, self._enqueue = queue, enqueue
        self._clock = clock
        self.short: set[str] = set()
        """The keys whose last decision found no room; they are decided again when some is given back."""
        self._refusals: dict[str, tuple[int, float]] = {}
        """By uid: how many in a row, and until when the pod rests."""

    def rests(self, uid: str) -> float:
        """For how many seconds the pod is not to be written to, because a write was refused."""
        return max(0.0, self._refusals.get(uid, (0, 0.0))[1] - self._clock())

    def keep_only(self, uids: Callable[[], Collection[str]]) -> None:
        keep_only(self._refusals, uids)

    def give_back(self) -> None:
        """There may be room again."""
        for key in list(self.short):
            self._enqueue(key)

    def start(self, actions: Iterable[Action]) -> None:
        """Assume all of them, then write."""
        begun = list(actions)
        for action in begun:
            self.assumptions.assume(action)
        for action in begun:
            self._queue.add(action.uid)

    def reconcile(self, uid: str) -> float | None:
        """Write what is assumed of a pod; the seconds after which to repeat it when the outcome is unknown."""
        action = self.assumptions.get(uid)
        if action is not None and action.kind is Kind.WAIT:
            self._say(action)
            return None
        return self._try(action) if action else None

    def _say(self, action: Action) -> None:
        """An explanation holds no place: what is decided meanwhile takes its, and one that fails is decided again."""
        try:
            self._write(action)
        except Conflict:
            self._pods.refresh(action.pod)
        except KubeError as error:
            at = action.pod.metadata
            log.warning("reason not written", namespace=at.namespace, name=at.name, error=str(error))
        if self.assumptions.get(action.uid) is action:
            self.assumptions.forget(action)

    def _try(self, action: Action) -> float | None:
        try:
            self._write(action)
        except Conflict:
            self._pods.refresh(action.pod)  # another client has written, or we have, without an answer
            self._give_up(action)
        except NotFound:
            self._give_up(action)
        except KubeError as error:
            # what is refused now may have arrived before
            if isinstance(error, ServerError) or not isinstance(error, ApiError) or action.doubts:
                return self._doubt(action, error)
            self._refuse(action, error)
        else:
            self._refusals.pop(action.uid, None)
            self.assumptions.forget(action)
            self._reporter.done(action)
        return None

    def _write(self, action: Action) -> None:
        if action.kind is Kind.DELETE:
            self._pods.delete(action.pod)
        elif action.patch is not None:
            self._pods.patch(action.pod, action.patch)

    def _doubt(self, action: Action, error: KubeError) -> float:
        at, doubts = action.pod.metadata, action.doubts + 1
        log.warning("write has unknown outcome", namespace=at.namespace, name=at.name, error=str(error))
        self.assumptions.assume(replace(action, doubts=doubts))
        return PAUSES.delay(doubts)

    def _refuse(self, action: Action, error: ApiError) -> None:
        count = self._refusals.get(action.uid, (0, 0.0))[0] + 1
        pause = max(PAUSES.delay(count), min(error.retry_after or 0.0, PAUSES.cap))
        self._refusals[action.uid] = count, self._clock() + pause
        self._reporter.refused(action, error)
        self._give_up(action)

    def _give_up(self, action: Action) -> None:
        self.assumptions.forget(action)
        self._enqueue(action.pod.key)
        self.give_back()
