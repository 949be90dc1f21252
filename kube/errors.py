"""All errors of calls to the API server, and how long to wait after the n-th in a row."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from kube.types import Completed
from runtime import random


@dataclass(frozen=True)
class Backoff:
    """Seconds: *base*, doubled with each failure up to *cap*, and up to *jitter* times as much again."""

    base: float
    cap: float
    jitter: float = 0.0

    def delay(self, failures: int) -> float:
        # 2**64 times any base is beyond any cap; a float power would overflow one day.
        delay = min(self.cap, self.base * 2.0 ** min(failures - 1, 64))
        return delay * (1 + random.uniform(0, self.jitter))


LONGEST_RETRY_AFTER = 60.0


class KubeError(Exception):
    """Any failure of a call to the API server; *retry_after* are the seconds that it asks to wait, 0 without any."""

    retry_after = 0.0


def asked_pause(error: Exception | None) -> float:
    """Seconds for which the API server asks to wait; 0 for any other error."""
    return error.retry_after if isinstance(error, KubeError) else 0.0


class NotConfigured(KubeError):
    """There is neither a ServiceAccount nor a usable kubeconfig, or the credentials cannot be read."""


class Unreachable(KubeError):
    """No whole, usable answer came: connect, reset, TLS, timeout, not JSON. The request may have been carried out."""


class ApiError(KubeError):
    """The server refused: *reason* and *message* of its Status."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{message or 'no message'} ({status} {reason or 'no reason'})")
        self.status, self.reason, self.message, self.retry_after = status, reason, message, retry_after


class Unauthorized(ApiError):
    """The credentials are missing, wrong or expired."""


class Forbidden(ApiError):
    pass


class NotFound(ApiError):
    pass


class Conflict(ApiError):
    """The object has another resourceVersion or uid."""


class AlreadyExists(ApiError):
    pass


class Expired(ApiError):
    """The resourceVersion or the continue token is older than the history of the server."""


class Invalid(ApiError):
    pass


class TooManyRequests(ApiError):
    """Overload, or an eviction that a PodDisruptionBudget does not allow now."""


class ServerError(ApiError):
    pass


_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}


class StatusDetails(msgspec.Struct, metaclass=Completed, rename="camel"):
    retry_after_seconds: float = 0


class Status(msgspec.Struct, metaclass=Completed):
    """``metav1.Status``, as it comes in an answer's body or in an ERROR event of a watch."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: StatusDetails | None = None


def api_error(code: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """The error for an answer with HTTP status *code*; *retry_after* is the header of that name."""
    status = _decode(body)
    reason = status.reason or ""
    message = status.message or body[:200].decode(errors="replace")
    return _class_of(code, reason)(code, reason, message, _delay(retry_after, status.details))


def event_error(body: bytes) -> ApiError:
    """The error in an ERROR event of a watch; without a code it is a server error."""
    return api_error(_decode(body).code or 500, body)


def _class_of(code: int, reason: str) -> type[ApiError]:
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExists
    return _BY_STATUS.get(code, ServerError if code >= 500 else ApiError)


def _decode(body: bytes) -> Status:
    # Proxies and aggregated API servers answer in plain text or in other JSON.
    try:
        return msgspec.json.decode(body, type=Status)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Status()


def _delay(header: str | None, details: StatusDetails | None) -> float:
    asked = details.retry_after_seconds if details else 0.0
    if header and header.isdecimal():  # the API server writes seconds, never the date form
        asked = float(header)
    return min(asked, LONGEST_RETRY_AFTER)
