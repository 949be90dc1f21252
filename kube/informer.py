"""An informer keeps a local copy of one kind of object, current by LIST and WATCH, and calls handlers for each change.

Handlers run on the informer's thread after the copy has changed, so they must not block: add a key to a queue. A
handler that is registered late is called for everything in the copy. For an object that is gone, handlers get its
last known state; states between two that were seen are skipped. One object that cannot be decoded is counted and
left as it was last known, and stops nothing else.

A controller that must not act on a copy older than its own write passes the answer to `Informer.wrote`: the copy
holds it until the watch has delivered the same or a newer version, as client-go's mutation cache does.

The LIST comes in pages, the watch with bookmarks, and is resumed after each interruption. A server that hangs is found
by its silence: bookmarks arrive about every minute. Not every server sends them (Calico's does not): a silent watch is
then opened again. Failures are followed by a growing, jittered pause. A resourceVersion that the server has forgotten,
or that yields nothing several times in a row, is followed by a new LIST. Several informers share one stream of raw
objects, and each decodes for itself.
"""

# ruff: noqa: A002 (``type`` as in the API)

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import msgspec
import structlog
from prometheus_client import Counter, Gauge

from kube.client import Client, Resource
from kube.errors import Backoff, Expired, KubeError, Unreachable, asked_pause, event_error
from kube.resources import ALL, Selection
from kube.transport import LineStream
from kube.types import Completed, Object, ObjectMeta, as_number, at_any_depth, at_any_time, key_of, version_of
from runtime import random, threading, time

T = TypeVar("T", bound=Object)
R = TypeVar("R")
IndexFunction = Callable[[T], Iterable[str]]
Change = tuple[T | None, T | None]
"""(old, new): old is None for what came, new is None for what is gone."""


class Indexer(Generic[T]):
    """Safe to read while it is written; what it hands out are values."""

    def __init__(self) -> None:
        self._objects: dict[str, T] = {}
        self._functions: dict[str, IndexFunction[T]] = {}
        self._indexes: dict[str, dict[str, str | set[str]]] = {}
        """The key of a lone object, as under most values, stands without a set, which would take 216 bytes."""
        self._lock = threading.Lock()

    def get(self, key: str) -> T | None:
        return self._objects.get(key)

    def list(self) -> Sequence[T]:
        with self._lock:
            return list(self._objects.values())

    def by_index(self, name: str, value: str) -> Sequence[T]:
        """The objects for which the index function *name* yields *value*."""
        with self._lock:
            held = self._indexes[name].get(value, ())
            return [self._objects[key] for key in ((held,) if isinstance(held, str) else held)]

    def count(self, name: str, value: str, without: Iterable[ObjectMeta] = ()) -> int:
        """How many `by_index` finds, but for those *without*."""
        with self._lock:
            held = self._indexes[name].get(value, ())
            keys = {held} if isinstance(held, str) else held
            others = (
                self._objects[key].metadata.uid == at.uid for at in without if (key := key_of(at)) in keys
            )
            return len(keys) - sum(others)

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        with self._lock:
            self._functions[name] = function
            self._indexes[name] = {}
            for key, each in self._objects.items():
                self._index(name, key, each)

    def replace(self, objects: Mapping[str, T]) -> Sequence[Change[T]]:
        """Hold *objects* and nothing else; what vanished comes first among the changes."""
        with self._lock:
            before = self._objects
            vanished: list[Change[T]] = [(old, None) for key, old in before.items() if key not in objects]
            changed = [change for key, new in objects.items() for change in changes(before.get(key), new)]
            self._objects = dict(objects)
            self._indexes = {name: {} for name in self._functions}
            for key, each in objects.items():
                for name in self._functions:
                    self._index(name, key, each)
        return vanished + changed

    def store(self, key: str, new: T | None) -> T | None:
        """Hold *new*, or nothing, under *key*; return what was there."""
        with self._lock:
            old = self._objects.get(key)
            for name in self._functions:
                if old is not None:
                    self._unindex(name, key, old)
                if new is not None:
                    self._index(name, key, new)
            # In one step: `get` takes no lock, and what changes is never absent.
            if new is not None:
                self._objects[key] = new
            else:
                self._objects.pop(key, None)
            return old

    def _index(self, name: str, key: str, each: T) -> None:
        index = self._indexes[name]
        for value in self._functions[name](each):
            held = index.setdefault(value, key)
            if isinstance(held, set):
                held.add(key)
            elif held != key:
                index[value] = {held, key}

    def _unindex(self, name: str, key: str, each: T) -> None:
        index = self._indexes[name]
        for value in set(self._functions[name](each)):
            held = index[value]
            if isinstance(held, set):
                held.discard(key)
            if not held or held == key:
                del index[value]


