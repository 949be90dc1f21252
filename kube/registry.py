"""Which objects of one sort are in use in this process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Generic, TypeVar
from weakref import WeakSet

T = TypeVar("T")


class Registry(Generic[T]):
    """Safe to share between threads; an object that has no other reference is not in use."""

    def __init__(self) -> None:
        self._objects: WeakSet[T] = WeakSet()
        self._lock = threading.Lock()

    def add(self, each: T) -> bool:
        """Whether it was not in use before."""
        with self._lock:
            is_new = each not in self._objects
            self._objects.add(each)
            return is_new

    def discard(self, each: T) -> None:
        with self._lock:
            self._objects.discard(each)

    def list(self) -> Sequence[T]:
        with self._lock:
            return list(self._objects)
