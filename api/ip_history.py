"""Who had which address before, as the leader stores it and the command reads it: a ConfigMap."""

from __future__ import annotations

import zlib
from datetime import datetime, timedelta

import msgspec

from kube.types import ObjectMeta, Value, complete

NAME = "drawbridge-ip-history"
LABEL, LABEL_VALUE = "drawbridge.io/ip-history", "ip-reservation"
FILE = "history.json.gz"
"""Of the ConfigMap that has it."""
LARGEST = 16 * 1024 * 1024
"""Bytes that are unpacked at most: other clients can write the ConfigMap."""

Gap = tuple[datetime, datetime]


class Former(msgspec.Struct, frozen=True, array_like=True):
    """A pod that had an IP *since* Calico assigned it, None where Calico noted no time, *until* it was released.

    For what is no pod, *namespace* is empty, and *pod* the handle by which Calico knows it.
    """

    ip: str
    namespace: str
    pod: str
    node: str
    since: datetime | None
    until: datetime

    @property
    def key(self) -> tuple[str, str, str, datetime]:
        """The same when two leaders have seen the same release, where Calico noted a time."""
        return self.ip, self.namespace, self.pod, self.since or self.until


class History(msgspec.Struct, frozen=True):
    """*former* holders by their ends, the oldest first; all that ended after *begun*, and before *seen*.

    But for those that ended before *truncated*, which were dropped for want of room, and perhaps some that ended
    within a gap, in which no leader saw the blocks.
    """

    begun: datetime
    seen: datetime
    former: tuple[Former, ...] = ()
    gaps: tuple[Gap, ...] = ()
    truncated: datetime | None = None

    def complete_since(self, period: float, now: datetime) -> datetime:
        """But for gaps."""
        begun = max(self.begun, now - timedelta(seconds=period))
        return max(begun, self.truncated) if self.truncated else begun


def unpacked(stored: bytes) -> History:
    """ValueError when it is no history."""
    try:
        unzip = zlib.decompressobj(wbits=31)
        return _DECODER.decode(unzip.decompress(stored, LARGEST))
    except (zlib.error, msgspec.MsgspecError) as error:
        raise ValueError(f"no history of addresses: {error}") from error


class StoredHistory(Value, frozen=True):
    """The ConfigMap, as the API server serves it."""

    metadata: ObjectMeta = ObjectMeta()
    binary_data: dict[str, bytes] = {}

    @property
    def ours(self) -> bool:
        return LABEL in self.metadata.labels

    @property
    def history(self) -> History:
        """ValueError when it cannot be read."""
        return unpacked(self.binary_data.get(FILE, b""))


complete(StoredHistory)
_DECODER = msgspec.json.Decoder(History)
