"""The brake: few addresses are taken from instances that still run, unless an operator confirms it.

A control plane that was restored from a snapshot, or is a copy, has the claims of nodes that another one serves. When
their Node objects go there, the instances go on running: those of a node pool that is scaled in do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from runtime import threading

MOST, PERIOD = 3, timedelta(hours=1)
"""So many are unbound in a period without an operator's word, which holds as long."""
SKEW = timedelta(minutes=5)
"""By which clocks of leaders and operators may differ."""
CONFIRMED = "drawbridge.io/release-confirmed-at"
"""The annotation with an operator's word, on the ConfigMap with the cluster's uuid: the time at which it was given."""
UNBINDS = "drawbridge.io/anycast-ip-unbinds"
"""The annotation of the leader's Lease with the last times, for the next leader."""
DECODER = msgspec.json.Decoder(tuple[datetime, ...])


class Brake:
    """Safe to share between threads. *unbound* are the times in which earlier leaders unbound some.

    *report* gets them all after each change. *held* are the uids of claims that wait.
    """

    def __init__(
        self,
        now: Callable[[], datetime],
        unbound: Sequence[datetime] = (),
        report: Callable[[Sequence[datetime]], None] = lambda _: None,
    ) -> None:
        self._now, self._report = now, report
        self._unbound = tuple(unbound)
        self._confirmed: datetime | None = None
        self._lock = threading.Lock()
        self.held = set[str]()

    @property
    def is_on(self) -> bool:
        return not self._is_current(self._confirmed) and len(self._recent()) >= MOST

    def take(self) -> bool:
        """Count one more; False when that would be one too many."""
        with self._lock:
            if self.is_on:
                return False
            self._unbound = (*self._recent(), self._now())[-MOST:]
        self._report(self._unbound)
        return True

    def confirm(self, at: datetime | None) -> bool:
        """Whether an operator's word, given *at* that time, counts now."""
        self._confirmed = at
        return self._is_current(at)

    def note(self, uid: str, *, is_held: bool) -> None:
        if is_held:
            self.held.add(uid)
        else:
            self.held.discard(uid)

    def _recent(self) -> Sequence[datetime]:
        return [each for each in self._unbound if self._is_current(each)]

    def _is_current(self, at: datetime | None) -> bool:
        return at is not None and -SKEW <= self._now() - at < PERIOD


def confirmed_in(annotations: Mapping[str, str]) -> datetime | None:
    """None where nothing is confirmed, or where it is no time with a zone."""
    try:
        found = datetime.fromisoformat(annotations[CONFIRMED].strip())
    except (KeyError, ValueError):
        return None
    return found if found.tzinfo else None


def annotation(unbound: Sequence[datetime]) -> dict[str, str]:
    return {UNBINDS: msgspec.json.encode([each.replace(microsecond=0) for each in unbound]).decode()}


def unbinds_in(annotations: Mapping[str, str]) -> Sequence[datetime]:
    """None before there were some, and where another client has written something else."""
    try:
        return [each for each in DECODER.decode(annotations.get(UNBINDS, "[]")) if each.tzinfo]
    except (msgspec.MsgspecError, ValueError):
        return ()
