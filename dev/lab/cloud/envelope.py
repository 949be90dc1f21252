"""The envelope of all answers: a Response with a RequestId, and an Error if the call failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class Fault(Exception):
    """A documented error code and its message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


def success(response: Mapping[str, Any], request_id: str) -> bytes:
    return msgspec.json.encode({"Response": {**response, "RequestId": request_id}})


def failure(fault: Fault, request_id: str) -> bytes:
    error = {"Code": fault.code, "Message": fault.message}
    return success({"Error": error}, request_id)
