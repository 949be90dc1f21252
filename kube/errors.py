"""Whatever goes wrong between us and the API server is one of these errors.

::

    KubeError
    ├── NotConfigured           no way to the API server, or no credentials, in this environment
    ├── Unreachable             no whole, usable answer came: connect, reset, TLS, timeout, not JSON
    └── ApiError                the server said no
        ├── Unauthorized 401    ├── Forbidden 403         ├── NotFound 404
        ├── Conflict 409        ├── AlreadyExists 409     ├── Expired 410
        ├── Invalid 422         ├── TooManyRequests 429   └── ServerError 5xx
"""

from __future__ import annotations

import msgspec

from kube.types import complete


class KubeError(Exception):
    """Any failure to get something done at the API server."""


class NotConfigured(KubeError):
    """Neither a service account nor a usable kubeconfig was found, or its credentials cannot be read."""


class Unreachable(KubeError):
    """No usable answer came; the request may or may not have been carried out."""


class ApiError(KubeError):
    """The server refused; *reason* and *message* are those of its Status, *retry_after* is in seconds."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{message or 'no message'} ({status} {reason or 'no reason'})")
        self.status, self.reason, self.message, self.retry_after = status, reason, message, retry_after


class Unauthorized(ApiError):
    pass


class Forbidden(ApiError):
    pass


class NotFound(ApiError):
    pass


class Conflict(ApiError):
    """The object is not at the resourceVersion, or has not the uid, that was asked for."""


class AlreadyExists(ApiError):
    pass


class Expired(ApiError):
    """The resourceVersion or the continue token is older than what the server remembers."""


class Invalid(ApiError):
    pass


class TooManyRequests(ApiError):
    """Overload, or an eviction that a disruption budget does not allow now."""


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


class StatusDetails(msgspec.Struct, rename="camel"):
    retry_after_seconds: float = 0


class Status(msgspec.Struct):
    """``metav1.Status``, as it comes in an answer's body or in an ERROR event of a watch."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: StatusDetails | None = None


complete(Status)


def api_error(code: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """The error for an answer with HTTP status *code*; *retry_after* is the header of that name."""
    status = _decode(body)
    reason = status.reason or ""
    message = status.message or body[:200].decode(errors="replace")
    return _class_of(code, reason)(code, reason, message, _delay(retry_after, status.details))


def event_error(body: bytes) -> ApiError:
    """The error that an ERROR event of a watch brings; one that says nothing counts as a server error."""
    return api_error(_decode(body).code or 500, body)


def _class_of(code: int, reason: str) -> type[ApiError]:
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExists
    return _BY_STATUS.get(code, ServerError if code >= 500 else ApiError)


def _decode(body: bytes) -> Status:
    # Proxies and aggregated API servers answer in plain text or in JSON of their own.
    try:
        return msgspec.json.decode(body, type=Status)
    except msgspec.MsgspecError:
        return Status()


def _delay(header: str | None, details: StatusDetails | None) -> float | None:
    if header and header.isdecimal():  # the API server writes seconds, never the date form
        return float(header)
    return details.retry_after_seconds if details and details.retry_after_seconds else None
