"""What has been decided and is neither seen nor failed counts as done, as the scheduler assumes its bindings."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from controllers.elasticity.patches import Patch
from controllers.elasticity.pods import Pod


class Kind(StrEnum):
    LOCAL = "place locally"
    SUPER = "place on a super node"
    ANY = "leave to the scheduler"
    BURST = "allow on super nodes"
    COST = "set the deletion cost"
    DELETE = "delete"


TO_SUPER_NODES = (Kind.SUPER, Kind.ANY, Kind.BURST)
"""After these, a pod may come to a super node."""


@dataclass(frozen=True)
class Action:
    """*patch* is for *pod* as it was; DELETE has none. After *doubts* tries it is unknown whether one arrived."""

    kind: Kind
    pod: Pod
    why: str = ""
    patch: Patch | None = None
    doubts: int = 0

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid


class Assumptions:
    """One action for each pod at most; safe to share between threads."""

    def __init__(self) -> None:
        self._actions: dict[str, Action] = {}
        self._by_key: dict[str, dict[str, Action]] = {}
        self._lock = threading.Lock()

    def get(self, uid: str) -> Action | None:
        return self._actions.get(uid)

    def of(self, key: str) -> Mapping[str, Action]:
        """By uid, those of the pods of *key*. Read them before the pods: they go after their outcome is known."""
        with self._lock:
            return dict(self._by_key.get(key, {}))

    def to_super_nodes(self) -> Sequence[Action]:
        with self._lock:
            return [each for each in self._actions.values() if each.kind in TO_SUPER_NODES]

    def assume(self, action: Action) -> None:
        with self._lock:
            self._actions[action.uid] = action
            self._by_key.setdefault(action.pod.key, {})[action.uid] = action

    def forget(self, action: Action) -> None:
        key = action.pod.key
        with self._lock:
            self._actions.pop(action.uid, None)
            of_key = self._by_key.get(key, {})
            of_key.pop(action.uid, None)
            if not of_key:
                self._by_key.pop(key, None)
