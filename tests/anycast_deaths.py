"""Controllers of anycast IP that die at their calls, and start again."""

from __future__ import annotations

from collections.abc import Callable

from tests.anycast_world import Killed, Lab


class Deaths:
    """The first *most* calls of *action* kill the controllers, *moment* ("before" or "after") the call is done.

    *check* is called at each call of whatever action.
    """

    def __init__(
        self, lab: Lab, action: str, moment: str, most: int, check: Callable[[], None] = lambda: None
    ) -> None:
        self.count = 0
        self._action, self._most, self._check = action, most, check
        edge = lab.kube if action in ("write", "delete") else lab.sender
        setattr(edge, moment, self._called)

    def _called(self, action: str) -> None:
        self._check()
        if action == self._action and self.count < self._most:
            self.count += 1
            raise Killed


def run_with_deaths(lab: Lab, until: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = lab.clock() + seconds
    while not until():
        try:
            lab.run(until, deadline - lab.clock(), what)
        except Killed:
            lab.start()