def changes(old: T | None, new: T) -> Sequence[Change[T]]:
    """Nothing when it is the same; gone and come when another object has taken the name meanwhile."""
    if old is None:
        return [(None, new)]
    if old.metadata.uid != new.metadata.uid:
        return [(old, None), (None, new)]
    return [] if old.metadata.resource_version == new.metadata.resource_version else [(old, new)]


LAST_EVENT = Gauge(
    "drawbridge_informer_last_event_timestamp_seconds", "When the API server last sent something.", ["kind"]
)
RELISTS = Counter("drawbridge_informer_relists", "Full LISTs, and why.", ["kind", "reason"])

WATCH_SECONDS = (300, 600)
SHORT = 5.0
"""A watch that ends sooner, in seconds, is a failure: a server may accept watches and close them at once."""
FRUITLESS = 3
"""So many watches in a row without an event cast doubt on their resourceVersion; an etcd may have been restored."""

log = structlog.get_logger(__name__)


READ_TIMEOUT = 70.0
PAUSES = Backoff(base=0.8, cap=30.0, jitter=1.0)
"""As client-go's reflector."""


class Event(msgspec.Struct, metaclass=Completed):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class Identity(msgspec.Struct, metaclass=Completed, rename="camel"):
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


class Identified(msgspec.Struct, metaclass=Completed):
    metadata: Identity


_EVENT = msgspec.json.Decoder(Event)


def identity_of(item: msgspec.Raw) -> Identity:
    """An empty one when not even that can be read."""
    try:
        return msgspec.json.decode(item, type=Identified).metadata
    except msgspec.MsgspecError:
        return Identity()


class Registry(Generic[R]):
    """Which objects of one sort are in use in this process; one that has no other reference is not."""

    def __init__(self) -> None:
        self._objects: WeakSet[R] = WeakSet()
        self._lock = threading.Lock()

    def add(self, each: R) -> bool:
        """Whether it was not in use before."""
        with self._lock:
            is_new = each not in self._objects
            self._objects.add(each)
            return is_new

    def discard(self, each: R) -> None:
        with self._lock:
            self._objects.discard(each)

    def list(self) -> Sequence[R]:
        with self._lock:
            return list(self._objects)


