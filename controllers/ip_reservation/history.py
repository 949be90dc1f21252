"""Who had which address before: values, bounded in time, number and bytes, and how they are stored."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from calico.holders import HeldBlock
from kube.types import ObjectMeta, Value, complete

NAME = "drawbridge-ip-history"
LABEL, LABEL_VALUE = "drawbridge.io/ip-history", "ip-reservation"
KEY = "history.json.gz"
"""Of the ConfigMap that has it."""
MOST = 20_000
"""Former holders at most."""
SIZE = 768 * 1024
"""Bytes of what is stored at most: a ConfigMap may have 1 MiB."""
LARGEST = 16 * 1024 * 1024
"""Bytes that are unpacked at most: other clients can write the ConfigMap."""
MOST_GAPS = 20
SWEEP = 3600.0
"""Seconds for which stored holders may be too old before they alone are a reason to write."""

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


def released(old: HeldBlock | None, new: HeldBlock | None, now: datetime) -> Iterator[Former]:
    """Those that had an address of *old*, and have it no longer in *new*."""
    if old is None:
        return
    after = new.holders if new else {}
    for place, holder in old.holders.items():
        if after.get(place) != holder:
            since, pod = moment_of(holder.since), holder.pod or holder.handle
            yield Former(old.ip(place), holder.namespace, pod, holder.node, since, now)


def moment_of(noted: str) -> datetime | None:
    """Of a time as Go prints it, `2026-01-02 03:04:05.678 +0000 UTC`; None for any other text."""
    try:
        return datetime.fromisoformat(noted[:19]).replace(tzinfo=UTC) if "+0000" in noted else None
    except ValueError:
        return None


def grown(known: History, fresh: Iterable[Former], now: datetime, period: float) -> History:
    """With *fresh* ones, and without those that ended more than *period* seconds ago, or are too many."""
    begin = now - timedelta(seconds=period)
    former = tuple(each for each in _unique((*known.former, *fresh)) if each.until >= begin)
    gaps = tuple(each for each in known.gaps if each[1] >= begin)
    truncated = known.truncated if known.truncated and known.truncated >= begin else None
    return _shortened(replace(known, former=former, gaps=gaps, truncated=truncated), MOST)


def with_gap(known: History, until: datetime) -> History:
    """Nothing was seen from *known.seen* on; of many gaps, the oldest become one."""
    if known.seen >= until:
        return known
    gaps = (*known.gaps, (known.seen, until))
    surplus = len(gaps) - MOST_GAPS
    if surplus > 0:
        gaps = ((gaps[0][0], gaps[surplus][1]), *gaps[surplus + 1 :])
    return replace(known, gaps=gaps, seen=until)


def merged(one: History, other: History) -> History:
    """What two leaders have seen."""
    dropped = [each.truncated for each in (one, other) if each.truncated]
    return History(
        begun=min(one.begun, other.begun),
        seen=max(one.seen, other.seen),
        former=_unique((*one.former, *other.former)),
        gaps=tuple(sorted({*one.gaps, *other.gaps})),
        truncated=max(dropped, default=None),
    )


def is_news(stored: History | None, known: History, now: datetime, period: float) -> bool:
    """Whether *known* is to be written over *stored*: what has only expired can wait a while."""
    if stored is None or stored.truncated != known.truncated or {*known.gaps} - {*stored.gaps}:
        return True
    latest = now - timedelta(seconds=period + SWEEP)
    if stored.former and stored.former[0].until < latest:
        return True
    return not {each.key for each in known.former} <= {each.key for each in stored.former}


def packed(known: History) -> tuple[History, bytes]:
    """What of *known* fits, and how it is stored."""
    while len(found := gzip.compress(msgspec.json.encode(known), 6, mtime=0)) > SIZE and known.former:
        known = _shortened(known, len(known.former) * 3 // 4)
    return known, found


def unpacked(stored: bytes) -> History:
    """ValueError when it is no history."""
    try:
        unzip = zlib.decompressobj(wbits=31)
        return _DECODER.decode(unzip.decompress(stored, LARGEST))
    except (zlib.error, msgspec.MsgspecError) as error:
        raise ValueError(f"no history of addresses: {error}") from error


def _shortened(known: History, most: int) -> History:
    surplus = len(known.former) - most
    if surplus <= 0:
        return known
    return replace(known, former=known.former[surplus:], truncated=known.former[surplus - 1].until)


def _unique(former: Iterable[Former]) -> tuple[Former, ...]:
    """Each once, by the first that saw its end; the oldest first."""
    found: dict[tuple[str, str, str, datetime], Former] = {}
    for each in sorted(former, key=lambda each: each.until):
        found.setdefault(each.key, each)
    return tuple(found.values())


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
        return unpacked(self.binary_data.get(KEY, b""))


complete(StoredHistory)
_DECODER = msgspec.json.Decoder(History)
