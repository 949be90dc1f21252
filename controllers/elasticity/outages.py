"""For how long super nodes have been in a state that passes, such as not ready."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from controllers.elasticity.filters import is_in_trouble
from controllers.elasticity.nodes import FollowedNode


class Outages:
    """As this leader has seen them; *clock* is monotonic, in seconds.

    Nodes say since when, too, but a provider may renew that time with every report, and pods would wait for ever.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    def observe(self, nodes: Iterable[FollowedNode]) -> None:
        now = self._clock()
        names = [node.metadata.name for node in nodes if is_in_trouble(node)]
        self._since = {name: self._since.get(name, now) for name in names}

    def seconds(self, name: str) -> float:
        return self._clock() - self._since.get(name, self._clock())
