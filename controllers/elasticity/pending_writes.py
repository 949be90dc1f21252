"""What has been decided and is not yet known to be done counts as done."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from controllers.elasticity.patches import Patch
from controllers.elasticity.pods import Pod


class Do(StrEnum):
    KEEP = "keep"
    SEND = "send"
    LET = "let through"
    BURST = "burst"
    COST = "cost"
    GIVE_UP = "give up"


@dataclass(frozen=True)
class Intent:
    """*patch* is for *pod* as it was; GIVE_UP has none. After *doubts* tries nobody knows whether one arrived."""

    do: Do
    pod: Pod
    why: str = ""
    patch: Patch | None = None
    doubts: int = 0

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid


class Intents:
    """One for each pod at most; by uid."""

    def __init__(self) -> None:
        self._held: dict[str, Intent] = {}
        self._lock = threading.Lock()

    def snapshot(self) -> Mapping[str, Intent]:
        """To be taken before the pods are read: an intent goes only after its outcome is in the book."""
        with self._lock:
            return dict(self._held)

    def put(self, intent: Intent) -> None:
        with self._lock:
            self._held[intent.uid] = intent

    def drop(self, uid: str) -> None:
        with self._lock:
            self._held.pop(uid, None)
