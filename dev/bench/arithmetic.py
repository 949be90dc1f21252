"""What is counted by others becomes figures: growth and sums of counters."""

from __future__ import annotations

import re
from collections.abc import Mapping

Samples = Mapping[str, float]
"""The value of each sample of a scrape, by its name and labels as they are written."""

_SAMPLE = re.compile(rb"^([^#\s{]+(?:\{.*\})?) (\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def samples(scrape: bytes, *names: str) -> dict[str, float]:
    """Those of the metrics *names* in a text of Prometheus' format."""
    wanted = tuple(f"{name}{{".encode() for name in names) + tuple(f"{name} ".encode() for name in names)
    lines = b"\n".join(line for line in scrape.splitlines() if line.startswith(wanted))
    return {key.decode(): float(value) for key, value in _SAMPLE.findall(lines)}


def growth(before: Samples, after: Samples) -> dict[str, float]:
    """By how much each sample grew; what was not there before began at 0."""
    return {key: value - before.get(key, 0.0) for key, value in after.items()}


def total(given: Samples, metric: str, /, **labels: str) -> float:
    """The sum of the *metric* over all samples that have *labels*."""
    return sum(
        value for key, value in given.items() if _is(key, metric) and labels.items() <= _labels(key).items()
    )


def _is(key: str, name: str) -> bool:
    return key == name or key.startswith(f"{name}{{")


def _labels(key: str) -> dict[str, str]:
    return dict(_LABEL.findall(key.partition("{")[2]))
