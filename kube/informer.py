"""A copy of one kind of object that follows the API server and never falls behind in silence.

It LISTs in pages, then WATCHes with bookmarks, from where it was after each interruption. A server that hangs
is found out by the silence: bookmarks come about every minute. Not every server sends them (Calico's does not):
there a silent watch is just opened again. Failures are followed by a growing, jittered pause; a resourceVersion
that the server has forgotten, or that brings nothing several times in a row, by a new LIST, whose differences to
the copy are notified like any other change. One object that cannot be decoded is left out and counted, and stops
nothing else.

Handlers run on the informer's thread after the copy has changed, so they must not block: put a key into a
queue. A handler that comes late is told of everything that is there. When an object is gone, they get its last
known state; what happened between two states that were seen is not told.
"""

# ruff: noqa: A002 (``type`` as in the client)

from __future__ import annotations

import random
import threading
import time
from collections import Counter as Count
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar

import msgspec
import structlog
from prometheus_client import Counter, Gauge

from kube.backoff import Backoff
from kube.client import Client, Resource
from kube.errors import ApiError, Expired, KubeError, Unreachable, event_error
from kube.indexer import Change, Indexer, IndexFunction, Object
from kube.registry import Registry
from kube.transport import LineStream
from kube.watch_event import Event, Identity, identity_of

T = TypeVar("T", bound=Object)
Handler = Callable[[T | None, T | None], None]

SYNCED = Gauge("drawbridge_informer_synced", "Whether the copy has been complete once.", ["kind"])
LAST_EVENT = Gauge(
    "drawbridge_informer_last_event_timestamp_seconds", "When the API server last sent something.", ["kind"]
)
RELISTS = Counter("drawbridge_informer_relists", "Full LISTs, and why.", ["kind", "reason"])
UNDECODABLE = Counter("drawbridge_informer_undecodable_objects", "Objects left out of the copy.", ["kind"])

PAUSES = Backoff(base=0.8, cap=30.0, jitter=1.0)
"""As client-go's informer."""
READ_TIMEOUT = 70.0
WATCH_SECONDS = (300, 600)
SHORT = 5.0
"""A watch that ends sooner, in seconds, is a failure: a server may accept watches and close them at once."""
FRUITLESS = 3
"""So many watches in a row that bring nothing cast doubt on their resourceVersion; an etcd may be restored."""
LONGEST_RETRY_AFTER = 60.0

log = structlog.get_logger(__name__)


