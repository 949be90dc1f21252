"""An informer with a LIST and WATCH of its own, which nothing shares."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from kube.client import Client, Resource
from kube.informer import Informer, ListWatch
from kube.resources import ALL, Selection
from kube.types import Object

T = TypeVar("T", bound=Object)


def informer_of(
    client: Client,
    resource: Resource,
    type: type[T],  # noqa: A002 - as in the client
    selection: Selection = ALL,
    **options: Any,
) -> Informer[T]:
    """*options* are those of a ListWatch."""
    return Informer(ListWatch(client, resource, selection, **options), msgspec.json.Decoder(type).decode)
