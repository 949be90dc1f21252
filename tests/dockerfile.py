"""A Dockerfile as values, and what its words mean once its variables are filled in."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
FLAG = re.compile(r"--(\w+)=(\S+)\s+")


@dataclass(frozen=True)
class Instruction:
    """*text* is what follows the verb and its flags, on one line."""

    line: int
    verb: str
    text: str
    flags: Mapping[str, str] = field(default_factory=dict)

    def words(self, variables: Mapping[str, str]) -> list[str]:
        """The parts of *text*, of which a list in JSON has its own."""
        if self.is_exec_form:
            return [str(word) for word in json.loads(self.text)]
        return [filled(word, variables) for word in shlex.split(self.text)]

    def pairs(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Of NAME=VALUE parts; a name alone has no value."""
        return {name: value for name, _, value in (word.partition("=") for word in self.words(variables))}

    @property
    def is_exec_form(self) -> bool:
        return self.text.startswith("[")


def parse(text: str) -> list[Instruction]:
    return [_instruction(line, joined) for line, joined in _joined(text)]


def filled(text: str, variables: Mapping[str, str]) -> str:
    """*text* with the value of each variable; unknown ones are empty."""
    return VARIABLE.sub(lambda found: variables.get(found[1] or found[2], ""), text)


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Each instruction on one line, with the number of its first; comments are left out, between its lines, too."""
    begin, parts = 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        begin = begin if parts else number
        parts.append(line.strip().removesuffix("\\").strip())
        if not line.rstrip().endswith("\\"):
            yield begin, " ".join(parts)
            parts = []


def _instruction(line: int, joined: str) -> Instruction:
    verb, _, text = joined.partition(" ")
    flags = {}
    while found := FLAG.match(text):
        flags[found[1]] = found[2]
        text = text[found.end() :]
    return Instruction(line, verb.upper(), text.strip(), flags)
