"""An API action: its parameters, its function and its rate limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dev.lab.cloud.request import Params
from dev.lab.cloud.world import World


@dataclass(frozen=True)
class Action:
    params: type[Params]
    run: Callable[[World, Any, str], Mapping[str, Any]]
    """From the world, the parameters and the region to the response; raises Fault and has then done nothing."""
    rate: float
    """Documented calls in a second, by default."""