class ListWatch:
    """One LIST and WATCH of *resource* for all of its informers; *read_timeout* in seconds."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        selection: Selection = ALL,
        read_timeout: float = READ_TIMEOUT,
        pauses: Backoff = PAUSES,
    ) -> None:
        self._list_pages = partial(client.list_pages, resource, selection, type=msgspec.Raw)
        self._open_watch = partial(client.watch, resource, selection, read_timeout=read_timeout)
        self._read_timeout, self._pauses = read_timeout, pauses
        self._informers: tuple[Informer[Any], ...] = ()
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._stream: LineStream | None = None
        self._version, self._relist_reason = "", "start"
        self._is_new_informer_due = False
        self._failures: Count[str] = Count()
        self._bookmarks = False
        self.resource, self.kind = resource, resource.plural
        self.optional = False
        """Whether the process does the rest of its work without it."""
        self._heard_at, self._begin_after = time.monotonic(), 0.0
        self._thread = threading.Thread(target=self._run, name=f"informer-{self.kind}", daemon=True)

    def attach(self, informer: Informer[Any]) -> None:
        """Feed *informer*, too; if the others have been fed before, a new LIST is made for all."""
        with self._lock:
            self._informers = (*self._informers, informer)
            self._is_new_informer_due = self._thread.is_alive()
        if self._is_new_informer_due and self._stream:
            self._stream.interrupt()

    def detach(self, informer: Informer[Any]) -> bool:
        """Feed *informer* no longer; return whether it was the last one."""
        with self._lock:
            self._informers = tuple(each for each in self._informers if each is not informer)
        return not self._informers

    def start(self, after: float = 0.0) -> None:
        """Begin *after* some seconds: informers that are attached meanwhile share the first LIST. Idempotent."""
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
        """Return *within* some seconds; no handler is called afterwards."""
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
        """Up to which the informers have been fed; 0 while a LIST is due."""
        return as_number(self._version)

    def _run(self) -> None:
        self._stopped.wait(self._begin_after)
        while not self._stopped.is_set():
            try:
                self._take_new_informers()
                if not self._version:
                    self._relist()
                self._watch()
            except Exception as error:
                self._stopped.wait(self._after(error))

    def _take_new_informers(self) -> None:
        with self._lock:
            if self._is_new_informer_due and self._version:
                self._version, self._relist_reason = "", "attached"
            self._is_new_informer_due = False

    def _after(self, error: Exception) -> float:
        """Note the failure; seconds to wait."""
        if self._is_new_informer_due:
            return 0.0
        verb = "watch" if self._version else "list"
        self._failures[verb] += 1
        if isinstance(error, Expired):
            self._version, self._relist_reason = "", "expired"
        elif self._version and self._failures[verb] % FRUITLESS == 0:
            self._version, self._relist_reason = "", "fruitless"
        pause = max(self._pauses.delay(self._failures[verb]), asked_pause(error))
        if not self._stopped.is_set():
            bug = not isinstance(error, KubeError)
            log.warning(f"{verb} failed", kind=self.kind, error=str(error), pause=pause, exc_info=bug)
        return pause

    def _relist(self) -> None:
        RELISTS.labels(self.kind, self._relist_reason).inc()
        informers = self._informers
        try:
            version = self._list(informers)
        except Expired:
            # As Client.list: when the pages outlived the server's memory, ask once for all at once.
            version = self._list(informers, page_size=0)
        if not version:
            raise Unreachable(f"the list of {self.kind} has no resourceVersion")
        for informer in informers:
            informer.end(as_number(version))
        self._version = version
        self._failures["list"] = 0
        self._heard()

    def _list(self, informers: Sequence[Informer[Any]], page_size: int = 500) -> str:
        """The list's version. Page by page: an encoded object is many times as large as what informers keep."""
        version = ""
        for informer in informers:
            informer.begin()
        for page in self._list_pages(page_size=page_size):
            for item in page.items or ():
                identity = identity_of(item)
                for informer in informers:
                    informer.add(identity, item)
            version = page.metadata.resource_version
        return version

    def _watch(self) -> None:
        """Follow a watch to its end, which is an error only if the watch failed, or its version is forgotten."""
        duration = random.randint(*WATCH_SECONDS)
        with self._open_watch(resource_version=self._version, duration=duration) as stream:
            self._stream = stream
            # stop() or attach() may have looked before there was a stream to interrupt
            if self._stopped.is_set() or self._is_new_informer_due:
                return
            self._heard()
            opened, version = self._heard_at, self._version
            try:
                for line in stream:
                    self._follow(line)
                    self._failures["watch"] = 0
                why = f"the watch of {self.kind} was ended by the server"
                # In a storm, an API server ends the watch of a slow reader: a pause would put it further behind.
                if self._version == version:
                    raise Unreachable(why)
                log.debug("watch ended", kind=self.kind, error=why)
            except KubeError as end:
                if isinstance(end, Expired) or self._has_failed(opened):
                    raise
                log.debug("watch ended", kind=self.kind, error=str(end))
        self._failures["watch"] = 0

    def _has_failed(self, opened: float) -> bool:
        """Whether the watch was over at once, or was silent although this server's bookmarks were due."""
        at_once = time.monotonic() - opened < min(SHORT, self._read_timeout)
        return at_once or (self._bookmarks and self.silence >= self._read_timeout)

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
            for informer in self._informers:
                informer.apply(event.type, identity, event.object)
        self._version = identity.resource_version or self._version
        self._heard()

    def _heard(self) -> None:
        self._heard_at = time.monotonic()


