"""Generate unique ids and public addresses."""

from __future__ import annotations

import ipaddress
import itertools
import string
from random import Random

LETTERS = string.ascii_lowercase + string.digits
PUBLIC = ipaddress.IPv4Address("198.18.0.0")
"""With /15 it is for benchmarks of networks, and is assigned to no host."""


class Names:
    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self._count = itertools.count(1)

    def new_id(self, prefix: str) -> str:
        return f"{prefix}-{''.join(self._dice.choices(LETTERS, k=8))}"

    def new_ip(self) -> str:
        return str(PUBLIC + next(self._count))
