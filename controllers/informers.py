"""One informer per kind for the whole process: each feature decodes for itself what one LIST and WATCH delivers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from kube.client import Client, Resource
from kube.informer import Informer, ListWatch
from kube.resources import ALL, Selection
from kube.types import Object
from runtime import threading, time

T = TypeVar("T", bound=Object)

LONGEST_SILENCE = 300.0
"""Seconds without a LIST or a watch that succeeded; a quiet watch is opened again after little more than a minute."""


GATHER = 0.1
"""Seconds before the first LIST of a kind, in which features attach their informers: each one later costs a LIST."""


class StaleInformer(Exception):
    """A kind that all decisions rest on has not been received for too long; a new process may find out why."""


class Informers:
    """Safe to share between threads."""

    def __init__(self, client: Client, gather: float = GATHER) -> None:
        self._client, self._gather = client, gather
        self._sources: dict[tuple[Resource, Selection], ListWatch] = {}
        self._lock = threading.Lock()

    def of(
        self,
        resource: Resource,
        type: type[T],  # noqa: A002 - as in the client
        selection: Selection = ALL,
        *,
        decode: Callable[[msgspec.Raw], T] | None = None,
        optional: bool = False,
    ) -> Informer[T]:
        """A started informer; it shares LIST and WATCH with others of the same *resource* and *selection*.

        Work that needs an *optional* one waits while it is silent, and all other work goes on.
        """
        with self._lock:
            source = self._sources.get((resource, selection))
            if source is None or source.stopped:
                source = self._sources[resource, selection] = ListWatch(self._client, resource, selection)
                source.optional = optional
            source.optional = source.optional and optional
            informer = Informer(source, decode or msgspec.json.Decoder(type).decode)
            source.start(self._gather)
            return informer

    def release(self, informer: Informer[Any]) -> None:
        """Stop *informer*, and with the last one of its kind the LIST and WATCH."""
        with self._lock:
            informer.stop()

    def check(self) -> None:
        """Raise StaleInformer when an informer that is not optional has been silent for too long.

        Then its kind is not served any more, not in this version, or not to us. If the whole API server is away, the
        lease is lost before.
        """
        for each in self._silent():
            if not each.optional:
                raise StaleInformer(f"no LIST or watch of {each.kind} has succeeded for {each.silence:.0f} s")

    def silent(self) -> frozenset[str]:
        """The kinds of optional informers that have been silent for too long."""
        return frozenset(each.kind for each in self._silent() if each.optional)

    def _silent(self) -> Sequence[ListWatch]:
        with self._lock:
            running = [each for each in self._sources.values() if not each.stopped]
        return [each for each in running if each.silence > LONGEST_SILENCE]

    def stop(self) -> None:
        """Return within about a second, also when no server answers."""
        deadline = time.monotonic() + 1.0
        with self._lock:
            for source in self._sources.values():
                source.cancel()
            for source in self._sources.values():
                source.stop(deadline - time.monotonic())
