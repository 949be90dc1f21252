"""The cloud's quotas, as the leader last read them: an annotation of its Lease."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from kube.types import Value, complete

QUOTAS = "drawbridge.io/anycast-ip-quotas"
TOTAL, DAILY = "TOTAL_EIP_QUOTA", "DAILY_EIP_APPLY"
"""The quotas that an order uses."""


class Quota(Value, frozen=True):
    """How much of it is in use in the region, and how much there may be."""

    id: str
    current: int
    limit: int


class QuotasRead(Value, frozen=True):
    """What the cloud answered the leader *at* that time."""

    at: datetime
    quotas: tuple[Quota, ...]


complete(QuotasRead)
DECODER = msgspec.json.Decoder(QuotasRead)


def quotas_in(annotations: Mapping[str, str]) -> QuotasRead | None:
    """None before the first read, and where another client has written something else."""
    try:
        return DECODER.decode(annotations[QUOTAS])
    except (KeyError, msgspec.MsgspecError, ValueError):
        return None
