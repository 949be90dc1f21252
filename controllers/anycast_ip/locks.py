"""Let one reconcile at a time be about an instance: a second one looks again soon."""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import contextmanager

from controllers.anycast_ip.claim import POOL, Claim
from runtime import threading

BUSY = 0.2
"""Seconds after which to look again for what another reconcile is about."""


def locked_by(claim: Claim) -> str:
    """What only one reconcile at a time may be about: the instance of *claim*, or itself when it has none."""
    return claim.uid if claim.instance == POOL else claim.instance


class Busy(Exception):
    """Another reconcile is about it, or was: look again in BUSY seconds."""


class Locks:
    """Safe to share between threads."""

    def __init__(self) -> None:
        self._held: dict[str, str] = {}
        self._changing = threading.Lock()

    @contextmanager
    def held(self, names: Collection[str], uid: str) -> Generator[str, None, None]:
        """Hold *names* for *uid*, for the length of the block; if others hold some, none, but the uid of one."""
        with self._changing:
            other = next((self._held[each] for each in names if each in self._held), "")
            mine = set() if other else set(names)
            self._held.update(dict.fromkeys(mine, uid))
        try:
            yield other
        finally:
            with self._changing:
                for each in mine:
                    del self._held[each]
