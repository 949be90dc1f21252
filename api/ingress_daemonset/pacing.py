"""What a rollout waits for beside its budget, as values with all defaults."""

from __future__ import annotations

from kube.types import Value

NODES = "$(NODES)"
"""In a query: the nodes of the canary, as a regular expression."""


class Pause(Value, frozen=True):
    duration_seconds: int = 0
    """0 is until it is promoted by hand, or no pause between waves."""


class Metric(Value, frozen=True):
    """The canary is promoted when *query* has had one value from *min* to *max* for so many seconds."""

    query: str = ""
    min: float | None = None
    max: float | None = None
    for_seconds: int = 300
    interval_seconds: int = 30
    failure_limit: int = 3
    """So many values out of bounds, in all, fail the canary."""

    @property
    def has_bounds(self) -> bool:
        return self.min is not None or self.max is not None


class Waves(Value, frozen=True):
    """Nodes with one value of a label are updated before those with the next one, with a pause between."""

    by_label: str = ""
    pause: Pause = Pause()


class Window(Value, frozen=True):
    """When updates may begin: from *start* on, as a clock in *time_zone* shows it, on these days."""

    days: tuple[str, ...] = ()
    """Empty is every day."""
    start: str = "00:00"
    duration_seconds: int = 0
    time_zone: str = "UTC"
