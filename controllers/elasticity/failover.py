"""A pod that super nodes do not take is given up, so that the one which replaces it may stay at home."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from controllers.elasticity.pods import Pod
from settings.elasticity import HomeFailover
from webhook.elasticity import SUPER

NOBODY_REPLACES_IT = "Super nodes do not take it, and nobody would replace it: delete it, or make room there"


def stranded(pods: Iterable[Pod], settings: HomeFailover, now: datetime) -> list[Pod]:
    """Those that were sent to super nodes and for which there has been no room there for too long."""
    if not settings.enabled:
        return []
    longest = now - timedelta(seconds=settings.home_after)
    return [pod for pod in pods if pod.placed == SUPER and pod.stuck_since and pod.stuck_since <= longest]


class Refusals:
    """Whose pods super nodes are known not to take, for a while; *clock* is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def note(self, key: str, seconds: float) -> None:
        now = self._clock()
        self._until = {held: until for held, until in self._until.items() if until > now}
        self._until[key] = now + seconds

    def known(self, key: str) -> bool:
        return self._until.get(key, 0.0) > self._clock()
