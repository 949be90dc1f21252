"""What the webhooks of a replica share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kube.client import Client
from settings import Settings


@dataclass(frozen=True)
class Replica:
    """A way to the API server, the settings of the moment, and the name of this replica."""

    client: Client
    settings: Callable[[], Settings]
    name: str
