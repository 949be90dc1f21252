"""Whether a rollout stands still because a pod of its newer revision waits for a cap.

A workload that may miss no pod keeps those of the older revision until one more of the newer one is ready. Where they
fill the cap, each revision would wait for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta

from controllers.elasticity.pods import Pod, keep_only

PATIENCE = 60.0
"""Seconds for which a rollout stands still before one of its pods is local instead; also those by which a pod may
outlive its grace period before it no longer counts as leaving."""


def stands_still(pods: Iterable[Pod], key: str, deciding: Collection[str], now: datetime) -> bool:
    """Whether nothing moves: others than those of *key* are ready, none is leaving, and none of *key* is starting.

    *pods* are all of a workload, *deciding* the uids of those whose placement is being written.
    """
    pods = [pod for pod in pods if not pod.finished]
    active = [pod for pod in pods if pod.active]
    if not any(pod.ready for pod in active if pod.key != key):
        return False
    own = [pod for pod in active if pod.key == key]
    is_starting = any(pod.metadata.uid in deciding or not (pod.gated or pod.ready) for pod in own)
    return not is_starting and not any(_is_leaving(pod, now) for pod in pods)


class Standstills:
    """For how long the rollout of each key has stood still, as this leader saw it; *clock* is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    def observe(self, key: str, *, is_still: bool) -> float:
        """The seconds until now."""
        if not is_still:
            self._since.pop(key, None)
            return 0.0
        return self._clock() - self._since.setdefault(key, self._clock())

    def keep_only(self, keys: Callable[[], Collection[str]]) -> None:
        keep_only(self._since, keys)


def _is_leaving(pod: Pod, now: datetime) -> bool:
    ends = pod.metadata.deletion_timestamp
    return ends is not None and now < ends + timedelta(seconds=PATIENCE)