class Informer(Generic[T]):
    def __init__(
        self,
        client: Client,
        resource: Resource,
        type: type[T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        decode: Callable[[msgspec.Raw], T] | None = None,
        read_timeout: float = READ_TIMEOUT,
        pauses: Backoff = PAUSES,
    ) -> None:
        """*decode* makes of an object as it came what is kept of it, or raises MsgspecError; else *type* says it."""
        self._list_pages = partial(
            client.list_pages,
            resource,
            namespace,
            type=msgspec.Raw,
            label_selector=label_selector,
            field_selector=field_selector,
        )
        self._open_watch = partial(
            client.watch,
            resource,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            read_timeout=read_timeout,
        )
        self._read_timeout, self._pauses = read_timeout, pauses
        self._decode_whole = decode or msgspec.json.Decoder(type).decode
        self._store: Indexer[T] = Indexer()
        self._handlers: list[Handler[T]] = []
        self._notifying = threading.RLock()
        self._synced, self._stopped = threading.Event(), threading.Event()
        self._stream: LineStream | None = None
        self._version, self._relist_reason = "", "start"
        self._failures: Count[str] = Count()
        self._bookmarks = False
        self.kind = resource.plural
        self._heard_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"informer-{self.kind}", daemon=True)
        SYNCED.labels(self.kind).set(0)

    def on_change(self, handler: Handler[T]) -> None:
        """Call *handler* with (old, new) of each change, and now with (None, object) of all that is there."""
        with self._notifying:
            for each in self._store.list():
                self._call(handler, None, each)
            self._handlers.append(handler)

    def start(self) -> None:
        self._heard_at = time.monotonic()
        FOLLOWING.add(self)
        LAST_EVENT.labels(self.kind).set_function(partial(_last_event, self.kind))
        self._thread.start()

    def stop(self) -> None:
        """Return within about a second; nothing is notified afterwards."""
        self._stopped.set()
        FOLLOWING.discard(self)
        if self._stream:
            self._stream.interrupt()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(1.0)

    @property
    def has_synced(self) -> bool:
        """Whether the copy was complete once and the handlers have been told."""
        return self._synced.is_set()

    def wait_synced(self, timeout: float) -> bool:
        return self._synced.wait(timeout)

    @property
    def silence(self) -> float:
        """Seconds since the API server was last heard of: by a LIST, an event, or a watch that it opened."""
        return time.monotonic() - self._heard_at

    def get(self, key: str) -> T | None:
        """By ``namespace/name``, or ``name`` for what stands in no namespace."""
        return self._store.get(key)

    def list(self) -> Sequence[T]:
        return self._store.list()

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        self._store.add_index(name, function)

    def by_index(self, name: str, value: str) -> Sequence[T]:
        return self._store.by_index(name, value)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                if not self._version:
                    self._relist()
                self._watch()
            except Exception as error:
                self._stopped.wait(self._after(error))

    def _after(self, error: Exception) -> float:
        """Note the failure; seconds to wait."""
        verb = "watch" if self._version else "list"
        self._failures[verb] += 1
        if isinstance(error, Expired):
            self._version, self._relist_reason = "", "expired"
        elif self._version and self._failures[verb] % FRUITLESS == 0:
            self._version, self._relist_reason = "", "fruitless"
        asked = (error.retry_after if isinstance(error, ApiError) else None) or 0.0
        pause = max(self._pauses.delay(self._failures[verb]), min(asked, LONGEST_RETRY_AFTER))
        if not self._stopped.is_set():
            bug = not isinstance(error, KubeError)
            log.warning(
                "following was interrupted", kind=self.kind, error=str(error), pause=pause, exc_info=bug
            )
        return pause

    def _relist(self) -> None:
        RELISTS.labels(self.kind, self._relist_reason).inc()
        try:
            objects, version = self._list()
        except Expired:
            # As Client.list: when the pages outlived the server's memory, ask once for all at once.
            objects, version = self._list(page_size=0)
        if not version:
            raise Unreachable(f"the list of {self.kind} has no resourceVersion")
        with self._notifying:
            self._notify(self._store.replace(objects))
        self._version = version
        self._failures["list"] = 0
        self._heard()
        SYNCED.labels(self.kind).set(1)
        self._synced.set()

    def _list(self, page_size: int = 500) -> tuple[dict[str, T], str]:
        """Decoded page by page: an encoded object is many times as large as what we keep of it."""
        objects: dict[str, T] = {}
        version = ""
        for page in self._list_pages(page_size=page_size):
            objects |= self._decode_all(page.items or ())
            version = page.metadata.resource_version
        return objects, version

    def _decode_all(self, items: Iterable[msgspec.Raw]) -> dict[str, T]:
        objects = {}
        for item in items:
            identity, decoded = self._decode(item)
            # What we cannot read is not gone: better its last state than none.
            known = decoded or self._store.get(identity.key)
            if known is not None:
                objects[identity.key] = known
        return objects

    def _watch(self) -> None:
        """Follow a watch to its end, which is an error only if the watch failed, or its version is forgotten."""
        duration = random.randint(*WATCH_SECONDS)  # noqa: S311 - spreads load
        with self._open_watch(resource_version=self._version, duration=duration) as stream:
            self._stream = stream
            if self._stopped.is_set():  # stop() may have looked before there was a stream to interrupt
                return
            self._heard()
            opened = self._heard_at
            try:
                self._follow_all(stream)
            except KubeError as end:
                if isinstance(end, Expired) or self._has_failed(opened):
                    raise
                log.debug("a watch has ended", kind=self.kind, error=str(end))
        self._failures["watch"] = 0

    def _has_failed(self, opened: float) -> bool:
        """Whether the watch was over at once, or was silent although this server's bookmarks were due."""
        at_once = time.monotonic() - opened < min(SHORT, self._read_timeout)
        return at_once or (self._bookmarks and self.silence >= self._read_timeout)

    def _follow_all(self, stream: LineStream) -> NoReturn:
        """Raises what ended it; that is Unreachable when the server did so in good order."""
        for line in stream:
            self._follow(line)
            self._failures["watch"] = 0
        raise Unreachable(f"the watch of {self.kind} was ended by the server")

    def _follow(self, line: bytes) -> None:
        try:
            event = msgspec.json.decode(line, type=Event)
        except msgspec.MsgspecError as error:
            raise Unreachable(f"an event of {self.kind} cannot be read: {error}") from error
        if event.type == "ERROR":
            raise event_error(bytes(event.object))
        self._bookmarks = self._bookmarks or event.type == "BOOKMARK"
        identity, decoded = self._decode(event.object, event.type)
        with self._notifying:
            self._notify(self._apply(event.type, identity.key, decoded))
        self._version = identity.resource_version or self._version
        self._heard()

    def _apply(self, type: str, key: str, decoded: T | None) -> Sequence[Change[T]]:
        if type == "DELETED":
            last = self._store.remove(key)
            return [(decoded or last, None)] if last is not None else []
        return self._store.put(key, decoded) if decoded is not None else []

    def _decode(self, item: msgspec.Raw, type: str = "") -> tuple[Identity, T | None]:
        identity = identity_of(item)
        if type == "BOOKMARK":
            return identity, None
        try:
            return identity, self._decode_whole(item)
        except msgspec.MsgspecError as error:
            UNDECODABLE.labels(self.kind).inc()
            log.error("an object cannot be decoded", kind=self.kind, key=identity.key, error=str(error))
            return identity, None

    def _notify(self, changes: Iterable[Change[T]]) -> None:
        for old, new in changes:
            for handler in self._handlers:
                self._call(handler, old, new)

    def _call(self, handler: Handler[T], old: T | None, new: T | None) -> None:
        if self._stopped.is_set():
            return
        try:
            handler(old, new)
        except Exception:
            log.exception("a change handler failed", kind=self.kind)

    def _heard(self) -> None:
        self._heard_at = time.monotonic()


FOLLOWING: Registry[Informer[Any]] = Registry()
"""All that were started and not stopped."""


def _last_event(kind: str) -> float:
    """Of several that follow one kind, the one that has been silent for the longest counts."""
    silences = [each.silence for each in FOLLOWING.list() if each.kind == kind]
    return time.time() - max(silences, default=0.0)
