"""One informer per kind for the whole process: each feature decodes for itself what one LIST and WATCH delivers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from kube.client import Client, Resource
from kube.indexer import Object
from kube.informer import Informer
from kube.list_watch import ALL, ListWatch, Selection

T = TypeVar("T", bound=Object)

LONGEST_SILENCE = 300.0
"""Seconds without a LIST or a watch that succeeded; a quiet watch is opened again after little more than a minute."""


class StaleInformer(Exception):
    """The API server has long sent nothing of a kind that decisions rest on: the process should start again."""


class Informers:
    """Safe to share between threads; what it hands out is started."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._sources: dict[tuple[Resource, Selection], ListWatch] = {}
        self._informers: list[Informer[Any]] = []
        self._lock = threading.Lock()

    def of(
        self,
        resource: Resource,
        type: type[T],  # noqa: A002 - as in the client
        selection: Selection = ALL,
        *,
        decode: Callable[[msgspec.Raw], T] | None = None,
    ) -> Informer[T]:
        """An informer of *resource*, not synced yet; it shares its LIST and WATCH with others of the *selection*."""
        with self._lock:
            source = self._sources.get((resource, selection))
            if source is None or source.stopped:
                source = self._sources[resource, selection] = ListWatch(self._client, resource, selection)
            informer = Informer(source, decode or msgspec.json.Decoder(type).decode)
            self._informers.append(informer)
            informer.start()
            return informer

    def release(self, informer: Informer[Any]) -> None:
        """It is needed no longer."""
        with self._lock:
            informer.stop()
            self._informers.remove(informer)

    def wait_synced(self, stop: threading.Event, *informers: Informer[Any]) -> bool:
        """Whether all are complete; else *stop* was set before. StaleInformer."""
        for informer in informers:
            while not informer.wait_synced(0.1):
                if stop.is_set():
                    return False
                self.check()
        return not stop.is_set()

    def check(self) -> None:
        """Raise StaleInformer when one of them has been silent too long.

        That is a kind that is no longer served, not in this version, or not to us. A new process finds out what is
        served; an API server that is away as a whole costs us the lease before this.
        """
        with self._lock:
            silence, kind = max(((each.silence, each.kind) for each in self._informers), default=(0.0, ""))
        if silence > LONGEST_SILENCE:
            raise StaleInformer(f"no LIST or watch of {kind} has succeeded for {silence:.0f} s")

    def stop(self) -> None:
        with self._lock:
            for each in self._informers:
                each.stop()
            self._informers.clear()
