"""Match conditions, evaluated outside the API server by Google's CEL, with optional values and strings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

VARIABLES = ("object", "oldObject", "request")
"""Those of match conditions, but for ``authorizer``, which asks the API server's authorizer."""
AUTHORIZER = re.compile(r"\bauthorizer\b")


class NotEvaluable(Exception):
    """Only the API server itself can evaluate the expression; the text says why."""


@dataclass(frozen=True)
class Failed:
    """The expression has no value: the API server goes by the failure policy."""

    message: str


def evaluate(expression: str, variables: Mapping[str, Any]) -> bool | Failed:
    """Of all VARIABLES, None where the request has no such object; NotEvaluable."""
    value = _compiled(expression).eval(data=dict(variables))
    kind = value.type().name()
    if kind == "BOOL":
        return bool(value.value())
    return Failed(_error(value) if kind == "ERROR" else f"its value is of type {kind.lower()}, not bool")


def _error(value: Any) -> str:
    try:
        return str(value.value())
    except TypeError:  # of a kind that has no form in Python: an optional value
        return "its value is not bool"


@cache
def _compiled(expression: str) -> Any:
    if AUTHORIZER.search(expression):
        raise NotEvaluable("it uses authorizer, which only the API server has")
    try:
        return _environment().compile(expression)
    except RuntimeError as error:
        raise NotEvaluable(f"it cannot be compiled here: {str(error).splitlines()[0]}") from None


@cache
def _environment() -> Any:
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_optional, ext_strings
    except ImportError as error:
        raise NotEvaluable(f"the CEL library cannot be loaded: {error}") from None
    return cel.NewEnv(
        variables=dict.fromkeys(VARIABLES, cel.Type.DYN),
        extensions=[ext_optional.ExtOptional(), ext_strings.ExtStrings()],
    )
