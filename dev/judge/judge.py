"""Ask every invariant at every instant, and once more when the world has come to rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields

from dev.judge.observation import Observation

PARTS = [each.name for each in fields(Observation)]


@dataclass(frozen=True)
class Finding:
    """An invariant that did not hold."""

    invariant: str
    at: float
    message: str


class Invariant:
    """*name* is the promise, with its allowance."""

    name = ""
    sees: Sequence[str] = ()
    """The parts of an observation of which one has changed when `look` is asked; none: it is asked each time."""

    def look(self, seen: Observation) -> Iterator[str]:
        """What contradicts the promise at this instant; instants come in order."""
        yield from ()

    def rest(self, seen: Observation) -> Iterator[str]:
        """What contradicts it once nothing has happened for a while."""
        yield from ()


class Since:
    """How long something has been so, without a break."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def of(self, now: Iterable[str], at: float) -> dict[str, float]:
        """Seconds for each that is so now."""
        self._since = {key: self._since.get(key, at) for key in now}
        return {key: at - since for key, since in self._since.items()}


@dataclass(frozen=True)
class Promise:
    """An invariant in certain terms."""

    make: Callable[..., Invariant]
    terms: tuple[tuple[str, object], ...] = ()

    @classmethod
    def of(cls, make: Callable[..., Invariant], **terms: object) -> Promise:
        return cls(make, tuple(terms.items()))


class Judge:
    """Keeps the first finding of each invariant: what follows is often its consequence."""

    def __init__(self, invariants: Sequence[Invariant]) -> None:
        self._invariants = invariants
        self._promised: dict[Promise, Invariant] = {}
        self.findings: dict[str, Finding] = {}
        self._before: Observation | None = None

    def promise(self, promises: Sequence[Promise]) -> None:
        """From now on these hold; one in the terms of before goes on with what it has seen."""
        before, self._before = self._promised, None  # what is new has seen nothing
        self._promised = {each: before.get(each) or each.make(**dict(each.terms)) for each in promises}
        self._invariants = list(self._promised.values())

    def look(self, seen: Observation) -> None:
        changed, self._before = _changed(self._before, seen), seen
        for invariant in self._invariants:
            is_asked = not invariant.sees or not changed.isdisjoint(invariant.sees)
            if is_asked and invariant.name not in self.findings:
                self._note(invariant.name, seen.at, invariant.look(seen))

    def rest(self, seen: Observation) -> None:
        for invariant in self._invariants:
            if invariant.name not in self.findings:
                self._note(invariant.name, seen.at, invariant.rest(seen))

    def find(self, name: str, at: float, message: str) -> None:
        self.findings.setdefault(name, Finding(name, at, message))

    def _note(self, name: str, at: float, messages: Iterator[str]) -> None:
        if message := next(messages, None):
            self.find(name, at, message)


def _changed(before: Observation | None, now: Observation) -> set[str]:
    """The names of the parts that are not the same objects any more."""
    return {each for each in PARTS if before is None or getattr(before, each) is not getattr(now, each)}
