"""All pods as they are last known, by the watch or by the answers to our own writes, whichever is newer."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from controllers.elasticity.pods import Pod, facets
from kube.indexer import Indexer

FACET = "facet"


class Book:
    """By uid; safe to read and to write from any thread."""

    def __init__(self) -> None:
        self._pods: Indexer[Pod] = Indexer()
        self._pods.add_index(FACET, facets)
        self._writing = threading.Lock()
        self._changed: set[str] = set()

    def observe(self, old: Pod | None, new: Pod | None) -> bool:
        """As the watch tells it; whether that is news to anybody."""
        seen = new or old
        if seen is None:
            return False
        if new is None:
            self.forget(seen.metadata.uid)
            return True
        # A version that goes back is an etcd that was restored: then what we knew is no more.
        return self._put(new, anyway=old is not None and new.version < old.version)

    def wrote(self, pod: Pod) -> None:
        """As an answer to us tells it, which counts as a change; of a pod that is gone by now it tells nothing."""
        self._put(pod, unless_gone=True)
        self.look_again(pod.metadata.uid)

    def look_again(self, uid: str) -> None:
        """As if it had changed: what was decided on it did not come about, although nothing is new."""
        with self._writing:
            if self._pods.get(uid) is not None:
                self._changed.add(uid)

    def forget(self, uid: str) -> None:
        with self._writing:
            self._pods.remove(uid)
            self._changed.discard(uid)

    def get(self, uid: str) -> Pod | None:
        return self._pods.get(uid)

    def all(self) -> Sequence[Pod]:
        return self._pods.list()

    def having(self, facet: str) -> Sequence[Pod]:
        return self._pods.by_index(FACET, facet)

    def take_changed(self) -> set[str]:
        """Those of whom there was news since the last time."""
        with self._writing:
            changed, self._changed = self._changed, set()
            return changed

    def _put(self, new: Pod, *, anyway: bool = False, unless_gone: bool = False) -> bool:
        uid = new.metadata.uid
        with self._writing:
            known = self._pods.get(uid)
            if known is None and unless_gone:
                return False
            if known is not None and known.version >= new.version and not anyway:
                return False
            self._pods.put(uid, new)
            is_news = known is None or _matters(known, new)
            if is_news:
                self._changed.add(uid)
            return is_news


def _matters(old: Pod, new: Pod) -> bool:
    """Not what the kubelet reports all the time."""
    before, after = old.metadata, new.metadata
    return (old.active, old.node_name, before.annotations) != (
        new.active,
        new.node_name,
        after.annotations,
    ) or ((old.gated, old.stuck_since) != (new.gated, new.stuck_since))
