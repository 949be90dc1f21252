"""Watches that owe nothing to the programs they observe: every event, in order, with its revision."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from calico.segment import IPReservation, canonical
from healthchecker.checker import Deployment
from kube.client import Client, Resource
from kube.errors import Expired, KubeError, Unreachable
from kube.transport import LineStream
from kube.types import Node, Pod

Seen = Pod | IPReservation | Node | Deployment | dict[str, Any]
Kind = type[Pod] | type[IPReservation] | type[Node] | type[Deployment] | type[dict[str, Any]]
WATCH_SECONDS, SILENCE_SECONDS, PAUSE = 3600, 90.0, 0.2


@dataclass(frozen=True)
class Observation:
    """One object as a watch delivered it, at *seen* by our own clock.

    Revisions of one etcd decide what came first, whatever the clocks say.
    """

    object: Seen
    gone: bool
    seen: datetime

    @property
    def revision(self) -> int:
        return int(version_of(self.object))


def version_of(thing: Seen) -> str:
    """Its resourceVersion."""
    if isinstance(thing, dict):
        return str(thing["metadata"]["resourceVersion"])
    return thing.metadata.resource_version


def addresses(pod: Pod) -> frozenset[str]:
    """Those of *pod*, as CIDRs."""
    return frozenset(cidr for address in pod.status.addresses if (cidr := canonical(address)))


class WatchLost(Exception):
    """Events may have been missed, so what was seen proves nothing any more."""


Observations = SimpleQueue[Observation | WatchLost]


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Follower:
    """Deliver what is there, and from then on every event, until it is stopped."""

    def __init__(self, client: Client, resource: Resource, kind: Kind, observations: Observations) -> None:
        self._client, self._resource, self._kind, self._observations = client, resource, kind, observations
        self._stopped = threading.Event()
        self._stream: LineStream | None = None
        self._thread = threading.Thread(target=self._follow, name=f"watch {resource.plural}", daemon=True)

    def start(self) -> None:
        """Returns after the initial list: later changes are not missed."""
        listing = self._client.list(self._resource, type=self._kind)
        for each in listing.items:
            self._deliver(each, gone=False)
        self._revision = listing.resource_version
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._stream is not None:
            self._stream.interrupt()
        self._thread.join(timeout=2)

    def _follow(self) -> None:
        while not self._stopped.is_set():
            try:
                self._read()
            except (Expired, WatchLost) as error:
                self._observations.put(
                    WatchLost(f"the watch of {self._resource.plural} lost its place: {error}")
                )
                return
            except KubeError:
                self._stopped.wait(PAUSE)  # goes on where it was: a revision is a place in the history

    def _read(self) -> None:
        with self._client.watch(
            self._resource,
            resource_version=self._revision,
            duration=WATCH_SECONDS,
            read_timeout=SILENCE_SECONDS,
        ) as self._stream:
            for line in self._stream:
                self._hear(_decoded(line))

    def _hear(self, event: _Event) -> None:
        if event.type == "ERROR":
            raise WatchLost(bytes(event.object).decode())
        changed = msgspec.json.decode(event.object, type=self._kind)
        self._revision = version_of(changed)
        if event.type != "BOOKMARK":
            self._deliver(changed, gone=event.type == "DELETED")

    def _deliver(self, changed: Seen, *, gone: bool) -> None:
        self._observations.put(Observation(changed, gone, datetime.now(UTC)))


def _decoded(line: bytes) -> _Event:
    try:
        return msgspec.json.decode(line, type=_Event)
    except msgspec.MsgspecError as error:
        # As the product's informer has it: a line that was cut off is read again by the next watch.
        raise Unreachable(f"an event cannot be read: {error}") from error


def observed_by_now(observations: Observations) -> Iterator[Observation]:
    """What stands in the queue at this moment; WatchLost when something may be missing."""
    while True:
        try:
            each = observations.get_nowait()
        except Empty:
            return
        if isinstance(each, WatchLost):
            raise each
        yield each


@contextmanager
def watching(client: Client, kinds: Mapping[Resource, Kind]) -> Iterator[Observations]:
    """A queue of all that happens to the objects of *kinds*, beginning with those that are there."""
    observations: Observations = SimpleQueue()
    with ExitStack() as stack:
        for resource, kind in kinds.items():
            follower = _Follower(client, resource, kind, observations)
            follower.start()
            stack.callback(follower.stop)
        yield observations
