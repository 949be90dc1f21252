"""Replay the first answer to a repeated ClientToken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.request import Params

LONGEST = 64


@dataclass(frozen=True)
class Answered:
    params: Params
    response: Mapping[str, Any]
    at: float


class Replays:
    def __init__(self) -> None:
        self._answered: dict[tuple[str, str], Answered] = {}

    def find(self, region: str, token: str, params: Params, since: float) -> Mapping[str, Any] | None:
        """The answer given to the same request after *since*; raises Fault when it was another request."""
        answered = self._answered.get((region, token))
        if answered is None or answered.at < since:
            return None
        if answered.params != params:
            raise Fault(
                "UnsupportedOperation.IdempotentParameterMismatch",
                f"The ClientToken `{token}` was used with other parameters.",
            )
        return answered.response

    def keep(self, region: str, token: str, answered: Answered) -> None:
        self._answered[region, token] = answered


def check(token: str) -> None:
    if not token.isascii() or len(token) > LONGEST:
        raise Fault(
            "InvalidParameterValue.Malformed",
            f"The ClientToken `{token}` must be ASCII and not longer than {LONGEST} characters.",
        )
