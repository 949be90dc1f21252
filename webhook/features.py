"""The table of features: each builds its webhooks from what the server gives to all; a deleted one is not there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from kube.client import Client
from settings import Settings
from webhook.admission import Webhook

NAMES = ("ip_reservation", "anycast_ip", "elasticity", "ingress_daemonset")
"""``webhook.<name>.routes`` has ``webhooks(server)``; a name without a package is passed over."""


@dataclass(frozen=True)
class Server:
    """What a feature may use: the API server, the settings of the moment, and the name of this replica."""

    client: Client
    settings: Callable[[], Settings]
    replica: str


def webhooks(server: Server) -> list[Webhook]:
    present = [name for name in NAMES if find_spec(f"webhook.{name}")]
    return [each for name in present for each in import_module(f"webhook.{name}.routes").webhooks(server)]
