"""Whether a pod could run on a super node is found out once, and looked up only for a pod that has claims."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import msgspec
import structlog

from controllers.elasticity.filters import Reach
from controllers.elasticity.pod_requirements import Candidate, candidate
from controllers.elasticity.pods import Pod
from controllers.elasticity.rules import violations
from controllers.elasticity.volumes import Cluster, are_settled, gather, needs, reach
from kube.errors import KubeError

AGAIN = 30.0
"""Seconds after which claims are looked up again: they may be bound by then."""
SOON = 1.0
"""The same after a failure, or while a claim may still be about to be made or bound."""
PATIENCE = 10.0
"""Seconds for which a claim may come, and be bound, after its pod: both are often created in one go."""

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True)
class Found:
    """*reasons* are None until a look has succeeded; *since* the first and *until* the next, on the clock."""

    reasons: tuple[str, ...] | None
    since: float
    until: float
    reach: tuple[Reach, ...] = ()
    """The nodes that its volumes can be used on."""


class Eligibility:
    """Asked by one thread; *hand_out* takes a look-up for another, which calls *wake* when it is over."""

    def __init__(
        self,
        cluster: Cluster,
        excluded_namespaces: Callable[[], tuple[str, ...]],
        *,
        hand_out: Callable[[Callable[[], None]], None],
        wake: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._cluster, self._excluded = cluster, excluded_namespaces
        self._hand_out, self._wake, self._clock = hand_out, wake, clock
        self._found: dict[str, Found] = {}
        self._judged_by = excluded_namespaces()

    def violations(self, pod: Pod) -> tuple[str, ...] | None:
        """None while it is looked up."""
        found = self._found.get(pod.metadata.uid)
        if found is None or found.until <= self._clock():
            self._judge(pod)
        found = self._found.get(pod.metadata.uid)
        return found.reasons if found else None

    def reach(self, pod: Pod) -> tuple[Reach, ...]:
        """Of its volumes, once they were looked up."""
        found = self._found.get(pod.metadata.uid)
        return found.reach if found else ()

    def keep_only(self, uids: Collection[str]) -> None:
        """Forget all others, and all if the rules are others."""
        same, self._judged_by = self._judged_by == self._excluded(), self._excluded()
        for uid in [uid for uid in self._found if uid not in uids or not same]:
            self._found.pop(uid, None)

    def _judge(self, pod: Pod) -> None:
        judged, uid, now = candidate_of(pod), pod.metadata.uid, self._clock()
        if not needs(judged):
            self._found[uid] = Found(violations(judged, {}, self._excluded()), now, math.inf)
            return
        before = self._found.get(uid, Found(None, now, now))
        self._found[uid] = replace(before, until=math.inf)
        self._hand_out(lambda: self._look_up(judged, before))

    def _look_up(self, judged: Candidate, before: Found) -> None:
        uid = judged.metadata.uid
        found = before
        try:
            found = self._looked_up(judged, before)
        except KubeError as error:
            log.warning("claims were not looked up", pod=judged.metadata.name, uid=uid, error=str(error))
        except Exception:
            log.exception("claims were not looked up", pod=judged.metadata.name, uid=uid)
        soonest = self._clock() + SOON
        self._found[uid] = found if found.until > soonest else replace(found, until=soonest)
        self._wake()

    def _looked_up(self, judged: Candidate, before: Found) -> Found:
        wanted = needs(judged)
        claims = gather(wanted, judged.metadata.namespace, self._cluster)
        now = self._clock()
        if not are_settled(wanted, claims) and now - before.since < PATIENCE:
            return before
        reasons = violations(judged, claims, self._excluded())
        return Found(reasons, before.since, now + AGAIN, reach(judged, claims))


def candidate_of(pod: Pod) -> Candidate:
    return candidate(pod.metadata, msgspec.Raw(pod.unbound.spec if pod.unbound else b"{}"))
