"""What a feature adds to `status` and `doctor` while it is on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from cli.errors import unreadable
from cli.installation import Needs
from cli.inventory import Inventory
from cli.output import Cell, Document, Part
from kube.errors import KubeError
from kube.resources import Resource
from settings import Settings

PAGE = "docs/how-to/troubleshooting.md"
Raw = dict[str, Any]


class Problem(Document, frozen=True):
    what: str
    way_out: str


class Verdict(StrEnum):
    """The gravest first."""

    WRONG = "wrong"
    WARNING = "warning"
    SKIPPED = "skipped"
    OK = "ok"


class Finding(Document, frozen=True):
    check: str
    verdict: Verdict
    message: str
    way_out: str = ""

    @classmethod
    def unread(cls, check: str, what: str, error: KubeError) -> Finding:
        failure = unreadable(error)
        return cls(check, Verdict.SKIPPED, f"{what}not read: {failure.message}", failure.way_out)


class Overview(Document, frozen=True):
    """A feature at a glance: its fields are for programs."""

    def state(self, now: datetime) -> Cell:
        """In a line."""
        raise NotImplementedError

    def parts(self, now: datetime) -> Iterable[Part]:
        """Below everything else."""
        return ()


@dataclass(frozen=True)
class Probe:
    """*body* is sent as a dry run; *is_marked* says of the answer whether the webhook has seen it."""

    what: str
    resource: Resource
    body: Raw
    is_marked: Callable[[Raw], bool]


@dataclass(frozen=True)
class Health:
    """Of a feature, by its *title*: *value* is the name of the chart's values for it, *field* of its overview as JSON.

    *look* returns the overview, and what is wrong; KubeError, NotServed. *needs* are the permissions without which
    it does nothing; docs/reference/permissions.md has all.
    """

    title: str
    value: str
    field: str
    what: str
    """Is read, for one who may not."""
    look: Callable[[Inventory], tuple[Overview, Iterable[Problem]]]
    needs: Callable[[Settings], Needs]
    probe: Callable[[Settings], Probe] | None = None
    checks: Callable[[Inventory], Iterator[Finding]] = lambda _: iter(())


def probe_object(api_version: str, kind: str, **metadata: Any) -> Raw:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": PROBE_NAME, **metadata}}


PROBE_NAME = "drawbridge-doctor"


def probe_pod() -> Raw:
    """The spec of one that every profile of pod security admits."""
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    resources = {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "1m", "memory": "1Mi"}}
    container = {"name": "none", "image": PROBE_NAME, "securityContext": restricted, "resources": resources}
    return {"containers": [container], "automountServiceAccountToken": False}


def named(names: list[str], one: str, many: str, most: int = 3) -> str:
    """The first ones with the verb for their number."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(sorted(names)[:most])}{more} {one if len(names) == 1 else many}"
