"""An API server in memory: every request of ``kube.client.Client``, answered by the rules of the real one.

It decodes, prunes and defaults, runs the mutating and the validating hooks, and stores; versions, generations and
field managers count as they do there, and a write that changes nothing is none. ``tests/cluster/test_fake_api.py``
holds it against the real one.
"""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol, cast

from dev.fake_api import managed_fields
from dev.fake_api.calls import Refused, Reply, Request, Target, target_of
from dev.fake_api.forms import formed
from dev.fake_api.front import connection_to
from dev.fake_api.kinds import BUILT_IN, CALICO_V3, INGRESS_DAEMONSETS, Kind
from dev.fake_api.patches import MERGE, Unpatchable, merged, patched
from dev.fake_api.schema import Undecodable
from dev.fake_api.selectors import Unselectable, matches_fields, matches_labels
from dev.fake_api.storage import Change, Key, Storage, Stored
from dev.fake_api.values import copied
from kube.client import Client, Resource
from kube.resources import NAMESPACES as NAMESPACES
from runtime import time, utc_now

Raw = dict[str, Any]
Where = Resource | str
"""A kind, or the path of its collection."""
DEFAULT_KINDS = (*BUILT_IN, *INGRESS_DAEMONSETS, *CALICO_V3)
DEFAULT_GRACE = 30
WATCH_POLL = 0.05
BOOKMARKS = 60.0
"""Seconds between two bookmarks of a watch, as kube-apiserver's."""
STRICT = "Strict"
SCHEDULED = {"type": "PodScheduled", "status": "True"}
EVICTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}
OWN = "fake-api"
"""The field manager of what the server makes itself."""


@dataclass(frozen=True)
class Review:
    """What an admission hook is asked about."""

    operation: str
    resource: Resource
    old: Raw | None
    new: Raw | None
    subresource: str = ""
    dry_run: bool = False
    manager: str = ""

    def copied(self) -> Review:
        return replace(self, old=copied(self.old), new=copied(self.new))


class Denied(Exception):
    """A hook refuses the request."""

    def __init__(self, message: str, code: int = 403, reason: str = "Forbidden") -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


class Unavailable(Exception):
    """The webhook behind a hook does not answer, and its failure policy is Fail."""


class Moved(Exception):
    """Another request changed the object while admission was asked: the server begins again, as for any conflict of
    its own."""


class Webhooks(Protocol):
    """What is registered for requests of any kind; both may raise Denied and Unavailable."""

    def mutate(self, review: Review) -> Raw | None:
        """The object as it shall be, as a new copy; None when it stays."""

    def validate(self, review: Review) -> None: ...


Mutating = Callable[[Raw], Raw | None]
Validating = Callable[[Review], object]


@dataclass
class _Hooks:
    mutating: list[tuple[Resource, Mutating]] = field(default_factory=list)
    validating: list[tuple[Resource, Validating]] = field(default_factory=list)


@dataclass(frozen=True)
class _Write:
    """One write under way."""

    kind: Kind
    key: Key
    manager: str
    subresource: str = ""
    dry_run: bool = False
    strict: bool = False
    patches: bool = False


