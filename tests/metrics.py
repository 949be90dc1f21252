"""What the process has counted."""

from __future__ import annotations

from prometheus_client import REGISTRY


def sample(name: str, /, **labels: str) -> float:
    """0.0 for what is not counted yet."""
    return REGISTRY.get_sample_value(name, labels) or 0.0
