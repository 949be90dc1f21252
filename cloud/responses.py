"""What an answer of the cloud says: the fields that were asked for, or an error, and never nothing.

Its Content-Type is not looked at. The SDK's own decoder overlooks errors, and takes them for a success without
any field, unless the type is exactly application/json.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from cloud.error_codes import kind_of
from cloud.errors import CloudError, Throttled, Unavailable
from cloud.response_types import Pascal

T = TypeVar("T")


class _Envelope(Pascal):
    response: msgspec.Raw


class _Problem(Pascal):
    code: str
    message: str = ""


class _Outcome(Pascal):
    request_id: str
    error: _Problem | None = None


# As in cloud.response_types: threads use them from the beginning.
_ENVELOPES = msgspec.json.Decoder(_Envelope)
_OUTCOMES = msgspec.json.Decoder(_Outcome)


def decoded(content: bytes, status: int, type: type[T], action: str) -> T:  # noqa: A002 (reads best)
    """What the answer brings; the error it contains; or Unavailable when it is not an answer of the cloud."""
    try:
        response = _ENVELOPES.decode(content).response
        outcome = _OUTCOMES.decode(response)
        if outcome.error:
            raise _refusal(outcome.error, outcome.request_id, action)
        return msgspec.json.decode(response, type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _unusable(content, status, error, action) from error


def _refusal(problem: _Problem, request_id: str, action: str) -> CloudError:
    return kind_of(problem.code)(problem.code, problem.message, action=action, request_id=request_id)


def _unusable(content: bytes, status: int, error: Exception, action: str) -> CloudError:
    # What looks like JSON is not quoted: it may hold the credentials that someone asked for.
    begin = content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    found = str(error) if begin in b"{[" else content[:200].decode(errors="replace")
    kind = Throttled if status == 429 else Unavailable
    return kind(f"HTTP{status}", f"this is no answer of the cloud's: {found!r}", action=action)
