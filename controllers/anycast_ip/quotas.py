"""What is left of the cloud's quotas, for people without its keys: an annotation of the leader's Lease.

The Lease is renewed all the time, so that it costs no write; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from cloud.types import Quota
from kube.types import Value, complete

QUOTAS = "drawbridge.io/anycast-ip-quotas"


class QuotasRead(Value, frozen=True):
    """What the cloud answered the leader *at* that time."""

    at: datetime
    quotas: tuple[Quota, ...]


complete(QuotasRead)
DECODER = msgspec.json.Decoder(QuotasRead)


def annotation(quotas: Sequence[Quota], at: datetime) -> dict[str, str]:
    found = QuotasRead(at.replace(microsecond=0), tuple(quotas))
    return {QUOTAS: msgspec.json.encode(found).decode()}


def quotas_in(annotations: Mapping[str, str]) -> QuotasRead | None:
    """None before the first read, and where another client has written something else."""
    try:
        return DECODER.decode(annotations[QUOTAS])
    except (KeyError, msgspec.MsgspecError, ValueError):
        return None