RUNNING: Registry[ListWatch] = Registry()
"""All that were started and not stopped."""


def _last_event(kind: str) -> float:
    """Of several that follow one kind, the one that has been silent longest counts."""
    silences = [each.silence for each in RUNNING.list() if each.kind == kind]
    return time.time() - max(silences, default=0.0)


Handler = Callable[[T | None, T | None], None]
Decode = Callable[[msgspec.Raw], T]
"""What is kept of an object as it arrived; raises MsgspecError."""

SYNCED = Gauge("drawbridge_informer_synced", "Whether the copy has been complete once.", ["kind"])
UNDECODABLE = Counter("drawbridge_informer_undecodable_objects", "Objects left out of the copy.", ["kind"])


class Informer(Indexer[T]):
    """A copy of what *source* delivers, decoded by *decode*; keys are ``namespace/name``, or ``name``."""

    def __init__(self, source: ListWatch, decode: Decode[T]) -> None:
        super().__init__()
        self.source, self.kind, self._decode_whole = source, source.kind, partial(at_any_time, decode)
        self._handlers: list[Handler[T]] = []
        self._notifying = threading.RLock()
        self._synced, self._closed = threading.Event(), False
        self._listed: dict[str, T] = {}
        self._fed_up_to = 0
        self.lists = 0
        """How many there were: what came and went between a watch and the next LIST was not seen."""
        self._answers: dict[str, T] | None = None  # by key: our writes during a LIST
        self._gone: dict[str, T] = {}  # by key: last states, forgotten, until the watch or a LIST says so
        SYNCED.labels(self.kind).set(0)
        source.attach(self)

    @property
    def silence(self) -> float:
        """Seconds since the API server was last heard."""
        return self.source.silence

    @property
    def version(self) -> int:
        """Up to which the copy is current and the handlers have been called; 0 while a LIST is due."""
        return self.source.version

    def on_change(self, handler: Handler[T]) -> None:
        """Call *handler* with (old, new) of each change, and now with (None, object) of each known object."""
        with self._notifying:
            for each in self.list():
                self._call(handler, None, each)
            self._handlers.append(handler)

    def stop(self) -> None:
        """No handler is called afterwards; the source stops with its last informer."""
        self._closed = True
        if self.source.detach(self):
            self.source.stop()

    def wait_synced(self, timeout: float) -> bool:
        """Wait until the copy has been complete once, and the handlers have been called for it."""
        return self._synced.wait(timeout)

    def wrote(self, answer: msgspec.Raw) -> T | None:
        """Take in the API server's answer to a write; return what is known now, None for an object that is gone.

        No handler is called, neither now nor when the watch delivers the same version. An answer that the watch has
        passed is dropped. The object must be one that this informer selects.
        """
        new = self._decode_whole(answer)
        key = key_of(new.metadata)
        with self._notifying:
            if self._is_gone(key, new):
                return None
            known = self.get(key)
            passed = version_of(known.metadata) if known else 0
            if known is None or known.metadata.uid != new.metadata.uid:
                known, passed = None, max(passed, self._fed_up_to)
            if version_of(new.metadata) <= passed:
                return known
            self.store(key, new)
            if self._answers is not None:
                self._answers[key] = new
            return new

    def forget(self, key: str, uid: str) -> None:
        """Drop the object of this *uid*, which the API server says is gone; no handler is called.

        One that is known to be terminating stays until the watch delivers its end.
        """
        with self._notifying:
            known = self.get(key)
            if known and known.metadata.uid == uid and known.metadata.deletion_timestamp is None:
                self.store(key, None)
                (self._answers or {}).pop(key, None)
                self._gone[key] = known

    def _is_gone(self, key: str, state: T) -> bool:
        """Whether *state* is of the object that was forgotten, or older than its last state."""
        gone = self._gone.get(key)
        if gone is None:
            return False
        is_older = version_of(state.metadata) <= version_of(gone.metadata)
        return is_older or state.metadata.uid == gone.metadata.uid

    def begin(self) -> None:
        with self._notifying:
            self._listed, self._answers, self._gone = {}, {}, {}

    def add(self, identity: Identity, item: msgspec.Raw) -> None:
        # An object that cannot be decoded is not gone: its last state is better than none.
        known = self._decode(identity, item) or self.get(identity.key)
        if known is not None:
            self._listed[identity.key] = known

    def end(self, version: int) -> None:
        with self._notifying:
            there = {key: each for key, each in self._listed.items() if not self._is_gone(key, each)}
            # Only answers since it began can be newer: all others yield, also to an etcd that was restored.
            for key, answer in (self._answers or {}).items():
                listed = version_of(there[key].metadata) if key in there else version
                if version_of(answer.metadata) > listed:
                    there[key] = answer
            changes = self.replace(there)
            self._listed, self._answers, self._fed_up_to = {}, None, version
            self.lists += 1
            self._notify(changes)
        SYNCED.labels(self.kind).set(1)
        self._synced.set()

    def apply(self, type: str, identity: Identity, item: msgspec.Raw) -> None:
        decoded = self._decode(identity, item)
        with self._notifying:
            self._fed_up_to = max(self._fed_up_to, identity.version)
            self._notify(self._applied(type, identity, decoded))

    def _applied(self, type: str, identity: Identity, decoded: T | None) -> Sequence[Change[T]]:
        key, is_deleted = identity.key, type == "DELETED"
        if decoded is not None and self._is_gone(key, decoded):
            if is_deleted and decoded.metadata.uid == self._gone[key].metadata.uid:
                del self._gone[key]  # the watch has passed whatever may still come of it
            return []
        known = self.get(key)
        if known is not None and identity.version < version_of(known.metadata):
            # Our write is newer. What was deleted before it is another object that had its name.
            is_other = decoded is not None and decoded.metadata.uid != known.metadata.uid
            return [(decoded, None)] if is_deleted and is_other else []
        if not is_deleted:
            return changes(self.store(key, decoded), decoded) if decoded is not None else []
        last = self.store(key, None)
        return [(decoded or last, None)] if last is not None else []

    def _decode(self, identity: Identity, item: msgspec.Raw) -> T | None:
        try:
            return self._decode_whole(item)
        except Exception as error:
            # A bug of one feature's decoder, too, must not stop the stream that others share.
            UNDECODABLE.labels(self.kind).inc()
            bug = not isinstance(error, msgspec.MsgspecError)
            log.error("object not decoded", kind=self.kind, key=identity.key, error=str(error), exc_info=bug)
            return None

    def _notify(self, changes: Iterable[Change[T]]) -> None:
        for old, new in changes:
            for handler in self._handlers:
                self._call(handler, old, new)

    def _call(self, handler: Handler[T], old: T | None, new: T | None) -> None:
        if self._closed or self.source.stopped:
            return
        try:
            handler(old, new)
        except Exception:
            log.exception("change handler failed", kind=self.kind)
