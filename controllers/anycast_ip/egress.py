"""Checks that traffic of a closed node leaves with its address, before the node opens: one at a time for each node.

A result counts for the node that waits, the address that is bound to it, and the pod that this process has created
since: pods have random tokens in their names, and only pods with tokens that are awaited here count. All other pods, of
an earlier leader or of a check that is over, are deleted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from controllers.anycast_ip.egress_pod import Outcome, ProbePod, outcome_of, waits_for
from controllers.anycast_ip.snapshot import Checked, Egress
from kube.errors import Backoff
from runtime import threading, uuid4

PAUSES = Backoff(base=10.0, cap=300.0)
"""From a check that failed to the next."""


@dataclass(frozen=True)
class Check:
    """Of one address by one service, while its node waits. *token* is that of the pod that is awaited, if any.

    The pod was *created* at that time, None before it certainly exists. After *failures* in a row, the next one begins
    *not_before*.
    """

    of: Checked
    token: str = ""
    created: float | None = None
    passed: bool = False
    trouble: str = ""
    failures: int = 0
    not_before: float = -math.inf


def judged(check: Check, pod: ProbePod | None, looked_at: float, timeout: float) -> Outcome | None:
    """What became of *check*, whose pod was read, or missed, in a list from *looked_at*; None while it runs."""
    if pod and (outcome := outcome_of(pod)):
        return outcome
    if check.created is None or looked_at <= check.created:
        return None
    if pod is None:
        return Outcome("no result", "its pod was deleted before it ended")
    if looked_at - check.created >= timeout:
        return Outcome("no result", f"its pod has not ended in {timeout:g} s: {waits_for(pod)}")
    return None


def decided(check: Check, outcome: Outcome, now: float) -> Check:
    """*check* after its pod; its trouble stays until another one passes."""
    if outcome.result == "passed":
        return replace(check, token="", created=None, passed=True, trouble="")
    failures = check.failures + 1
    again = now + PAUSES.delay(failures)
    return Check(check.of, trouble=outcome.text, failures=failures, not_before=again)


class EgressChecks:
    """The checks of nodes by their uids. Safe to share between threads.

    Nothing else is known of them: after a restart they begin again.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._checks: dict[str, Check] = {}
        self._lock = threading.Lock()

    def view(self, uid: str) -> Egress:
        check = self._checks.get(uid)
        if check is None:
            return Egress()
        return Egress(check.of if check.passed else None, check.trouble)

    def end(self, uid: str) -> None:
        """The node waits no more, or its address is bound again: what was seen before does not count."""
        with self._lock:
            self._checks.pop(uid, None)

    def begun(self, uid: str, of: Checked) -> Check:
        """The check of what is *of*, with a token if it is time for one; it stays until its pod certainly exists."""
        with self._lock:
            check = self._checks.get(uid)
            if check is None or check.of != of:
                check = Check(of)
            if not check.token and not check.passed and self._clock() >= check.not_before:
                check = replace(check, token=f"{uid[:8]}-{uuid4().hex[:16]}")
            self._checks[uid] = check
            return check

    def left(self, check: Check) -> float:
        """Seconds of the pause before the next pod."""
        return max(0.0, check.not_before - self._clock())

    def created(self, uid: str, check: Check) -> None:
        """Its pod exists."""
        self._change(uid, check, replace(check, created=self._clock()))

    def awaited(self) -> Mapping[str, Check]:
        """Those that a pod is awaited for."""
        with self._lock:
            return {uid: check for uid, check in self._checks.items() if check.token}

    def decide(self, uid: str, check: Check, outcome: Outcome) -> bool:
        """Whether *check* was still awaited."""
        return self._change(uid, check, decided(check, outcome, self._clock()))

    def failing(self) -> int:
        with self._lock:
            return sum(bool(each.trouble) for each in self._checks.values())

    def _change(self, uid: str, before: Check, after: Check) -> bool:
        with self._lock:
            if self._checks.get(uid) != before:
                return False
            self._checks[uid] = after
            return True
