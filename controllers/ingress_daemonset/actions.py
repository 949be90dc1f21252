"""What a plan wants done, one write each; a change is for nothing but the version that it was made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from kube.types import ObjectMeta

Kind = Literal["Deployment", "DaemonSet", "Role", "RoleBinding", "Node", "IngressDaemonSet"]


@dataclass(frozen=True)
class Create:
    kind: Kind
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """A merge patch, of the object or of a *subresource* of it."""

    kind: Kind
    name: str
    body: Mapping[str, Any]
    subresource: str = ""


@dataclass(frozen=True)
class Delete:
    """Of the object with this uid only."""

    kind: Kind
    name: str
    uid: str


Action = Create | Change | Delete
Name = tuple[Kind, str]
"""Of an object in the namespace that is worked on, or of a Node."""


@dataclass(frozen=True)
class Writes:
    """What the writer knows and the objects do not say.

    A write may yet arrive at what is *uncertain*. What is *late* was written so long after it was decided on that
    graces count from this time on.
    """

    uncertain: frozenset[Name] = frozenset()
    late: Mapping[Name, datetime] = field(default_factory=dict)


def change(kind: Kind, metadata: ObjectMeta, parts: Mapping[str, Any], **rest: Mapping[str, Any]) -> Change:
    """*parts* of the *metadata* as they are held, and *rest* of the object beside them, empty ones left out."""
    guard = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
    body: dict[str, Any] = {"metadata": {**parts, **guard}}
    return Change(kind, metadata.name, body | {name: part for name, part in rest.items() if part})
