"""What a check found, and how it is shown."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from cli.output import Document, Part, Table, bad, faint, good, warning


class Verdict(StrEnum):
    WRONG = "wrong"
    WARNING = "warning"
    SKIPPED = "skipped"
    OK = "ok"


STYLES = {Verdict.WRONG: bad, Verdict.WARNING: warning, Verdict.SKIPPED: faint, Verdict.OK: good}


class Finding(Document, frozen=True):
    check: str
    verdict: Verdict
    message: str
    way_out: str = ""


class Findings(Document, frozen=True):
    findings: tuple[Finding, ...]

    @property
    def wrong(self) -> int:
        return sum(each.verdict is Verdict.WRONG for each in self.findings)


def sorted_findings(found: Iterator[Finding]) -> Findings:
    """The gravest first."""
    order = [*Verdict]
    return Findings(tuple(sorted(found, key=lambda each: order.index(each.verdict))))


def parts_of(found: Findings) -> Iterator[Part]:
    rows = [(STYLES[each.verdict](each.verdict), each.check, each.message) for each in found.findings]
    yield Table(("VERDICT", "CHECK", "FINDING"), rows)
    ways = dict.fromkeys((each.check, each.way_out) for each in found.findings if each.way_out)
    if ways:
        yield ""
        yield Table(("CHECK", "WHAT TO DO"), [*ways])
