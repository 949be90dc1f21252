"""What a call is signed with, and where that comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Keys:
    """*token* belongs to keys that end."""

    secret_id: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


Source = Callable[[], Keys]
"""Brings the keys of the moment; raises CloudError when there are none."""
