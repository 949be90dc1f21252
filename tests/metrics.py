"""What the process has counted."""

from __future__ import annotations

from prometheus_client import REGISTRY


def sample(name: str, /, **labels: str) -> float:
    """0.0 for what is not counted yet."""
    found = REGISTRY.restricted_registry([name]).collect()  # one series, not all of the process
    return next((each.value for metric in found for each in metric.samples if each.labels == labels), 0.0)
