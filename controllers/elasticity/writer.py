"""What was decided counts until the cluster shows it, and is written meanwhile.

Each action is written for the version it was decided on; one of unknown outcome is repeated, and replaced only when it
is refused so long afterwards that it cannot arrive any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import itemgetter

import structlog

from controllers.elasticity.patches import Action, Kind
from controllers.elasticity.reporter import Reporter
from controllers.elasticity.sources import PodCache
from controllers.elasticity.takeover import LONGEST
from controllers.workqueue import WorkQueue
from kube.errors import ApiError, Backoff, Conflict, KubeError, NotFound, ServerError

PAUSES = Backoff(base=0.2, cap=30.0)
"""Between two attempts at one pod."""
NONE = 0, 0.0, False
DENIALS, NOT_ALLOWED = 3, "cannot patch resource"
"""Refusals in a row after which a pod stays local; and how RBAC words its own."""

log = structlog.stdlib.get_logger(__name__)


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
        self.assumed: dict[str, Action] = {}
        """One action for each pod at most, by uid. To be copied before pods are read: it goes when they show it."""
        self._queue, self._enqueue, self._clock = queue, enqueue, clock
        self.short: dict[str, tuple[float, int, str]] = {}
        """The keys whose last decision found no room, by when the first pod that waits was born.

        They are decided again when some is given back.
        """
        self._refusals: dict[str, tuple[int, float, bool]] = {}
        """By uid: how many in a row, until when the pod rests, and whether policies keep it off super nodes."""
        self.by_uid = (self._refusals,)

    def rests(self, uid: str) -> float:
        """For how many seconds the pod is not to be written to, because a write was refused."""
        return max(0.0, self._refusals.get(uid, NONE)[1] - self._clock())

    def denied(self, uid: str) -> bool:
        """Whether it gets no super node, for more than want of permissions."""
        count, _, is_denied = self._refusals.get(uid, NONE)
        return is_denied and count >= DENIALS

    def give_back(self) -> None:
        """There may be room again."""
        for key, _ in sorted(self.short.copy().items(), key=itemgetter(1)):
            self._enqueue(key)

    def start(self, actions: Iterable[Action]) -> None:
        """Assume all of them, then write."""
        begun = {action.uid: action for action in actions}
        self.assumed.update(begun)
        for uid in begun:
            self._queue.add(uid)

    def reconcile(self, uid: str) -> float | None:
        """Write what is assumed of a pod; the seconds after which to repeat it when the outcome is unknown.

        An explanation holds no place: what is decided meanwhile takes its, and one that fails is decided again.
        """
        if (action := self.assumed.get(uid)) is None:
            return None
        try:
            self._write(action)
        except Conflict:
            self._pods.refresh(action.pod)  # another client has written, or we have, without an answer
            self._give_up(action)
        except NotFound:
            self._pods.forget(action.pod)
            self._give_up(action)
        except KubeError as error:
            if action.kind is Kind.WAIT:
                log.warning("reason not written", **action.pod.metadata.about, error=str(error))
                self._forget(action)
            elif isinstance(error, ServerError) or not isinstance(error, ApiError):
                return self._doubt(action, error, self._clock() + LONGEST)
            elif self._clock() < action.doubtful_until:
                # what is refused now may have arrived before
                return self._doubt(action, error, action.doubtful_until)
            else:
                if action.doubts:
                    self._pods.refresh(action.pod)  # the watch may not have shown yet that one arrived
                self._refuse(action, error)
        else:
            self._refusals.pop(uid, None)
            self._forget(action)
            self._reporter.done(action)
        return None

    def _write(self, action: Action) -> None:
        if action.kind is Kind.DELETE:
            self._pods.delete(action.pod)
        elif action.patch is not None:
            self._pods.patch(action.pod, action.patch)

    def _doubt(self, action: Action, error: KubeError, until: float) -> float:
        """The seconds after which to repeat it."""
        log.warning("write has unknown outcome", **action.pod.metadata.about, error=str(error))
        doubts = action.doubts + 1
        self.assumed[action.uid] = replace(action, doubts=doubts, doubtful_until=until)
        return PAUSES.delay(doubts)

    def _refuse(self, action: Action, error: ApiError) -> None:
        count = self._refusals.get(action.uid, NONE)[0] + 1
        pause = max(PAUSES.delay(count), error.retry_after)
        by_policy = error.status in (400, 403, 422) and NOT_ALLOWED not in error.message
        is_denied = action.kind is Kind.SUPER and by_policy
        self._refusals[action.uid] = count, self._clock() + pause, is_denied
        self._reporter.refused(action, error)
        self._give_up(action)

    def _forget(self, action: Action) -> None:
        if self.assumed.get(action.uid) is action:
            del self.assumed[action.uid]

    def _give_up(self, action: Action) -> None:
        self._forget(action)
        # No handler is called for what was read: the pod may have another owner now, or another pod its name.
        for key in {pod.key for pod in (action.pod, self._pods.named_as(action.pod)) if pod}:
            self._enqueue(key)
        self.give_back()
