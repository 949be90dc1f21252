"""Reads for new pods, each of which serves all requests that wait for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from api.same_address import OfCalico
from calico.ipam_config import ipam_configuration
from calico.pools import ip_pools
from calico.reservations import Reservations
from calico.segment import IPReservation
from kube.client import Client
from kube.errors import Unreachable
from kube.waiting import acquired
from runtime import threading, time

CONFIG_SECONDS = 30.0
"""For how long Calico's configuration is cached: it hardly ever changes."""
LEAST = 0.1
"""Seconds for a last attempt."""

T = TypeVar("T")
Read = Callable[[float], T]
"""Takes the seconds that it may last; raises KubeError."""


class Shared(Generic[T]):
    """One read at a time; a value serves all who asked before its read began, or *max_age* seconds after that."""

    def __init__(
        self, read: Read[T], *, max_age: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read, self._max_age, self._clock = read, max_age, clock
        self._turn = threading.Lock()
        self._known: list[T] = []
        self._began = -math.inf

    def value(self, deadline: float) -> T:
        """Unreachable, or what the read raises, when there is none by *deadline*."""
        asked = self._clock()
        if not acquired(self._turn, max(LEAST, deadline - asked)):
            raise Unreachable("another read took too long")
        try:
            if self._began + self._max_age <= asked:
                self._known, began = [], self._clock()
                self._known = [self._read(max(LEAST, deadline - began))]
                self._began = began
            return self._known[0]
        finally:
            self._turn.release()


class SharedReads:
    """Of the API server; the methods raise KubeError, or NotServed without Calico."""

    def __init__(self, client: Client, reservations: Reservations, api_version: str) -> None:
        self._segments: Shared[Sequence[IPReservation]] = Shared(
            lambda timeout: reservations.list(timeout=timeout)
        )

        def of_calico(timeout: float) -> OfCalico:
            end = time.monotonic() + timeout
            configuration = ipam_configuration(client, api_version, timeout=timeout)
            return OfCalico(configuration, ip_pools(client, api_version, timeout=end - time.monotonic()))

        self._of_calico = Shared(of_calico, max_age=CONFIG_SECONDS)

    def segments(self, deadline: float) -> Sequence[IPReservation]:
        """All that were there when this was called."""
        return self._segments.value(deadline)

    def of_calico(self, deadline: float) -> OfCalico:
        return self._of_calico.value(deadline)
