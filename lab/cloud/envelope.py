"""Every answer has the one shape: a Response with its RequestId, or with an Error inside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class Fault(Exception):
    """The API's own way of saying no: an error code of its documentation and a sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


def success(response: Mapping[str, Any], request_id: str) -> bytes:
    return msgspec.json.encode({"Response": {**response, "RequestId": request_id}})


def failure(fault: Fault, request_id: str) -> bytes:
    error = {"Code": fault.code, "Message": fault.message}
    return success({"Error": error}, request_id)
