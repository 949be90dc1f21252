"""Amounts as Kubernetes writes them: ``100m``, ``1.5Gi``, ``2e3``."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache

FACTORS = {
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{
        suffix: Decimal(1024) ** power
        for power, suffix in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
    },
    "m": Decimal("1e-3"),
    "u": Decimal("1e-6"),
    "n": Decimal("1e-9"),
}
FORM = re.compile(r"([+-]?[0-9]*\.?[0-9]*)((?:[eE][+-]?[0-9]{1,3})|[A-Za-z]*)")


@lru_cache(maxsize=1024)
def amount(quantity: str) -> Decimal:
    """ValueError for what is none."""
    found = FORM.fullmatch(quantity.strip())
    number, suffix = found.groups() if found else ("", "")
    if not re.search("[0-9]", number) or (suffix not in FACTORS and not re.search("[0-9]", suffix)):
        raise ValueError(f"{quantity[:20]!r} is no quantity")
    if suffix in FACTORS:
        return Decimal(number) * FACTORS[suffix]
    return Decimal(number + suffix)
