"""An informer with a LIST and WATCH of its own, which nothing shares."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from kube.client import Client, Resource
from kube.informer import Informer, ListWatch
from kube.resources import ALL, Selection
from kube.types import Object, ObjectMeta, Value

T = TypeVar("T", bound=Object)


class Whole(Value, frozen=True):
    """An object of any kind: of its specification and status every field may matter, so both stay as they came."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


def informer_of(
    client: Client,
    resource: Resource,
    type: type[T],  # noqa: A002 - as in the client
    selection: Selection = ALL,
    **options: Any,
) -> Informer[T]:
    """*options* are those of a ListWatch."""
    return Informer(ListWatch(client, resource, selection, **options), msgspec.json.Decoder(type).decode)
