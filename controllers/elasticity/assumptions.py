"""What was decided counts until the cluster shows it: one action for each pod at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controllers.elasticity.patches import TO_SUPER_NODES, Action
from runtime import threading


class Assumptions:
    """Safe to share between threads. Read it before the pods: an action goes after its outcome is known there."""

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
