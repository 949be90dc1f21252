"""What a plan writes, one request each; a change applies only to the version that it was decided on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from kube.types import ObjectMeta

LONG_AGO = datetime.fromisoformat("1970-01-01T00:00:00+00:00")

Kind = Literal["Deployment", "DaemonSet", "RoleBinding", "Node", "IngressDaemonSet"]


class Target(NamedTuple):
    """The object that an action is for; *namespace* is empty for a Node."""

    kind: Kind
    namespace: str
    name: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def target(kind: Kind, metadata: ObjectMeta) -> Target:
    return Target(kind, metadata.namespace, metadata.name)


@dataclass(frozen=True)
class Create:
    target: Target
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """A merge patch of the object, or of a *subresource* of it."""

    target: Target
    body: Mapping[str, Any]
    subresource: str = ""


@dataclass(frozen=True)
class Delete:
    """Only of the object with this uid."""

    target: Target
    uid: str


Action = Create | Change | Delete


Seen = Mapping[tuple[Target, datetime], datetime]


@dataclass(frozen=True)
class Writes:
    """What is known of the controller's writes, but not visible in the objects.

    A write may still arrive at an *uncertain* target. What is wanted of a *refused* one is refused, with these words.
    *seen* is when this process first saw a target with the mark of a time: it stays while the mark does, so that it is
    not compared.
    """

    uncertain: frozenset[Target] = frozenset()
    refused: Mapping[Target, str] = field(default_factory=dict)
    seen: Seen = field(default_factory=dict, compare=False)

    def began(self, marked_at: datetime, marked: Target) -> datetime:
        """From when a grace counts: by our clock, whatever the one shows by which it was *marked*."""
        return self.seen.get((marked, marked_at), marked_at)

    @property
    def may_detach(self) -> bool:
        return any(each.kind == "Node" for each in self.uncertain)


def create(kind: Kind, body: Mapping[str, Any]) -> Create:
    metadata = body["metadata"]
    return Create(Target(kind, metadata["namespace"], metadata["name"]), body)


def change(
    kind: Kind,
    held: ObjectMeta,
    metadata: Mapping[str, Any],
    subresource: str = "",
    **parts: Mapping[str, Any],
) -> Change:
    """Of *metadata* and of other *parts* of the object; empty parts are left out."""
    guard = {"uid": held.uid, "resourceVersion": held.resource_version}
    body: dict[str, Any] = {"metadata": {**metadata, **guard}}
    body |= {name: part for name, part in parts.items() if part}
    return Change(target(kind, held), body, subresource)


def delete(kind: Kind, held: ObjectMeta) -> Delete:
    return Delete(target(kind, held), held.uid)
