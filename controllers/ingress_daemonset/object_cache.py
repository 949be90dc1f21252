"""Objects of one kind as they are last known, by the watch or by an answer to ourselves, whichever is newer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from kube.indexer import Indexer, IndexFunction, Object
from kube.informer import Informer
from kube.types import key_of, version_of

T = TypeVar("T", bound=Object)
Change = Callable[[T | None, T | None], None]


class Book(Generic[T]):
    """Safe to read and to write from any thread.

    What bears no label by which it would be *followed* is known by our own reads only, since a time on *clock*.
    Of a *whole* kind there is no such thing.
    """

    def __init__(
        self,
        followed: Informer[T],
        decode: Callable[[msgspec.Raw], T],
        *,
        whole: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._followed, self._decode = followed, decode
        self._whole, self._clock = whole, clock
        self._store: Indexer[T] = Indexer()
        self._read_at: dict[str, float] = {}
        self._writing = threading.Lock()

    def get(self, key: str) -> T | None:
        return self._store.get(key)

    def list(self) -> Sequence[T]:
        return self._store.list()

    def by_index(self, name: str, value: str) -> Sequence[T]:
        return self._store.by_index(name, value)

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        self._store.add_index(name, function)

    def listen(self, news: Change[T]) -> None:
        """Take in all that is followed, and will be; *news* is called with (old, new) of what we did not know."""

        def observe(old: T | None, new: T | None) -> None:
            if self._observe(old, new):
                news(old, new)

        self._followed.on_change(observe)

    def wrote(self, raw: msgspec.Raw) -> None:
        """As an answer to a write, or a read, tells it."""
        new = self._decode(raw)
        key = key_of(new.metadata)
        with self._writing:
            if self._whole and self._store.get(key) is None:
                return  # the watch has told of its end already
            self._put(new)
            if self._followed.get(key) is None:
                self._read_at[key] = self._clock()

    def looked_at(self, key: str) -> None:
        """In vain."""
        with self._writing:
            if key in self._read_at:
                self._read_at[key] = self._clock()

    def forget(self, key: str) -> None:
        """It is gone, says the API server itself."""
        with self._writing:
            self._drop(key)

    def strangers(self) -> Mapping[str, float]:
        """What is known by our own reads only, by key, and since when."""
        with self._writing:
            return dict(self._read_at)

    def _observe(self, old: T | None, new: T | None) -> bool:
        """Whether it is news to us."""
        with self._writing:
            if new is not None:
                # A version that goes back is an etcd that was restored: then what we knew is no more.
                went_back = old is not None and version_of(new.metadata) < version_of(old.metadata)
                self._read_at.pop(key_of(new.metadata), None)
                return self._put(new, anyway=went_back)
            gone = old.metadata if old else None
            known = self._store.get(key_of(gone)) if gone else None
            # Another of the same name may have come already.
            if gone is None or known is None or known.metadata.uid != gone.uid:
                return False
            self._drop(key_of(gone))
            return True

    def _drop(self, key: str) -> None:
        self._store.remove(key)
        self._read_at.pop(key, None)

    def _put(self, new: T, *, anyway: bool = False) -> bool:
        key = key_of(new.metadata)
        known = self._store.get(key)
        if known is not None and version_of(known.metadata) >= version_of(new.metadata) and not anyway:
            return False
        self._store.put(key, new)
        return True