class FakeAPI:
    """*kinds* are served in place of the default ones; *now* is the server's time.

    *fault* is asked before each request and may answer in its place (with a Reply) or raise; *after* sees each
    answer and may replace it or raise: an OSError is a connection that broke.
    """

    def __init__(
        self,
        *kinds: Kind,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.now = now
        self.fault: Callable[[Any], Any] = lambda call: None
        self.after: Callable[[Any, Reply], Reply | None] = lambda call, reply: None
        self.held_back: Callable[[Raw], str] = lambda pod: ""
        """Why a pod may not be evicted, as by a PodDisruptionBudget."""
        self.calls: list[Request] = []
        self.unserved: Collection[str] = ()
        """API versions that clients are answered 404 for; the test's own hands reach them all the same."""
        self._kinds = {each.resource: each for each in kinds or DEFAULT_KINDS}
        self._by_path = {(each.resource.root, each.resource.plural): each for each in self._kinds.values()}
        self.webhooks: Webhooks | None = None
        """Asked after the hooks; they may take their time, in which other requests are served."""
        self._hooks = _Hooks()
        self._storage = Storage()
        self._born = 0
        self._pages: dict[str, list[Stored]] = {}

    # The cluster's side.

    def client(self, manager: str = "drawbridge", *, timeout: float = 120.0) -> Client:
        """A real client whose requests come without a socket."""
        return Client(connection_to(self, manager), timeout=timeout)

    def mutate(self, resource: Resource, hook: Mutating) -> None:
        """From now on, *hook* changes (a copy of) each object of *resource* before it is stored."""
        self._hooks.mutating.append((resource, hook))

    def validate(self, resource: Resource, hook: Validating) -> None:
        """From now on, *hook* sees each write of *resource* and may raise Denied."""
        self._hooks.validating.append((resource, hook))

    def put(self, where: Where, raw: Mapping[str, Any], *, manager: str = "kubectl") -> Raw:
        """Place *raw*, status and all, as another client would have; neither hooks nor rules apply.

        Its namespace is made when there is none.
        """
        resource = self._resource(where)
        with self._storage.changed:
            kind = self._kinds[resource]
            new, _ = self._decoded(kind, dict(raw))
            metadata = new["metadata"]
            key = (resource, metadata.get("namespace", "") if resource.namespaced else "", metadata["name"])
            self.ensure_namespace(key[1])
            held = self._storage.get(key)
            kept = held.raw["metadata"] if held else {}
            for name, value in self._identity().items():
                metadata.setdefault(name, kept.get(name, value))
            if kind.generation != "none" and "generation" not in metadata:
                metadata["generation"] = self._generation(kind, held.raw, new) if held else 1
            return copied(self._store(_Write(kind, key, manager), held, new).raw)

    def ensure_namespace(self, name: str) -> None:
        """Make it when it is not there."""
        if name and NAMESPACES in self._kinds and not self._storage.get((NAMESPACES, "", name)):
            self.put(NAMESPACES, {"metadata": {"name": name}}, manager=OWN)

    def edit(
        self,
        resource: Resource,
        name: str,
        change: Mapping[str, Any],
        namespace: str = "",
        *,
        manager: str = "kubectl",
    ) -> Raw:
        """A merge patch of all parts, status and metadata too, by another client; neither hooks nor rules apply."""
        with self._storage.changed:
            held = self._existing((resource, namespace, name))
            kind = self._kinds[resource]
            new, _ = self._decoded(kind, merged(held.raw, dict(change)))
            if kind.generation != "none" and "generation" not in change.get("metadata", {}):
                new["metadata"]["generation"] = self._generation(kind, held.raw, new)
            return copied(self._store(_Write(kind, (resource, namespace, name), manager), held, new).raw)

    def remove(self, where: Where, name: str, namespace: str = "") -> None:
        """At once, finalizers or not."""
        resource = self._resource(where)
        with self._storage.changed:
            self._existing((resource, namespace, name))
            self._storage.remove((resource, namespace, name))

    def get(self, where: Where, name: str, namespace: str = "") -> Raw:
        with self._storage.changed:
            return copied(self._existing((self._resource(where), namespace, name)).raw)

    def find(self, where: Where, name: str, namespace: str = "") -> Raw | None:
        with self._storage.changed:
            held = self._storage.get((self._resource(where), namespace, name))
            return copied(held.raw) if held else None

    def list(self, where: Where, namespace: str = "") -> list[Raw]:
        with self._storage.changed:
            return [copied(each.raw) for each in self._storage.all(self._resource(where), namespace)]

    def peek(self, resource: Resource) -> Sequence[Raw]:
        """As `list`, without copies: what is read may not be changed."""
        return [each.raw for each in self._storage.all(resource)]

    def peek_at(self, resource: Resource, name: str, namespace: str = "") -> Raw | None:
        """As `find`, without a copy."""
        held = self._storage.get((resource, namespace, name))
        return held.raw if held else None

    def _resource(self, where: Where) -> Resource:
        if isinstance(where, Resource):
            return where
        return next(each for each in self._kinds if each.path() == where)

    def encoded(self, resource: Resource) -> Sequence[bytes]:
        with self._storage.changed:
            return [each.encoded for each in self._storage.all(resource)]

    def version_of(self, *resources: Resource) -> int:
        """Of the last change of any of these kinds."""
        return max(self._storage.versions.get(each, 0) for each in resources)

    @property
    def version(self) -> int:
        return self._storage.version

    def changes(self, since: int = 0) -> Sequence[Change]:
        """All changes after version *since*."""
        with self._storage.changed:
            return list(self._storage.since(since))

    def compact(self) -> None:
        """Forget history: watches from older versions and pages of lists answer 410."""
        with self._storage.changed:
            self._storage.forget()
            self._pages.clear()

    def snapshot(self) -> Mapping[Key, Stored]:
        with self._storage.changed:
            return self._storage.snapshot()

    def restore(self, snapshot: Mapping[Key, Stored]) -> None:
        """As when etcd is restored from what it was then."""
        with self._storage.changed:
            self._storage.restore(snapshot)
            self._pages.clear()

    @property
    def writes(self) -> Sequence[Request]:
        """The requests that would change something, dry runs too."""
        return [each for each in self.calls if each.method != "GET"]

    @property
    def kinds(self) -> Sequence[Kind]:
        return list(self._kinds.values())

    # The clients' side.

    def handle(self, call: Request) -> Reply:
        """The answer to *call*, faults included; whatever a fault raises comes through."""
        self.calls.append(call)
        answer = self.fault(call)
        if answer is not None:
            return cast(Reply, answer)
        reply = self.answer(call)
        return self.after(call, reply) or reply

    def __call__(self, call: Request) -> Any:
        """As a server of misbehaving_server answers: a connection that breaks is closed without an answer."""
        try:
            return self.handle(call)
        except OSError:
            return hang_up

    def answer(self, call: Request) -> Reply:
        """Without faults."""
        while True:
            try:
                with self._storage.changed:
                    return self._answer(call)
            except Refused as refused:
                return refused.reply
            except Moved:
                continue

    def _answer(self, call: Request) -> Reply:
        target = target_of(call.path)
        if target is None or (kind := self._kind_at(target)) is None:
            return self._discover(call.path)
        if call.method == "GET":
            return self._read(call, kind, target)
        if call.method == "POST":
            return self._post(call, kind, target)
        if not target.name:
            raise Refused(405, "MethodNotAllowed", "the server does not allow this method on the resource")
        return {"PUT": self._replace, "PATCH": self._patch, "DELETE": self._delete}[call.method](
            call, kind, target
        )

    def _kind_at(self, target: Target) -> Kind | None:
        found = self._by_path.get((target.root, target.plural))
        return None if found is None or found.resource.api_version in self.unserved else found

    def _discover(self, path: str) -> Reply:
        served = [
            each
            for each in self._kinds.values()
            if each.resource.root == path and each.resource.api_version not in self.unserved
        ]
        if not served:
            raise Refused(404, "NotFound", "404 page not found")
        resources = [
            {"name": each.resource.plural, "kind": each.kind, "namespaced": each.resource.namespaced}
            for each in served
        ]
        return _ok({"kind": "APIResourceList", "resources": resources})

    def _read(self, call: Request, kind: Kind, target: Target) -> Reply:
        if target.name:
            return Reply(200, self._existing(_key(kind, target)).encoded)
        selects = _selection(kind, call.query, target.namespace)
        if call.query.get("watch") in ("true", "1"):
            return self._watch(call, kind, selects)
        return self._list(call, kind, selects)

    def _list(self, call: Request, kind: Kind, selects: Callable[[Raw], bool]) -> Reply:
        token, limit = call.query.get("continue", ""), int(call.query.get("limit", 0))
        if token and token not in self._pages:
            raise Refused(410, "Expired", "The provided continue parameter is too old")
        if token:
            found, version = self._pages.pop(token), token.split(".")[0]
        else:
            found = [each for each in self._storage.all(kind.resource) if selects(each.raw)]
            version = str(self._storage.version)
        metadata: Raw = {"resourceVersion": version}
        if limit and len(found) > limit:
            found, rest = found[:limit], found[limit:]
            metadata["continue"] = f"{version}.{len(self._pages)}.{id(rest)}"
            self._pages[metadata["continue"]] = rest
            if not {"labelSelector", "fieldSelector"} & call.query.keys():
                metadata["remainingItemCount"] = len(rest)
        if content := formed(call.headers.get("accept", ""), metadata, [each.raw for each in found]):
            return Reply(200, content)
        head = json.dumps(
            {"kind": f"{kind.kind}List", "apiVersion": kind.resource.api_version, "metadata": metadata}
        )
        items = b",".join(each.encoded for each in found)
        return Reply(200, head[:-1].encode() + b', "items": [' + items + b"]}")

    def _watch(self, call: Request, kind: Kind, selects: Callable[[Raw], bool]) -> Reply:
        version = int(call.query.get("resourceVersion") or 0)
        if version and version < self._storage.compacted:
            gone = Refused(410, "Expired", f"too old resource version: {version} ({self._storage.compacted})")
            event = b'{"type":"ERROR","object":' + gone.reply.body + b"}\n"
            return Reply(200, lines=iter([event]))
        seconds = float(call.query.get("timeoutSeconds") or 3600)
        present = [] if version else [each for each in self._storage.all(kind.resource) if selects(each.raw)]
        bookmarks = call.query.get("allowWatchBookmarks") in ("true", "1")
        start = version or self._storage.version
        return Reply(200, lines=self._events(kind, selects, start, present, seconds, bookmarks=bookmarks))

    def _events(
        self,
        kind: Kind,
        selects: Callable[[Raw], bool],
        version: int,
        present: Sequence[Stored],
        seconds: float,
        *,
        bookmarks: bool,
    ) -> Iterator[bytes]:
        """Lines, b"" now and then where there is none, until the time is over."""
        resource, news_of = kind.resource, self._storage.changes_of
        for each in present:
            yield _event("ADDED", each)
        ends, bookmarked = _deadline(seconds), _deadline(BOOKMARKS)
        while not ends():
            with self._storage.changed:
                self._storage.changed.wait_for(partial(news_of, resource, version), WATCH_POLL)
                news, version = news_of(resource, version), self._storage.version
            for change in news:
                if line := _line(change, selects):
                    yield line
            yield b""
            if bookmarks and bookmarked():
                yield _bookmark(kind, version)
                bookmarked = _deadline(BOOKMARKS)
        if bookmarks:
            yield _bookmark(kind, version)

    def _post(self, call: Request, kind: Kind, target: Target) -> Reply:
        if target.subresource == "eviction":
            return self._evict(call, kind, target)
        if target.subresource == "binding":
            return self._bind(call, kind, target)
        body = {**call.body, "metadata": {**call.body.get("metadata", {})}}
        metadata = body["metadata"]
        _check_place(kind, target, metadata)
        if kind.resource.namespaced:
            self._check_namespace(target.namespace, kind, metadata.get("name", ""))
        if not metadata.get("name") and metadata.get("generateName"):
            self._born += 1
            metadata["name"] = f"{metadata['generateName']}{self._born:05x}"
        key = (kind.resource, metadata.get("namespace", ""), metadata.get("name", ""))
        write = _write_of(call, kind, key)
        new, unknown = self._decode(write, body)
        return Reply(201, self._create(write, new).encoded, _warnings(call, write, unknown))

    def _create(self, write: _Write, new: Raw) -> Stored:
        kind = write.kind
        for name in ("resourceVersion", "uid", "deletionTimestamp", "selfLink"):
            if name == "resourceVersion" and new["metadata"].get(name):
                raise Refused(500, "", "resourceVersion should not be set on objects to be created")
            new["metadata"].pop(name, None)
        new["metadata"] |= self._identity()
        if kind.has_status:
            new.pop("status", None)
            kind.default(new)
        if kind.generation != "none":
            new["metadata"]["generation"] = 1
        kind.prepare(None, new)
        new = self._mutated(write, new, None)
        self._validate(write, None, new)
        if self._storage.get(write.key):
            raise Refused(409, "AlreadyExists", f'{kind.described} "{write.key[2]}" already exists')
        return self._stored(write, None, new)

    def _replace(self, call: Request, kind: Kind, target: Target) -> Reply:
        write = _write_of(call, kind, _key(kind, target), target.subresource)
        new, unknown = self._decode(write, call.body)
        if new["metadata"].get("name") != target.name:
            raise Refused(400, "BadRequest", "the name of the object does not match the name on the URL")
        _check_place(kind, target, new["metadata"])
        held = self._existing(write.key)
        if not new["metadata"].get("resourceVersion") and not kind.unconditional:
            raise self._invalid(
                write, ["metadata.resourceVersion: Invalid value: 0: must be specified for an update"]
            )
        return Reply(200, self._update(write, held, new).encoded, _warnings(call, write, unknown))

    def _patch(self, call: Request, kind: Kind, target: Target) -> Reply:
        write = _write_of(call, kind, _key(kind, target), target.subresource)
        held = self._existing(write.key)
        try:
            new = patched(held.raw, call.body, call.headers.get("content-type", MERGE))
        except KeyError:
            raise Refused(
                415, "UnsupportedMediaType", "the body of the request was in an unknown format"
            ) from None
        except Unpatchable as error:
            raise Refused(422, "Invalid", f"the server rejected our request: {error}") from error
        new, unknown = self._decode(write, new)
        return Reply(200, self._update(write, held, new).encoded, _warnings(call, write, unknown))

    def _update(self, write: _Write, held: Stored, new: Raw) -> Stored:
        kind, old = write.kind, held.raw
        _check_identity(write, old["metadata"], new["metadata"])
        new = self._kept(write, old, new)
        if not write.subresource:
            kind.prepare(old, new)
        if self._hooks.mutating or self.webhooks or not _same(old, new):
            new = self._mutated(write, new, old)
            new = self._kept(write, old, new)
        if kind.generation != "none":
            new["metadata"]["generation"] = self._generation(kind, old, new)
        self._validate(write, old, new)
        self._check_unmoved(held, write.key)
        if _is_released(new["metadata"]):
            if not write.dry_run:
                self._storage.remove(write.key)
            return _encoded(new)
        return self._stored(write, held, new)

    def _kept(self, write: _Write, old: Raw, new: Raw) -> Raw:
        """*new* with what this request may not change as it was."""
        kind, before = write.kind, old["metadata"]
        if write.subresource == "status":
            status = new.get("status")
            base = old if kind.custom else {**new, **_parts(old, "spec", "data")}
            new = {name: each for name, each in base.items() if name != "status"}
            new |= {"status": status} if status is not None else {}
            labels = {} if kind.custom else {"labels": before.get("labels", {})}
            new["metadata"] = {**new["metadata"], **labels}
            if not new["metadata"].get("labels"):
                new["metadata"].pop("labels", None)
        elif kind.has_status:
            new = {**{name: each for name, each in new.items() if name != "status"}, **_parts(old, "status")}
        metadata = {**new["metadata"]}
        for name in (
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "managedFields",
            "resourceVersion",
        ):
            metadata.pop(name, None)
            if name in before:
                metadata[name] = before[name]
        return {**new, "metadata": metadata}

    def _delete(self, call: Request, kind: Kind, target: Target) -> Reply:
        key = _key(kind, target)
        held = self._existing(key)
        options = call.body or {}
        wanted = options.get("preconditions") or {}
        for name in ("uid", "resourceVersion"):
            if wanted.get(name) not in (None, held.raw["metadata"][name]):
                raise self._conflict(
                    key, f"the {name} in the precondition ({wanted[name]}) does not match record"
                )
        grace = options.get("gracePeriodSeconds", call.query.get("gracePeriodSeconds"))
        write = _write_of(call, kind, key)
        write = replace(write, dry_run=write.dry_run or options.get("dryRun") == ["All"])
        if self._grace(kind, held.raw, grace) is None:
            return Reply(200, held.encoded)
        self._review(Review("DELETE", write.kind.resource, held.raw, None, "", write.dry_run, write.manager))
        return self._remove(write, held, grace)

    def _remove(self, write: _Write, held: Stored, grace: Any = None) -> Reply:
        self._check_unmoved(held, write.key)
        metadata, graceful = held.raw["metadata"], write.kind.graceful
        if write.key[0] == NAMESPACES:
            return self._terminate(write, held)
        seconds = self._grace(write.kind, held.raw, grace)
        if seconds is None:
            return Reply(200, held.encoded)
        stays = bool(metadata.get("finalizers") or seconds)
        if stays or graceful:
            held = self._marked(write, held, seconds)
        if stays:
            return Reply(200, held.encoded)
        if not write.dry_run:
            self._storage.remove(write.key)
        return Reply(200, held.encoded) if graceful else _ok({"kind": "Status", "status": "Success"})

    def _marked(self, write: _Write, held: Stored, seconds: int) -> Stored:
        """With its deletionTimestamp; a second deletion may only make that earlier."""
        metadata = held.raw["metadata"]
        is_marked = "deletionTimestamp" in metadata
        if is_marked and seconds >= metadata.get("deletionGracePeriodSeconds", 0):
            return held
        at = _time(self.now() + timedelta(seconds=seconds))
        marks: Raw = {"deletionTimestamp": at, "deletionGracePeriodSeconds": seconds}
        if "generation" in metadata and not is_marked:
            marks["generation"] = metadata["generation"] + 1
        return self._stored(write, held, {**held.raw, "metadata": {**metadata, **marks}})

    def _grace(self, kind: Kind, raw: Raw, wanted: Any) -> int | None:
        """Pods that a kubelet has, or may have, end gracefully; None when one ends already, and not sooner for this."""
        if not kind.graceful:
            return 0
        if left := raw["metadata"].get("deletionGracePeriodSeconds"):
            return None if wanted is None or int(wanted) >= left else int(wanted)
        is_over = raw.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if is_over or not raw["spec"].get("nodeName") or "deletionTimestamp" in raw["metadata"]:
            return 0
        return int(
            raw["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE) if wanted is None else wanted
        )

    def _terminate(self, write: _Write, held: Stored) -> Reply:
        """A namespace stays as long as it has content."""
        if "deletionTimestamp" in held.raw["metadata"]:
            return Reply(200, held.encoded)
        metadata = {**held.raw["metadata"], "deletionTimestamp": _time(self.now())}
        new = {**held.raw, "metadata": metadata, "status": {"phase": "Terminating"}}
        return Reply(200, self._stored(write, held, new).encoded)

    def _evict(self, call: Request, kind: Kind, target: Target) -> Reply:
        """Reviewed as the creation of an Eviction, and not as a deletion."""
        held = self._existing(_key(kind, target))
        write = _write_of(call, kind, _key(kind, target), "eviction")
        options = (call.body or {}).get("deleteOptions") or {}
        review = Review("CREATE", kind.resource, None, call.body, "eviction", write.dry_run, write.manager)
        self._review(review)
        wanted = options.get("preconditions") or {}
        for name, said in (("uid", "UID"), ("resourceVersion", "resourceVersion")):
            if wanted.get(name) not in (None, held.raw["metadata"][name]):
                what = f"the {said} in the precondition ({wanted[name]}) does not match record"
                raise self._conflict(write.key, what)
        if why := self.held_back(held.raw):
            raise Refused(429, "TooManyRequests", why, retry_after=10)
        self._check_unmoved(held, write.key)
        if not write.dry_run:
            held = self._with_condition(replace(write, subresource="status"), held, held.raw, EVICTED)
        self._remove(write, held, options.get("gracePeriodSeconds"))
        return Reply(201, b'{"kind":"Status","apiVersion":"v1","status":"Success","code":201}')

    def _bind(self, call: Request, kind: Kind, target: Target) -> Reply:
        """The pod gets the annotations of the Binding, as admission leaves it."""
        key = _key(kind, target)
        write = _write_of(call, kind, key, "binding")
        metadata = {"name": target.name, "namespace": target.namespace, **call.body.get("metadata", {})}
        binding = {**call.body, "metadata": metadata}
        if self.webhooks:
            review = Review("CREATE", kind.resource, None, binding, "binding", write.dry_run, write.manager)
            binding = self._asked(self.webhooks.mutate, review) or binding
            self._asked(self.webhooks.validate, replace(review, new=binding))
        held = self._existing(key)
        spec = held.raw["spec"]
        if spec.get("nodeName") or spec.get("schedulingGates"):
            raise self._conflict(key, "pod is already assigned to a node, or gated")
        change: Raw = {"spec": {"nodeName": binding["target"]["name"]}}
        if annotations := binding["metadata"].get("annotations"):
            change["metadata"] = {"annotations": annotations}
        self._with_condition(write, held, merged(held.raw, change), SCHEDULED)
        return Reply(201, b'{"kind":"Status","apiVersion":"v1","status":"Success","code":201}')

    def _with_condition(self, write: _Write, held: Stored, pod: Raw, condition: Raw) -> Stored:
        condition = {**condition, "lastProbeTime": None, "lastTransitionTime": _time(self.now())}
        status = pod.get("status", {})
        others = [each for each in status.get("conditions", ()) if each["type"] != condition["type"]]
        return self._stored(write, held, {**pod, "status": {**status, "conditions": [*others, condition]}})

    # Parts of a write.

    def _decode(self, write: _Write, body: Any) -> tuple[Raw, builtins.list[str]]:
        if not isinstance(body, dict):
            raise Refused(400, "BadRequest", "the object provided is unrecognized")
        if write.kind.custom and not {"apiVersion", "kind"} <= body.keys():
            raise Refused(400, "BadRequest", "Object 'Kind' is missing")
        code, reason = (422, "Invalid") if write.patches else (400, "BadRequest")
        try:
            new, unknown = self._decoded(write.kind, body)
        except Undecodable as error:
            raise Refused(code, reason, f"{write.kind.kind} cannot be handled: {error}") from error
        if unknown and write.strict:
            found = ", ".join(f'unknown field "{each}"' for each in unknown)
            raise Refused(code, reason, f"strict decoding error: {found}")
        return new, unknown

    def _decoded(self, kind: Kind, body: Raw) -> tuple[Raw, builtins.list[str]]:
        """Pruned and defaulted, with the paths of its unknown fields; *body* stays as it is.

        Without managedFields: the server keeps its own.
        """
        changes: Raw = {"apiVersion": kind.resource.api_version, "kind": kind.kind}
        if isinstance(metadata := body.get("metadata"), dict):
            changes["metadata"] = _without(metadata, "managedFields")
        new, unknown = kind.schema.tidy({**body, **changes})
        new.setdefault("metadata", {})
        kind.default(new)
        return new, unknown

    def _mutated(self, write: _Write, new: Raw, old: Raw | None) -> Raw:
        """What the mutating hooks leave of it; the status of an object has no such hooks."""
        if write.subresource:
            return new
        for resource, hook in self._hooks.mutating:
            if resource == write.kind.resource:
                given = copied(new)
                changed = self._asked(hook, given)
                new, _ = self._decoded(write.kind, changed if changed is not None else given)
        if self.webhooks:
            changed = self._asked(self.webhooks.mutate, _review_of(write, old, new))
            if changed is not None:
                new, _ = self._decoded(write.kind, changed)
        return new

    def _asked(self, hook: Callable[[Any], Any], about: Any) -> Any:
        try:
            return hook(about)
        except Unavailable as error:
            raise Refused(500, "InternalError", f"failed calling webhook: {error}") from error
        except Denied as denied:
            raise _denied(denied) from denied

    def _check_unmoved(self, held: Stored, key: Key) -> None:
        if self._storage.get(key) is not held:
            raise Moved

    def _validate(self, write: _Write, old: Raw | None, new: Raw) -> None:
        faults = [each for rule in write.kind.rules for each in rule(old, new)]
        if faults:
            raise self._invalid(write, faults)
        self._review(_review_of(write, old, new))

    def _review(self, review: Review) -> None:
        for resource, hook in self._hooks.validating:
            if resource == review.resource:
                self._asked(hook, review.copied())
        if self.webhooks:
            self._asked(self.webhooks.validate, review)

    def _stored(self, write: _Write, held: Stored | None, new: Raw) -> Stored:
        if write.dry_run:
            return held if held and _same(held.raw, new) else _encoded(new)
        return self._store(write, held, new)

    def _store(self, write: _Write, held: Stored | None, new: Raw) -> Stored:
        """*new*, which becomes the storage's own."""
        old = held.raw if held else {}
        if held and _same(old, new):
            return held
        subresource = "status" if write.subresource == "status" else ""
        api_version = write.kind.resource.api_version
        entries = managed_fields.updated(old, new, write.manager, api_version, _time(self.now()), subresource)
        new = {**new, "metadata": {**new["metadata"], "managedFields": entries}}
        return self._storage.put(write.key, new)

    def _identity(self) -> Raw:
        self._born += 1
        uid = f"{self._born:08x}-0000-4000-8000-000000000000"
        return {"uid": uid, "creationTimestamp": _time(self.now())}

    def _generation(self, kind: Kind, old: Raw, new: Raw) -> int:
        before: int = old["metadata"].get("generation", 1)
        return before + _counts(kind, old, new)

    def _existing(self, key: Key) -> Stored:
        held = self._storage.get(key)
        if held is None:
            raise Refused(404, "NotFound", f'{self._kinds[key[0]].described} "{key[2]}" not found')
        return held

    def _check_namespace(self, name: str, kind: Kind, object_name: str) -> None:
        namespace = self._storage.get((NAMESPACES, "", name))
        if namespace is None:
            raise Refused(404, "NotFound", f'namespaces "{name}" not found')
        if namespace.raw.get("status", {}).get("phase") == "Terminating":
            raise Refused(
                403,
                "Forbidden",
                f'{kind.described} "{object_name}" is forbidden: unable to create new content in namespace {name} '
                "because it is being terminated",
            )

    def _invalid(self, write: _Write, faults: Sequence[str]) -> Refused:
        found = faults[0] if len(faults) == 1 else "[" + ", ".join(faults) + "]"
        return Refused(422, "Invalid", f'{write.kind.kind} "{write.key[2]}" is invalid: {found}')

    def _conflict(self, key: Key, what: str) -> Refused:
        return _conflict(self._kinds[key[0]], key[2], what)


def _warnings(call: Request, write: _Write, unknown: Sequence[str]) -> Mapping[str, str]:
    """Unknown fields of the body, as the default field validation reports them."""
    if write.strict or call.query.get("fieldValidation") == "Ignore" or not isinstance(call.body, dict):
        return {}
    found = ", ".join(f'299 - "unknown field \\"{each}\\""' for each in unknown)
    return {"Warning": found} if unknown else {}


def hang_up(handler: Any) -> None:
    handler.close_connection = True


def _denied(denied: Denied) -> Refused:
    message = f'admission webhook "hook.fake-api" denied the request: {denied}'
    return Refused(denied.code, denied.reason, message)


def _conflict(kind: Kind, name: str, what: str) -> Refused:
    message = f'Operation cannot be fulfilled on {kind.described} "{name}": {what}'
    return Refused(409, "Conflict", message)


def _check_place(kind: Kind, target: Target, metadata: Raw) -> None:
    """The namespace of an object is that of its path."""
    if not kind.resource.namespaced:
        metadata.pop("namespace", None)
    elif metadata.setdefault("namespace", target.namespace) != target.namespace:
        raise Refused(400, "BadRequest", "the namespace of the object does not match the request")


def _check_identity(write: _Write, old: Raw, new: Raw) -> None:
    """A patch by an old version is refused for that, before its uid is looked at (registry/generic, Store.Update)."""
    is_outdated = new.get("resourceVersion") not in (None, "", old["resourceVersion"])
    if new.get("uid") not in (None, "", old["uid"]):
        if not write.patches:
            what = f"Precondition failed: UID in precondition: {new['uid']}, UID in object meta: {old['uid']}"
            raise _conflict(write.kind, write.key[2], what)
        if not is_outdated:
            raise Refused(422, "Invalid", f'metadata.uid: Invalid value: "{new["uid"]}": field is immutable')
    if is_outdated:
        what = "the object has been modified; please apply your changes to the latest version and try again"
        raise _conflict(write.kind, write.key[2], what)


def _key(kind: Kind, target: Target) -> Key:
    return kind.resource, target.namespace, target.name


def _write_of(call: Request, kind: Kind, key: Key, subresource: str = "") -> _Write:
    agent = call.headers.get("user-agent", "").partition("/")[0]
    return _Write(
        kind,
        key,
        call.query.get("fieldManager") or agent or "unknown",
        subresource,
        dry_run="dryRun" in call.query,
        strict=call.query.get("fieldValidation") == STRICT,
        patches=call.method == "PATCH",
    )


def _selection(kind: Kind, query: Mapping[str, str], namespace: str) -> Callable[[Raw], bool]:
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")

    def selects(raw: Raw) -> bool:
        metadata = raw["metadata"]
        return (
            (not namespace or metadata.get("namespace") == namespace)
            and matches_labels(labels, metadata.get("labels") or {})
            and matches_fields(fields, raw, kind.selectable)
        )

    try:
        selects({"metadata": {"namespace": namespace}})
    except Unselectable as error:
        raise Refused(400, "BadRequest", str(error)) from error
    return selects


def _line(change: Change, selects: Callable[[Raw], bool]) -> bytes:
    """What one who watches a selection sees of *change*."""
    old = change.old if change.old and selects(change.old.raw) else None
    new = change.new if change.new and selects(change.new.raw) else None
    if new:
        return _event("MODIFIED" if old else "ADDED", new)
    if old and change.new:  # it does not match any more: its last state that did, at the present version
        metadata = {**old.raw["metadata"], "resourceVersion": str(change.version)}
        return _event("DELETED", _encoded({**old.raw, "metadata": metadata}))
    return _event("DELETED", old) if old else b""


def _event(kind: str, stored: Stored) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + stored.encoded + b"}\n"


def _bookmark(kind: Kind, version: int) -> bytes:
    identity = {"kind": kind.kind, "apiVersion": kind.resource.api_version}
    body = {**identity, "metadata": {"resourceVersion": str(version)}}
    return json.dumps({"type": "BOOKMARK", "object": body}).encode() + b"\n"


def _encoded(raw: Raw) -> Stored:
    return Stored(raw, json.dumps(raw).encode())


def _ok(body: Raw) -> Reply:
    return Reply(200, json.dumps({"apiVersion": "v1", "metadata": {}, **body}).encode())


def _parts(raw: Raw, *names: str) -> Raw:
    return {name: raw[name] for name in names if name in raw}


def _is_released(metadata: Raw) -> bool:
    """Whether it was deleted before, and nothing holds it any more."""
    holds = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return "deletionTimestamp" in metadata and not holds


def _same(old: Raw, new: Raw) -> bool:
    """But for what the server itself notes at each write."""
    return _compared(old) == _compared(new)


def _compared(raw: Raw) -> Raw:
    metadata = {
        name: each
        for name, each in raw["metadata"].items()
        if name not in ("managedFields", "resourceVersion") and each not in ({}, [])
    }
    return {**raw, "metadata": metadata}


def _review_of(write: _Write, old: Raw | None, new: Raw) -> Review:
    operation = "UPDATE" if old else "CREATE"
    return Review(operation, write.kind.resource, old, new, write.subresource, write.dry_run, write.manager)


def _counts(kind: Kind, old: Raw, new: Raw) -> bool:
    if kind.generation == "body":
        return _without(old, "metadata", "status") != _without(new, "metadata", "status")
    changed = old.get("spec") != new.get("spec")
    if kind.generation == "spec and annotations":
        before, after = (each["metadata"].get("annotations") or {} for each in (old, new))
        return changed or before != after
    return changed


def _without(raw: Raw, *names: str) -> Raw:
    return {name: each for name, each in raw.items() if name not in names}


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds").removesuffix("+00:00") + "Z"


def _deadline(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end
