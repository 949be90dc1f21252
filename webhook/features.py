"""Each feature builds its own webhooks from what the server gives to all; a deleted one is simply not there."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import webhook
from kube.client import Client
from settings import Settings
from webhook.admission import Webhook


@dataclass(frozen=True)
class Server:
    """What a feature may use: the API server, the settings of the moment, and the name of this replica."""

    client: Client
    settings: Callable[[], Settings]
    replica: str


def routes() -> list[Any]:
    """The module ``routes`` of each feature, which has ``webhooks(server)``. A feature is a package here.

    Also of those that are off: the chart may enable one while this process runs.
    """
    features = [each.name for each in pkgutil.iter_modules(webhook.__path__) if each.ispkg]
    return [import_module(f"webhook.{name}.routes") for name in features]


def webhooks(server: Server) -> list[Webhook]:
    """Of all features."""
    return [each for module in routes() for each in module.webhooks(server)]
