"""An HTTP request as a value, and its parameters, decoded and checked for the action."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from dev.lab.cloud.envelope import Fault

UNKNOWN = re.compile(r"unknown field `(.*?)`(?: - at `\$\.?(.*)`)?")
MISSING = re.compile(r"missing required field `(.*?)`(?: - at `\$\.?(.*)`)?")


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="pascal"):
    """The parameters of an action, named as in its documentation."""


class Filter(Params, frozen=True):
    name: str
    values: list[str]


P = TypeVar("P", bound=Params)


@dataclass(frozen=True)
class Request:
    """*headers* by their names in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def action(self) -> str:
        return self.headers.get("x-tc-action", "")

    def read(self, kind: type[P]) -> P:
        """Raises Fault for parameters that the action does not know, misses, or wants in another type."""
        try:
            return msgspec.json.decode(self.body or b"{}", type=kind)
        except msgspec.ValidationError as error:
            raise _fault(str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Fault("InvalidParameter", f"The request's body is not JSON: {error}.") from None


def _fault(message: str) -> Fault:
    if found := UNKNOWN.search(message):
        return Fault("UnknownParameter", f"The parameter `{_path(found)}` is not recognized.")
    if found := MISSING.search(message):
        return Fault("MissingParameter", f"The request is missing a required parameter `{_path(found)}`.")
    return Fault("InvalidParameter", f"The value type of a parameter is wrong: {message}.")


def _path(found: re.Match[str]) -> str:
    return f"{found[2]}.{found[1]}" if found[2] else found[1]
