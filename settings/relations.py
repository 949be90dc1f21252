"""What must hold between the fields of one section, declared as data: the chart's templates check the same."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol


class Relation(Protocol):
    def problem(self, fields: Mapping[str, Any]) -> str | None:
        """What is wrong with *fields*, by their names in the file."""


@dataclass(frozen=True)
class Order:
    """Each of the durations is shorter than the next one, or equal where that is allowed."""

    names: tuple[str, ...]
    or_equal: bool = False

    @property
    def rule(self) -> str:
        return "no longer than" if self.or_equal else "shorter than"

    def problem(self, fields: Mapping[str, Any]) -> str | None:
        for name, limit in pairwise(self.names):
            value, most = fields[name], fields[limit]
            if value > most or (value == most and not self.or_equal):
                return f"{name} ({value:g}s) must be {self.rule} {limit} ({most:g}s)"
        return None


@dataclass(frozen=True)
class ValuesOfOperators:
    """A requirement has values if and only if its operator is one of those that take some."""

    operators: tuple[str, ...]

    def problem(self, fields: Mapping[str, Any]) -> str | None:
        takes, has = fields["operator"] in self.operators, bool(fields["values"])
        if takes == has:
            return None
        rule = "needs values, for example values: [redis]" if takes else "takes no values: leave them out"
        return f"operator {fields['operator']} of key {fields['key']!r} {rule}"
