"""Each feature builds its own webhooks from what the server gives to all; a deleted one is simply not there."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

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


def webhooks(server: Server) -> list[Webhook]:
    """Of all features: packages here with a module ``routes``, which has ``webhooks(server)``."""
    features = [each.name for each in pkgutil.iter_modules(webhook.__path__) if each.ispkg]
    return [each for name in features for each in import_module(f"webhook.{name}.routes").webhooks(server)]
