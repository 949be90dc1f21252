"""AdmissionReviews as values: bytes in, bytes out."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Literal, Protocol, TypeVar

import jsonpatch
import msgspec

from kube.types import Completed, at_any_depth, at_any_time

LONGEST_LIST, LONGEST = 256 * 1024, 2 * 1024 * 1024
"""Bytes of one field. All annotations of a stored object have 256 KiB, before JSON escapes them."""
ABSENT = msgspec.Raw()


def shortened(raw: msgspec.Raw, kind: type[msgspec.Struct]) -> bytes | msgspec.Raw:
    """Of *raw*, what *kind* reads, without fields that are too long: they take their defaults. MsgspecError."""
    if memoryview(raw).nbytes <= LONGEST_LIST:
        return raw
    outline = msgspec.json.decode(raw, type=_outline_of(kind))
    _shorten(outline, kind)
    return msgspec.json.encode(outline)


def _shorten(outline: msgspec.Struct, kind: type[msgspec.Struct]) -> None:
    for each in msgspec.structs.fields(kind):
        value = getattr(outline, each.name)
        if isinstance(value, msgspec.Struct):
            _shorten(value, each.type)
        elif each.type is not msgspec.Raw and value is not msgspec.UNSET and _is_too_long(memoryview(value)):
            setattr(outline, each.name, ABSENT)


def _is_too_long(value: memoryview) -> bool:
    return value.nbytes > (LONGEST_LIST if bytes(value[:1]) == b"[" else LONGEST)


@lru_cache
def _outline_of(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """With the fields of *kind*, each of which stays as it is written."""
    fields = [_outline_of_field(each) for each in msgspec.structs.fields(kind)]
    made = msgspec.defstruct(f"{kind.__name__}Outline", fields, omit_defaults=True)
    msgspec.json.Decoder(made)  # as Completed
    return made


def _outline_of_field(each: msgspec.structs.FieldInfo) -> tuple[str, Any, Any]:
    if isinstance(each.type, type) and issubclass(each.type, msgspec.Struct):
        unset = msgspec.field(name=each.encode_name, default=msgspec.UNSET)
        return each.name, _outline_of(each.type) | msgspec.UnsetType, unset
    return each.name, msgspec.Raw, msgspec.field(name=each.encode_name, default=ABSENT)


Object = Mapping[str, Any]


def patch(before: Object, after: Object) -> tuple[Mapping[str, Any], ...]:
    """RFC 6902 operations that turn *before* into *after*."""
    # Without moves: which of two equal values is moved depends on the order of a set.
    return tuple(jsonpatch.JsonPatch.from_diff(*_without_shared(before, after), optimization=False))


def _without_shared(before: Object, after: Object) -> tuple[Object, Object]:
    """Both, without values that are one object: comparing them would take most of an admission's time."""
    old, new = dict(before), dict(after)
    for name in before.keys() & after.keys():
        if old[name] is new[name]:
            del old[name], new[name]
        elif isinstance(old[name], dict) and isinstance(new[name], dict):
            old[name], new[name] = _without_shared(old[name], new[name])
    return old, new


API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

# An object may have 3 MiB in the API server, an update carries two of them, and there is the envelope.
MAX_BODY = 7 * 1024 * 1024

ARRIVED = "drawbridge.arrived"
"""Key of the WSGI environ: when the client began to wait, by time.monotonic()."""

WARNING_LENGTH = 120
"""The API server may cut off longer ones."""
ERROR_LENGTH = 500
"""Bounds what an error quotes of a body, in answers and logs."""

