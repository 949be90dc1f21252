"""An informer keeps a local copy of one kind of object, current by watch, and calls handlers for each change.

Handlers run on the informer's thread after the copy has changed, so they must not block: add a key to a queue. A
handler that is registered late is called for everything in the copy. For an object that is gone, handlers get its
last known state; states between two that were seen are skipped. One object that cannot be decoded is counted and
left as it was last known, and stops nothing else.

A controller that must not act on a copy older than its own write passes the answer to `Informer.wrote`: the copy
holds it until the watch has delivered the same or a newer version, as client-go's mutation cache does.
"""

# ruff: noqa: A002 (``type`` as in the client)

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec
import structlog
from prometheus_client import Counter, Gauge

from kube.client import Client, Resource
from kube.list_watch import ALL, TIMING, Identity, ListWatch, Selection, Timing
from kube.types import ObjectMeta, key_of, version_of
from runtime import threading


class Object(Protocol):
    """Anything with metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=Object)
IndexFunction = Callable[[T], Iterable[str]]
Change = tuple[T | None, T | None]
"""(old, new): old is None for what came, new is None for what is gone."""


class Indexer(Generic[T]):
    """Safe to read while it is written; what it hands out are values."""

    def __init__(self) -> None:
        self._objects: dict[str, T] = {}
        self._functions: dict[str, IndexFunction[T]] = {}
        self._indexes: dict[str, dict[str, set[str]]] = {}
        self._lock = threading.Lock()

    def get(self, key: str) -> T | None:
        return self._objects.get(key)

    def list(self) -> Sequence[T]:
        with self._lock:
            return list(self._objects.values())

    def by_index(self, name: str, value: str) -> Sequence[T]:
        """The objects for which the index function *name* yields *value*."""
        with self._lock:
            return [self._objects[key] for key in self._indexes[name].get(value, ())]

    def add_index(self, name: str, function: IndexFunction[T]) -> None:
        with self._lock:
            self._functions[name] = function
            self._indexes[name] = {}
            for key, each in self._objects.items():
                self._index(name, key, each)

    def put(self, key: str, new: T) -> Sequence[Change[T]]:
        with self._lock:
            old = self._objects.get(key)
            self._set(key, new)
        return changes(old, new)

    def remove(self, key: str) -> T | None:
        """What stood there, if anything did."""
        with self._lock:
            old = self._objects.get(key)
            self._set(key, None)
        return old

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

    def _set(self, key: str, new: T | None) -> None:
        old = self._objects.pop(key, None)
        for name in self._functions:
            if old is not None:
                self._unindex(name, key, old)
            if new is not None:
                self._index(name, key, new)
        if new is not None:
            self._objects[key] = new

    def _index(self, name: str, key: str, each: T) -> None:
        for value in self._functions[name](each):
            self._indexes[name].setdefault(value, set()).add(key)

    def _unindex(self, name: str, key: str, each: T) -> None:
        index = self._indexes[name]
        for value in set(self._functions[name](each)):
            index[value].discard(key)
            if not index[value]:
                del index[value]


def changes(old: T | None, new: T) -> Sequence[Change[T]]:
    """Nothing when it is the same; gone and come when another object has taken the name meanwhile."""
    if old is None:
        return [(None, new)]
    if old.metadata.uid != new.metadata.uid:
        return [(old, None), (None, new)]
    return [] if old.metadata.resource_version == new.metadata.resource_version else [(old, new)]


Handler = Callable[[T | None, T | None], None]
Decode = Callable[[msgspec.Raw], T]
"""What is kept of an object as it arrived; raises MsgspecError."""

SYNCED = Gauge("drawbridge_informer_synced", "Whether the copy has been complete once.", ["kind"])
UNDECODABLE = Counter("drawbridge_informer_undecodable_objects", "Objects left out of the copy.", ["kind"])

log = structlog.get_logger(__name__)


class Informer(Indexer[T]):
    """A copy of what *source* delivers, decoded by *decode*; keys are ``namespace/name``, or ``name``."""

    def __init__(self, source: ListWatch, decode: Decode[T]) -> None:
        super().__init__()
        self.source, self._decode_whole = source, decode
        self._handlers: list[Handler[T]] = []
        self._notifying = threading.RLock()
        self._synced, self._closed = threading.Event(), False
        self._listed: dict[str, T] = {}
        self._fed_up_to = 0
        self.lists = 0
        """How many there were: what came and went between a watch and the next LIST was not seen."""
        self._answers: dict[str, T] = {}  # by key: our writes that the watch has not delivered yet
        self._answered_since: set[str] = set()  # keys of answers since the last LIST began
        self._gone: dict[str, T] = {}  # by key: last states, forgotten since the last LIST began
        SYNCED.labels(self.kind).set(0)
        source.attach(self)

    @property
    def kind(self) -> str:
        return self.source.kind

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

    def start(self) -> None:
        self.source.start()

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
            self.put(key, new)
            self._answers[key] = new
            self._answered_since.add(key)
            return new

    def forget(self, key: str, uid: str) -> None:
        """Drop the object of this *uid*, which the API server says is gone; no handler is called.

        One that is known to be terminating stays until the watch delivers its end.
        """
        with self._notifying:
            known = self.get(key)
            if known and known.metadata.uid == uid and known.metadata.deletion_timestamp is None:
                self._answers.pop(key, None)
                self.remove(key)
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
            self._listed, self._answered_since, self._gone = {}, set(), {}

    def add(self, identity: Identity, item: msgspec.Raw) -> None:
        # An object that cannot be decoded is not gone: its last state is better than none.
        known = self._decode(identity, item) or self.get(identity.key)
        if known is not None:
            self._listed[identity.key] = known

    def end(self, version: int) -> None:
        with self._notifying:
            self._answers = dict(self._newer_answers(version))
            there = {key: each for key, each in self._listed.items() if not self._is_gone(key, each)}
            changes = self.replace(there | self._answers)
            self._listed, self._fed_up_to = {}, version
            self.lists += 1
            self._notify(changes)
        SYNCED.labels(self.kind).set(1)
        self._synced.set()

    def _newer_answers(self, version: int) -> Iterable[tuple[str, T]]:
        """Answers that are newer than the LIST. Only those that came after it began can be.

        All others yield to it, also to the LIST of an etcd that was restored, whose versions are lower.
        """
        for key in self._answered_since & self._answers.keys():
            answer, listed = self._answers[key], self._listed.get(key)
            if version_of(answer.metadata) > (version_of(listed.metadata) if listed else version):
                yield key, answer

    def apply(self, type: str, identity: Identity, item: msgspec.Raw) -> None:
        decoded = self._decode(identity, item)
        with self._notifying:
            self._fed_up_to = max(self._fed_up_to, identity.version)
            self._notify(self._applied(type, identity, decoded))

    def _applied(self, type: str, identity: Identity, decoded: T | None) -> Sequence[Change[T]]:
        key, is_deleted = identity.key, type == "DELETED"
        if decoded is not None and self._is_gone(key, decoded):
            return []
        answer = self._answers.get(key)
        if answer is not None and identity.version < version_of(answer.metadata):
            # The object of our write exists: what was deleted before is another one that had its name.
            is_other = decoded is not None and decoded.metadata.uid != answer.metadata.uid
            return [(decoded, None)] if is_deleted and is_other else []
        if decoded is None and not is_deleted:
            return []
        self._answers.pop(key, None)
        if decoded is not None and not is_deleted:
            return self.put(key, decoded)
        last = self.remove(key)
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


def informer_of(
    client: Client,
    resource: Resource,
    type: type[T],
    selection: Selection = ALL,
    *,
    decode: Decode[T] | None = None,
    timing: Timing = TIMING,
) -> Informer[T]:
    """An informer with a separate LIST and WATCH; *decode* replaces decoding as *type*."""
    source = ListWatch(client, resource, selection, timing)
    return Informer(source, decode or msgspec.json.Decoder(type).decode)
