"""Follow one kind of object: LIST in pages, then WATCH with bookmarks, resumed after each interruption.

A server that hangs is found by its silence: bookmarks arrive about every minute. Not every server sends them
(Calico's does not): a silent watch is then opened again. Failures are followed by a growing, jittered pause. A
resourceVersion that the server has forgotten, or that yields nothing several times in a row, is followed by a new
LIST. Sinks receive raw objects, so that several decodings of a kind share one stream.
"""

# ruff: noqa: A002 (``type`` as in the API)

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, NoReturn, Protocol, TypeVar
from weakref import WeakSet

import msgspec
import structlog
from prometheus_client import Counter, Gauge

from kube.client import Client, Resource
from kube.depth import at_any_depth
from kube.errors import ApiError, Backoff, Expired, KubeError, Unreachable, event_error
from kube.resources import ALL as ALL
from kube.resources import Selection as Selection
from kube.transport import LineStream
from kube.types import ObjectMeta, as_number, complete, key_of
from runtime import random, threading, time

LAST_EVENT = Gauge(
    "drawbridge_informer_last_event_timestamp_seconds", "When the API server last sent something.", ["kind"]
)
RELISTS = Counter("drawbridge_informer_relists", "Full LISTs, and why.", ["kind", "reason"])

T = TypeVar("T")

WATCH_SECONDS = (300, 600)
SHORT = 5.0
"""A watch that ends sooner, in seconds, is a failure: a server may accept watches and close them at once."""
FRUITLESS = 3
"""So many watches in a row without an event cast doubt on their resourceVersion; an etcd may have been restored."""
LONGEST_RETRY_AFTER = 60.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Timing:
    """*read_timeout* in seconds."""

    read_timeout: float
    pauses: Backoff


TIMING = Timing(70.0, Backoff(base=0.8, cap=30.0, jitter=1.0))
"""Pauses as client-go's reflector."""


