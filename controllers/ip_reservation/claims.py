"""What the leader has promised of living pods: which reservations it must not release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from api.standing import epoch_of
from kube.types import OwnerReference, Pod
from runtime import threading

Keys = frozenset[str]
NONE: Keys = frozenset()
MOST_EXCUSED = 50_000
"""The oldest are forgotten: their addresses stay reserved for their time."""


class Claims:
    """By the uid of pods, the keys of the records of their addresses. Safe to share between threads.

    A pod is *claimed* once its records are durable by a write of this leader, so that no write of a former one can take
    them away. It is *marked* from just before its mark is written until that is certainly gone. The keys of both are
    relied on. Of an *excused* pod, no address stays reserved once it is gone.

    Marks count in *epoch*: any, while it is "", which is not known yet; none, while it is None. Segments with records
    of living pods go with their *owner*, so no claim outlasts it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claimed: dict[str, Keys] = {}
        self._marked: dict[str, Keys] = {}
        self._excused: dict[str, None] = {}
        self._epoch: str | None = ""
        self.owner: OwnerReference | None = None
        self.released = NONE
        """Of living pods whose address Calico has released, as far as the last pass knows."""

    def begin(self, epoch: str, owner: OwnerReference) -> None:
        with self._lock:
            if self.owner not in (None, owner):
                self._claimed.clear()
                self._marked.clear()
            self._epoch, self.owner = epoch, owner

    def end(self) -> None:
        """No mark counts any more."""
        with self._lock:
            self._epoch = self.owner = None
            self._claimed.clear()
            self._marked.clear()

    def has_mark_in_force(self, pod: Pod) -> bool:
        """As far as it is known."""
        epoch = epoch_of(pod)
        return epoch is not None and self._epoch in ("", epoch)

    def claim(self, pods: Mapping[str, Keys], owner: OwnerReference) -> None:
        """Those that are reserved in segments of *owner*."""
        with self._lock:
            if self.owner == owner:
                self._claimed |= pods

    def withdraw(self, uids: Iterable[str]) -> None:
        """Of living pods, whose marks are to be removed."""
        with self._lock:
            for uid in uids:
                self._claimed.pop(uid, None)

    def of(self, uid: str) -> Keys:
        """What is claimed."""
        return self._claimed.get(uid, NONE)

    def found_marked(self, uid: str, keys: Keys) -> None:
        """By this leader or another one."""
        with self._lock:
            if self._epoch is not None:
                self._marked.setdefault(uid, keys)

    def begin_marking(self, uid: str, keys: Keys) -> bool:
        """Whether its mark may be written: it is claimed with these *keys*, which are relied on from now on."""
        with self._lock:
            if self._claimed.get(uid) != keys:
                return False
            self._marked[uid] = self._marked.get(uid, NONE) | keys
            return True

    def marked(self, uid: str, keys: Keys) -> None:
        """Certainly with these *keys* alone; none without a mark."""
        with self._lock:
            if keys:
                self._marked[uid] = keys
            else:
                self._marked.pop(uid, None)

    def marked_of(self, uid: str) -> Keys:
        return self._marked.get(uid, NONE)

    def ended(self, uid: str) -> None:
        """The time of its reservations begins."""
        with self._lock:
            self._claimed.pop(uid, None)
            self._marked.pop(uid, None)

    def excuse(self, uid: str) -> None:
        with self._lock:
            self._excused[uid] = None
            if len(self._excused) > MOST_EXCUSED:
                del self._excused[next(iter(self._excused))]

    def excused(self) -> frozenset[str]:
        """Uids."""
        with self._lock:
            return frozenset(self._excused)

    def relied_on(self) -> Keys:
        with self._lock:
            every = (*self._claimed.values(), *self._marked.values())
        return NONE.union(*every)

    def __len__(self) -> int:
        """Claimed pods."""
        return len(self._claimed)

    def __contains__(self, uid: object) -> bool:
        return uid in self._claimed
