"""The pods that decisions rest on: the informer's copy, which our own writes go through."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from controllers.elasticity.patches import Patch
from controllers.elasticity.pods import Pod, facets
from kube.client import Client
from kube.errors import NotFound
from kube.informer import Informer
from kube.resources import PODS
from kube.types import key_of

CALL_TIMEOUT = 4.0
"""Seconds; less than lies between the end of our leadership and the beginning of another's."""
FACET = "facet"

Observer = Callable[[Pod | None, Pod | None], None]


class PodCache:
    """Safe to share between threads."""

    def __init__(self, client: Client, informer: Informer[Pod]) -> None:
        self._client, self._informer = client, informer
        self._write_observers: list[Callable[[Pod], None]] = []
        informer.add_index(FACET, facets)

    def on_change(self, observer: Observer) -> None:
        """Call *observer* with (old, new) of each change that is not ours, and now with each known pod."""
        self._informer.on_change(observer)

    def on_write(self, observer: Callable[[Pod], None]) -> None:
        """Call *observer* with what we have written or read."""
        self._write_observers.append(observer)

    def all(self) -> Sequence[Pod]:
        return self._informer.list()

    def get(self, key: str) -> Pod | None:
        """By ``namespace/name``."""
        return self._informer.get(key)

    def having(self, facet: str) -> Sequence[Pod]:
        return self._informer.by_index(FACET, facet)

    def current(self, pod: Pod) -> Pod | None:
        """As it is known now; None when it is gone, also when another pod has its name."""
        found = self._informer.get(key_of(pod.metadata))
        return found if found is not None and found.metadata.uid == pod.metadata.uid else None

    def patch(self, pod: Pod, patch: Patch) -> None:
        """KubeError."""
        at = pod.metadata
        answer = self._client.patch(
            PODS, at.name, patch, at.namespace, type=msgspec.Raw, timeout=CALL_TIMEOUT
        )
        self._take_in(answer)

    def delete(self, pod: Pod) -> None:
        """That version of it. KubeError."""
        at = pod.metadata
        seen = {"uid": at.uid, "resourceVersion": at.resource_version}
        self._client.delete(PODS, at.name, at.namespace, preconditions=seen, timeout=CALL_TIMEOUT)

    def refresh(self, pod: Pod) -> None:
        """Read it from the API server. KubeError, but for a pod that is gone."""
        at = pod.metadata
        try:
            answer = self._client.get(PODS, at.name, at.namespace, type=msgspec.Raw, timeout=CALL_TIMEOUT)
        except NotFound:
            return
        self._take_in(answer)

    def _take_in(self, answer: msgspec.Raw) -> None:
        if (new := self._informer.wrote(answer)) is not None:
            for observer in self._write_observers:
                observer(new)
