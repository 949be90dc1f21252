"""What joining and leaving cost, as figures; what is promised is promised of a thousand nodes."""

from __future__ import annotations

from cloud.apis import ALLOCATE, ASSOCIATE, DISASSOCIATE
from dev.bench.anycast_ip.fleet import Joined
from dev.bench.anycast_ip.phases import Cost
from dev.bench.processes import MIB
from dev.bench.report import Figure, figure
from dev.lab.cloud.config import Knobs

PROMISED = 1000
WALL = 1.2
READS = 0.5
JOIN_WRITES, LEAVE_WRITES = 2.3, 1.4


def floor_of_joining(size: int, knobs: Knobs) -> float:
    """The least seconds possible: each node takes a call of each kind, and the last one the cloud's own time."""
    return size / min(ALLOCATE.rate, ASSOCIATE.rate) + knobs.allocate_seconds + knobs.bind_seconds


def floor_of_leaving(size: int, knobs: Knobs) -> float:
    return size / DISASSOCIATE.rate + knobs.unbind_seconds + knobs.release_seconds


def of_joining(joined: Joined, cost: Cost, knobs: Knobs) -> list[Figure]:
    size = len(joined.names)
    name, floor = f"{size:,} joining", floor_of_joining(size, knobs)
    return [
        figure(f"{name}: seen open without a bound address", joined.early, "", at_most=0),
        *_of_phase(name, size, joined.seconds, floor, cost, JOIN_WRITES),
    ]


def of_leaving(size: int, seconds: float, left: int, cost: Cost, knobs: Knobs) -> list[Figure]:
    name, floor = f"{size:,} leaving", floor_of_leaving(size, knobs)
    return [
        figure(f"{name}: addresses and tags left behind", left, "", at_most=0),
        *_of_phase(name, size, seconds, floor, cost, LEAVE_WRITES),
    ]


def _of_phase(
    name: str, size: int, seconds: float, floor: float, cost: Cost, most_writes: float
) -> list[Figure]:
    wall, writes, reads = (WALL, most_writes, READS) if size >= PROMISED else (None, None, None)
    return [
        figure(
            f"{name}: wall against the floor of the rate limits", seconds, "s", baseline=floor, at_most=wall
        ),
        figure(f"{name}: cloud writes per node", cost.writes / size, "", at_most=writes),
        figure(f"{name}: cloud reads per node", cost.reads / size, "", at_most=reads),
        figure(f"{name}: calls refused for their rate", cost.throttled, ""),
        figure(f"{name}: CPU of the leader", cost.leader.seconds, "s"),
        figure(f"{name}: memory of the leader", cost.leader.bytes / MIB, "MiB"),
        figure(f"{name}: peak memory of the leader", cost.leader.peak / MIB, "MiB"),
    ]
