"""One webhook server, as the webhooks of the features see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pkgutil import resolve_name

from features import Feature
from kube.client import Client
from runtime import utc_now
from settings import Settings
from webhook.admission import Webhook


@dataclass(frozen=True)
class Replica:
    """What the webhooks of a replica share: a way to the API server, the settings, and its *name*."""

    client: Client
    settings: Callable[[], Settings]
    name: str
    now: Callable[[], datetime] = utc_now

    def webhooks(self, features: Iterable[Feature]) -> list[Webhook]:
        rows = (feature for feature in features if feature.webhooks)
        return [webhook for row in rows for webhook in resolve_name(row.webhooks)(self)]