class Event(msgspec.Struct):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class Identity(msgspec.Struct, rename="camel"):
    """As much of ObjectMeta as even an object that we cannot decode should have."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        return key_of(ObjectMeta(name=self.name, namespace=self.namespace))

    @property
    def version(self) -> int:
        return as_number(self.resource_version)


class Identified(msgspec.Struct):
    metadata: Identity


complete(Event, Identified)
_EVENT = msgspec.json.Decoder(Event)


def identity_of(item: msgspec.Raw) -> Identity:
    """An empty one when not even that can be read."""
    try:
        return msgspec.json.decode(item, type=Identified).metadata
    except msgspec.MsgspecError:
        return Identity()


class Sink(Protocol):
    """Called on one thread at a time."""

    def begin(self) -> None:
        """A LIST begins; it may fail and begin again."""

    def add(self, identity: Identity, item: msgspec.Raw) -> None:
        """One object of the LIST."""

    def end(self, version: int) -> None:
        """The LIST is complete, as of *version*: what it did not have is gone."""

    def apply(self, type: str, identity: Identity, item: msgspec.Raw, /) -> None:
        """One watch event, ADDED, MODIFIED or DELETED."""


class ListWatch:
    """One LIST and WATCH of *resource* for all of its sinks."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        selection: Selection = ALL,
        timing: Timing = TIMING,
    ) -> None:
        self._list_pages = partial(client.list_pages, resource, selection, type=msgspec.Raw)
        self._open_watch = partial(client.watch, resource, selection, read_timeout=timing.read_timeout)
        self._timing = timing
        self._sinks: tuple[Sink, ...] = ()
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._stream: LineStream | None = None
        self._version, self._relist_reason = "", "start"
        self._is_new_sink_due = False
        self._failures: Count[str] = Count()
        self._bookmarks = False
        self.resource, self.kind = resource, resource.plural
        self.optional = False
        """Whether the process does the rest of its work without it."""
        self._heard_at, self._begin_after = time.monotonic(), 0.0
        self._thread = threading.Thread(target=self._run, name=f"informer-{self.kind}", daemon=True)

    def attach(self, sink: Sink) -> None:
        """Feed *sink*, too; if the others have been fed before, a new LIST is made for all."""
        with self._lock:
            self._sinks = (*self._sinks, sink)
            self._is_new_sink_due = self._thread.is_alive()
        if self._is_new_sink_due and self._stream:
            self._stream.interrupt()

    def detach(self, sink: Sink) -> bool:
        """Feed *sink* no longer; return whether it was the last one."""
        with self._lock:
            self._sinks = tuple(each for each in self._sinks if each is not sink)
        return not self._sinks

    def start(self, after: float = 0.0) -> None:
        """Begin *after* some seconds, so that sinks which are attached meanwhile share the first LIST. Idempotent."""
        if RUNNING.add(self):
            self._heard_at, self._begin_after = time.monotonic(), after
            LAST_EVENT.labels(self.kind).set_function(partial(_last_event, self.kind))
            self._thread.start()

    def cancel(self) -> None:
        """Stop soon, without waiting for it."""
        self._stopped.set()
        RUNNING.discard(self)
        if self._stream:
            self._stream.interrupt()

    def stop(self, within: float = 1.0) -> None:
        """Return *within* some seconds; no sink is called afterwards."""
        self.cancel()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(within)

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    @property
    def silence(self) -> float:
        """Seconds since the API server was last heard: a LIST, an event, or a watch that it opened."""
        return time.monotonic() - self._heard_at

    @property
    def version(self) -> int:
        """Up to which the sinks have been fed; 0 while a LIST is due."""
        return as_number(self._version)

    def _run(self) -> None:
        self._stopped.wait(self._begin_after)
        while not self._stopped.is_set():
            try:
                self._take_new_sinks()
                if not self._version:
                    self._relist()
                self._watch()
            except Exception as error:
                self._stopped.wait(self._after(error))

    def _take_new_sinks(self) -> None:
        with self._lock:
            if self._is_new_sink_due and self._version:
                self._version, self._relist_reason = "", "attached"
            self._is_new_sink_due = False

    def _after(self, error: Exception) -> float:
        """Note the failure; seconds to wait."""
        if self._is_new_sink_due:
            return 0.0
        verb = "watch" if self._version else "list"
        self._failures[verb] += 1
        if isinstance(error, Expired):
            self._version, self._relist_reason = "", "expired"
        elif self._version and self._failures[verb] % FRUITLESS == 0:
            self._version, self._relist_reason = "", "fruitless"
        asked = (error.retry_after if isinstance(error, ApiError) else None) or 0.0
        pause = max(self._timing.pauses.delay(self._failures[verb]), min(asked, LONGEST_RETRY_AFTER))
        if not self._stopped.is_set():
            bug = not isinstance(error, KubeError)
            log.warning(f"{verb} failed", kind=self.kind, error=str(error), pause=pause, exc_info=bug)
        return pause

    def _relist(self) -> None:
        RELISTS.labels(self.kind, self._relist_reason).inc()
        sinks = self._sinks
        try:
            version = self._list(sinks)
        except Expired:
            # As Client.list: when the pages outlived the server's memory, ask once for all at once.
            version = self._list(sinks, page_size=0)
        if not version:
            raise Unreachable(f"the list of {self.kind} has no resourceVersion")
        for sink in sinks:
            sink.end(as_number(version))
        self._version = version
        self._failures["list"] = 0
        self._heard()

    def _list(self, sinks: Sequence[Sink], page_size: int = 500) -> str:
        """The list's version. Page by page: an encoded object is many times as large as what sinks keep."""
        version = ""
        for sink in sinks:
            sink.begin()
        for page in self._list_pages(page_size=page_size):
            for item in page.items or ():
                identity = identity_of(item)
                for sink in sinks:
                    sink.add(identity, item)
            version = page.metadata.resource_version
        return version

    def _watch(self) -> None:
        """Follow a watch to its end, which is an error only if the watch failed, or its version is forgotten."""
        duration = random.randint(*WATCH_SECONDS)
        with self._open_watch(resource_version=self._version, duration=duration) as stream:
            self._stream = stream
            # stop() or attach() may have looked before there was a stream to interrupt
            if self._stopped.is_set() or self._is_new_sink_due:
                return
            self._heard()
            opened = self._heard_at
            try:
                self._follow_all(stream)
            except KubeError as end:
                if isinstance(end, Expired) or self._has_failed(opened):
                    raise
                log.debug("watch ended", kind=self.kind, error=str(end))
        self._failures["watch"] = 0

    def _has_failed(self, opened: float) -> bool:
        """Whether the watch was over at once, or was silent although this server's bookmarks were due."""
        at_once = time.monotonic() - opened < min(SHORT, self._timing.read_timeout)
        return at_once or (self._bookmarks and self.silence >= self._timing.read_timeout)

    def _follow_all(self, stream: LineStream) -> NoReturn:
        """Raises what ended it; that is Unreachable when the server did so in good order."""
        for line in stream:
            self._follow(line)
            self._failures["watch"] = 0
        raise Unreachable(f"the watch of {self.kind} was ended by the server")

    def _follow(self, line: bytes) -> None:
        try:
            event = at_any_depth(_EVENT.decode, line)
        except msgspec.MsgspecError as error:
            raise Unreachable(f"an event of {self.kind} cannot be read: {error}") from error
        if event.type == "ERROR":
            raise event_error(bytes(event.object))
        identity = identity_of(event.object)
        if event.type == "BOOKMARK":
            self._bookmarks = True
        else:
            for sink in self._sinks:
                sink.apply(event.type, identity, event.object)
        self._version = identity.resource_version or self._version
        self._heard()

    def _heard(self) -> None:
        self._heard_at = time.monotonic()


class Registry(Generic[T]):
    """Which objects of one sort are in use in this process; one that has no other reference is not."""

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


RUNNING: Registry[ListWatch] = Registry()
"""All that were started and not stopped."""


def _last_event(kind: str) -> float:
    """Of several that follow one kind, the one that has been silent longest counts."""
    silences = [each.silence for each in RUNNING.list() if each.kind == kind]
    return time.time() - max(silences, default=0.0)