MESSAGE_LENGTH, MOST_WARNINGS = 8_000, 20
"""Of an answer."""
MOST_PARTS = 20_000
"""Of an object that is decoded whole, as `parts` counts them: large ones have 2,000."""
MOST_TOKENS = 1_000_000
"""Strings and brackets of a body that is deep: an object of 1.5 MiB has fewer."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

T = TypeVar("T")

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


class ReviewError(Exception):
    """The body, or an object in it, is malformed; the text is for its sender."""

    def __init__(self, text: str) -> None:
        super().__init__(text if len(text) <= ERROR_LENGTH else f"{text[:ERROR_LENGTH]}...")


class UserInfo(msgspec.Struct, frozen=True):
    username: str = ""


class Request(msgspec.Struct, frozen=True):
    """What features read of a request; objects stay raw, so that each feature decodes only the fields it reads."""

    uid: str
    operation: Operation
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: UserInfo = UserInfo()
    dry_run: bool = False
    object: msgspec.Raw | None = None
    old_object: msgspec.Raw | None = None


@dataclass(frozen=True)
class Decision:
    """The answer; ``code`` of HTTP, ``reason`` and ``retry_after`` (seconds) are for a denied client."""

    allowed: bool
    message: str = ""
    code: int = 0
    reason: str = ""
    retry_after: int = 0
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = field(default_factory=dict)
    patch: tuple[Mapping[str, Any], ...] = ()
    """RFC 6902 operations on the object under review."""


class Webhook(Protocol):
    @property
    def path(self) -> str:
        """As in the webhook configuration."""

    @property
    def name(self) -> str:
        """As in metrics and logs: ``ip_reservation``."""

    def fails_open(self) -> bool:
        """Whether a request is allowed when ``review`` raises; one from EXEMPT always is."""

    def review(self, request: Request, deadline: float) -> Decision:
        """Decide before *deadline* (by ``time.monotonic``)."""


EXEMPT = "kube-system"
"""The namespace in which nothing waits for a webhook: the chart registers no webhook there that fails closed."""


def fails_open(webhook: Webhook, request: Request) -> bool:
    return request.namespace == EXEMPT or webhook.fails_open()


def allow(*, warnings: tuple[str, ...] = (), audit: Mapping[str, str] | None = None) -> Decision:
    return Decision(True, warnings=warnings, audit=audit or {})


def change(
    before: Object, after: Object, *, warnings: tuple[str, ...] = (), audit: Mapping[str, str] | None = None
) -> Decision:
    """Allow *before* as *after*; other fields stay."""
    return Decision(True, warnings=warnings, audit=audit or {}, patch=patch(before, after))


def deny(
    message: str,
    *,
    code: int = 403,
    reason: str = "Forbidden",
    retry_after: int = 0,
) -> Decision:
    short = message if len(message) <= MESSAGE_LENGTH else f"{message[:MESSAGE_LENGTH]}..."
    return Decision(False, short, code, reason, retry_after)


FAILED = {400: "BadRequest", 500: "InternalError", 504: "Timeout"}
"""Reasons of denials by the fail mode."""


def unreviewed(webhook: Webhook, request: Request, why: str, code: int) -> Decision:
    """The answer when a review raises, by the fail mode."""
    if fails_open(webhook, request):
        what = f"{webhook.name} failed and was skipped, uid {request.uid}"
        return allow(warnings=(what,), audit={"failed-open": what})
    return deny(
        f"{webhook.name} failed to review this request, uid {request.uid}, and may not be skipped; {why}",
        code=code,
        reason=FAILED[code],
    )


# Features put these names into paths of the API server; Kubernetes' own rules are stricter.
Name = Annotated[str, msgspec.Meta(max_length=253, pattern=r"^(?!\.{1,2}\Z)[^/%?#\x00-\x20\x7f]*\Z")]


class _WireRequest(msgspec.Struct, rename="camel"):
    """A request as it is sent: msgspec cannot decode ``Raw | None``."""

    uid: Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
    operation: Operation
    sub_resource: str | None = None
    name: Name | None = None
    namespace: Name | None = None
    user_info: UserInfo | None = None
    dry_run: bool | None = None
    object: msgspec.Raw = msgspec.Raw()
    old_object: msgspec.Raw = msgspec.Raw()


class _WireReview(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _WireRequest | None = None


class _DeleteOptions(msgspec.Struct, metaclass=Completed, rename="camel"):
    dry_run: tuple[str, ...] = ()


class _Eviction(msgspec.Struct, metaclass=Completed, rename="camel"):
    delete_options: _DeleteOptions = msgspec.field(default_factory=_DeleteOptions)


_review_decoder = msgspec.json.Decoder(_WireReview)
_encoder = msgspec.json.Encoder()


def parse(body: bytes) -> Request:
    """The request in *body*; raises ReviewError."""
    try:
        review = at_any_depth(_review_decoder.decode, body, most=MOST_TOKENS)
    except msgspec.ValidationError as error:
        raise ReviewError(f"the body is not an {KIND} of {API_VERSION}: {error}") from None
    except UNREADABLE as error:
        raise ReviewError(f"the body is not JSON: {error}") from None
    if (review.kind, review.api_version) != (KIND, API_VERSION):
        raise ReviewError(
            f"got apiVersion {review.api_version!r}, kind {review.kind!r};"
            f" only {KIND} of {API_VERSION} is understood:"
            ' register the webhook with admissionReviewVersions: ["v1"]'
        )
    if review.request is None:
        raise ReviewError(f"the {KIND} has no request")
    return _request(review.request)


def decoded(raw: msgspec.Raw, kind: type[T], field: str) -> T:
    """The object in *field* of a request, without fields that are too long; raises ReviewError.

    As a dict it is decoded with all that it has.
    """
    try:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return at_any_time(lambda data: msgspec.json.decode(data, type=kind), shortened(raw, kind))
        return msgspec.json.decode(raw, type=kind)
    except UNREADABLE as error:
        raise ReviewError(f"request.{field} is malformed: {error}") from None


def decoded_whole(raw: msgspec.Raw | None, field: str) -> dict[str, Any]:
    """All of the object in *field* of a request, empty for none; raises ReviewError, also for too large an object."""
    if (count := parts(raw)) > MOST_PARTS:
        raise ReviewError(
            f"request.{field} has about {count} fields and values; at most {MOST_PARTS} are read"
        )
    return decoded(raw or msgspec.Raw(b"{}"), dict[str, Any], field)


def parts(raw: msgspec.Raw | None) -> int:
    """How many values *raw* has at most: counting is much cheaper than decoding."""
    data = bytes(raw or b"")
    return sum(map(data.count, (b"{", b"[", b",")))


def is_dry_run(request: Request) -> bool:
    """Whether *request* may write nothing: an eviction may say so in its delete options alone."""
    if request.dry_run or request.sub_resource != "eviction" or request.object is None:
        return request.dry_run
    return bool(decoded(request.object, _Eviction, "object").delete_options.dry_run)


def render(request: Request, decision: Decision) -> bytes:
    """The AdmissionReview that answers *request*."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": decision.allowed}
    if not decision.allowed:
        status = {"code": decision.code, "reason": decision.reason, "message": decision.message}
        retry = {"details": {"retryAfterSeconds": decision.retry_after}} if decision.retry_after else {}
        response["status"] = status | retry
    if decision.warnings:
        response["warnings"] = [_short(warning) for warning in decision.warnings[:MOST_WARNINGS]]
    if decision.audit:
        response["auditAnnotations"] = decision.audit
    if decision.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = b64encode(_encoder.encode(decision.patch)).decode()
    return _encoder.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def _short(warning: str) -> str:
    # A warning travels in an HTTP header: a line break would make the API server drop it.
    line = " ".join(warning.split())
    return line if len(line) <= WARNING_LENGTH else line[: WARNING_LENGTH - 3] + "..."


def _request(wire: _WireRequest) -> Request:
    given = msgspec.structs.asdict(wire)
    given |= {"object": _present(wire.object), "old_object": _present(wire.old_object)}
    return Request(**{name: value for name, value in given.items() if value is not None})


def _present(raw: msgspec.Raw) -> msgspec.Raw | None:
    view = memoryview(raw)
    return None if view.nbytes <= 4 and bytes(view) in (b"", b"null") else raw
