"""Whether an object is as it should be, though the API server fills in, drops and respells fields of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

QUANTITIES = ("limits", "requests", "sizeLimit", "divisor")
UNITS = {
    unit: Decimal(1000) ** power
    for power, unit in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)
}
UNITS |= {f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)}
QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([numkMGTPE]?|[KMGTPE]i)")


def covers(desired: Any, live: Any, *, quantity: bool = False) -> bool:
    """Whether *live* says all that *desired* says; what else *live* says are defaults."""
    if isinstance(desired, Mapping):
        held = live if isinstance(live, Mapping) else {}
        return all(
            covers(value, held.get(key), quantity=quantity or key in QUANTITIES)
            for key, value in desired.items()
        )
    if isinstance(desired, list | tuple):
        listed = live or []
        return len(desired) == len(listed) and all(map(covers, desired, listed))
    if desired == live or (not desired and not live):
        return True
    return quantity and live is not None and _amount(desired) == _amount(live) is not None


def overwrite(desired: Any, live: Any) -> Any:
    """A merge patch that makes of *live* just *desired*, and lets go what *desired* does not say."""
    if not isinstance(desired, Mapping) or not isinstance(live, Mapping):
        return desired
    gone = {key: None for key in live if key not in desired}
    return gone | {key: overwrite(value, live.get(key)) for key, value in desired.items()}


def _amount(value: Any) -> Decimal | None:
    found = QUANTITY.fullmatch(str(value))
    return Decimal(found[1]) * UNITS[found[2]] if found else None
