"""A scenario by seed: what is installed on what, what happens when, and how long the world then stands still.

Operations are drawn before anything runs, each with dice of its own: leaving one out changes nothing about the others,
and so a history can be shortened.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from dev.simulator import machines as machines  # its operations
from dev.simulator import operator as operator  # its operations
from dev.simulator.operations import LATER, TABLE, Kind
from dev.simulator.promises import SHORT_SKEW

if TYPE_CHECKING:
    from dev.simulator.world import World

Raw = dict[str, Any]
FEATURES = ("ip_reservation", "anycast_ip", "elasticity", "ingress_daemonset")
SECTIONS = {
    "ip_reservation": "ipReservation",
    "anycast_ip": "anycastIP",
    "elasticity": "elasticity",
    "ingress_daemonset": "ingressDaemonSet",
}
REST = 660.0
"""Seconds; a rollout whose pods do not come up ends after 600."""
KEPT = 300.0
"""Seconds for which a pool keeps an address; the clock of the leader that released it may be another one's."""
SETTLES = 60.0
"""Seconds from the start to the first operation."""
CA_BUNDLE = b64encode(b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n").decode()
"""Nothing here verifies it."""
SELF_MANAGED = {"mode": "self-managed", "existingSecret": "", "caBundle": ""}
LONGEST_SKEW = 300.0
"""Seconds by which a clock differs at most from the true time."""
COUNT, CROWDED_COUNT, HARD_COUNT = (3, 25), (20, 50), (30, 70)
"""The fewest and most operations of a history, of one in which most meet others under way, and of a hard one."""
CROWDED = 0.25
"""The share of crowded ones: a minute of them finds several times as much."""
RARE = 0.3
BUSY, HARD_BUSY = (120, 420), (90, 240)
"""Seconds in which the operations of a history, and of a hard one, happen."""


@dataclass(frozen=True)
class Operation:
    at: float
    number: int
    kind: Kind


@dataclass(frozen=True)
class Scenario:
    seed: int
    features: Sequence[str]
    values: Raw
    nodes: int
    skews: Sequence[float]
    operations: Sequence[Operation]
    busy: float
    """Seconds in which things happen."""
    rest: float
    """Seconds in which nothing happens any more."""
    script: Callable[[World], Iterator[float]] | None = None
    """What is done instead of operations, with the seconds between."""
    name: str = ""
    left_out: Collection[int] = ()


def drawn(seed: int, *, hard: bool = False) -> Scenario:
    """A hard one has more operations in less time, and half of the time all features."""
    dice = Random(f"hard scenario {seed}" if hard else f"scenario {seed}")  # noqa: S311 - dice, no secret
    share = dice.choice((0.6, 1.0)) if hard else 0.6
    features = [each for each in FEATURES if dice.random() < share] or [dice.choice(FEATURES)]
    busy = dice.uniform(*(HARD_BUSY if hard else BUSY))
    skew = SHORT_SKEW if "ip_reservation" in features else LONGEST_SKEW
    values = values_for(features, dice)
    if Random(f"certificates {seed}").random() < 0.25:  # noqa: S311 - dice, no secret
        features.append("certificates")
        values["certs"] = SELF_MANAGED
    mutations = Random(f"mutations {seed}").choice(("webhook", "policy"))  # noqa: S311 - dice, no secret
    values["admission"] = {"mutations": mutations}
    if "elasticity" in features and Random(f"failover {seed}").random() < 0.3:  # noqa: S311 - dice, no secret
        values["elasticity"]["homeFailover"] = {"enabled": True, "homeAfter": "30s"}
    if Random(f"exhausted {seed}").random() < 0.5:  # noqa: S311 - dice, no secret
        values["anycastIP"]["whenExhausted"] = "release"
    if "anycast_ip" in features:
        named = Random(f"pod address {seed}").random() < 0.5  # noqa: S311 - dice, no secret
        values["anycastIP"]["podAddress"] = {"enabled": named}
    is_kept = "pool" in values["anycastIP"]
    nodes = dice.randint(3, 6)
    skews = [dice.uniform(-skew, skew) if dice.random() < 0.5 else 0.0 for _ in range(4)]
    first = operations(features, dice, busy, hard=hard)
    others = Random(f"later {seed}")  # noqa: S311 - dice, no secret
    return Scenario(
        seed,
        features,
        values,
        nodes,
        skews,
        [*first, *later(features, others, busy, len(first))],
        busy,
        max(REST, KEPT + 2 * skew + SETTLES) if is_kept else REST,
        name=f"hard seed {seed}" if hard else f"seed {seed}",
    )


def operations(features: Sequence[str], dice: Random, busy: float, *, hard: bool) -> list[Operation]:
    """A swarm: each scenario leaves some kinds out, so that the others meet more often."""
    kinds = [each for feature in ("platform", *features) for each in TABLE[feature] if dice.random() < 0.7]
    if not kinds:
        return []
    weights = [each.weight for each in kinds]
    bounds = HARD_COUNT if hard else CROWDED_COUNT if dice.random() < CROWDED else COUNT
    count = dice.randint(*bounds)
    times = sorted(dice.uniform(SETTLES, SETTLES + busy) for _ in range(count))
    return [Operation(at, number, dice.choices(kinds, weights)[0]) for number, at in enumerate(times)]


def later(features: Sequence[str], dice: Random, busy: float, count: int) -> list[Operation]:
    """After the first *count*, a few in every third seed."""
    kinds = [
        each for feature in ("platform", *features) for each in LATER.get(feature, ()) if dice.random() < RARE
    ]
    times = [dice.uniform(SETTLES, SETTLES + busy) for _ in range(3) if kinds]
    return [Operation(at, number, dice.choice(kinds)) for number, at in enumerate(times, count)]


def values_for(features: Sequence[str], dice: Random) -> Raw:
    own: Raw = {}
    if "anycast_ip" in features:
        own["anycastIP"] = {"releaseOnLabelRemoval": dice.random() < 0.5}
        if dice.random() < 0.3:
            own["anycastIP"]["pool"] = {"retain": {"enabled": True, "count": 2, "age": f"{KEPT:.0f}s"}}
    if "elasticity" in features:
        own["elasticity"] = {}
        if dice.random() < 0.4:
            own["elasticity"]["maxSuperPods"] = {"total": dice.randint(1, 4)}
        if dice.random() < 0.4:
            own["elasticity"]["returnHome"] = {**SHORT["elasticity"]["returnHome"], "enabled": True}
    if "ip_reservation" in features:
        own["ipReservation"] = {"standing": {"enabled": dice.random() < 0.5}}
    if dice.random() < 0.1:
        own["fullnameOverride"] = dice.choice(["ipkeeper", "prod-drawbridge"])
    return values_of(features, own)


def values_of(features: Sequence[str], own: Mapping[str, Any]) -> Raw:
    """Of a release with these features, short times, and what is its *own*, by section."""
    values: Raw = {SECTIONS[each]: {"enabled": each in features, **SHORT.get(each, {})} for each in FEATURES}
    values["cloud"] = {"region": "ap-singapore", "existingSecret": "keys"}
    values["certs"] = {"mode": "files", "existingSecret": "tls", "caBundle": CA_BUNDLE}
    for section, changes in own.items():
        values[section] = {**values.get(section, {}), **changes} if isinstance(changes, dict) else changes
    return values


SHORT: Mapping[str, Raw] = {
    # Without what half of the seeds, and some histories, have: else the review would decide about nearly nothing.
    "ip_reservation": {
        "duration": "2m",
        "standing": {"enabled": False},
    },
    "anycast_ip": {"clusterID": "cls-1"},
    # An operator may turn it on: what returns by default after ten minutes would do so when the world is at rest.
    "elasticity": {"returnHome": {"enabled": False, "after": "1m", "interval": "10s"}},
    "ingress_daemonset": {"healthChecker": {"image": {"repository": "drawbridge", "tag": "1"}}},
}
