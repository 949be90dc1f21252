"""Whether a load balancer sends a node nothing more, or sends it traffic again, by its weights that were read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class NodeBackends:
    """The backends of a node at *load_balancer*, as they were last read; *error* says why they are not known.

    All of them have read weight 0 since *detached_since*. *restored*: none of them waits for its former weight.
    *unhealthy* ones get no traffic yet.
    """

    load_balancer: str
    detached_since: datetime | None = None
    restored: bool = False
    unhealthy: int = 0
    error: str = ""

    @property
    def detach_doubt(self) -> str:
        """Why it may still send traffic; empty when it does not."""
        if self.error:
            return f"load balancer {self.load_balancer} {self.error}"
        if self.detached_since is None:
            return (
                f"load balancer {self.load_balancer} has not answered weight 0 for all backends of the node"
            )
        return ""

    @property
    def attach_doubt(self) -> str:
        """Why it may not have the former weights again; empty when it has."""
        if self.error:
            return f"load balancer {self.load_balancer} {self.error}"
        return "" if self.restored else f"weights at load balancer {self.load_balancer} are not restored"

    @property
    def health_doubt(self) -> str:
        if not self.unhealthy:
            return ""
        return f"load balancer {self.load_balancer} finds {self.unhealthy} backends of the node unhealthy"


BackendsByNode = Mapping[str, tuple[NodeBackends, ...]]


def by_load_balancer(wanted: Sequence[str], known: Sequence[NodeBackends]) -> list[NodeBackends]:
    """One for each of *wanted*."""
    found = {each.load_balancer: each for each in known}
    return [found.get(each, NodeBackends(each, error="has not been read yet")) for each in wanted]
