"""Whether the health checkers of a node prove that a detachment has reached the load balancer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from api.health_checks import State
from kube.types import ObjectMeta

REFUSED = 503


@dataclass(frozen=True)
class Reading:
    """The last answer of the checker at *address* and *port*; *error* says why there is none."""

    address: str
    port: int
    state: State | None = None
    error: str = ""

    def doubt(self, deployment: ObjectMeta, scheduled: str, grace: float) -> str:
        """Why it does not confirm that *deployment* is detached for *scheduled*; empty when it does."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        checker = f"the health checker at {address}:{self.port}"
        if self.state is None:
            return f"{checker} cannot be read: {self.error}"
        if self.state.status != REFUSED:
            return f"{checker} answers {self.state.status}: it has not seen the detachment"
        if (self.state.uid, self.state.scheduled) != (deployment.uid, scheduled):
            return f"{checker} answers 503, but not for this detachment: {self.state.reason}"
        if self.state.detached_seconds < grace:
            return f"{checker} has not answered 503 for the whole grace of {grace:g} s"
        return ""


Readings = Mapping[str, tuple[Reading, ...]]
"""By node name."""


def doubt_of(
    ports: Sequence[int], readings: Sequence[Reading], deployment: ObjectMeta, scheduled: str, grace: float
) -> str:
    """Why not all checkers on *ports* confirm; empty when they do."""
    by_port = {each.port: each for each in readings}
    for port in ports:
        if port not in by_port:
            return f"the health checker on port {port} has not been read yet"
        if found := by_port[port].doubt(deployment, scheduled, grace):
            return found
    return ""
