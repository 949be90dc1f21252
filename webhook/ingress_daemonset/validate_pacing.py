"""Report faults of canary.metric, waves and window that the schema cannot see."""

from __future__ import annotations

from collections.abc import Iterator

from api.ingress_daemonset.pacing import Metric, Window
from api.ingress_daemonset.template import Problem, key_problems
from api.ingress_daemonset.types import RollingUpdate
from settings import IngressDaemonSetSettings
from settings.windows import DAYS, LONGEST, START, zone_of

ROLLING = "spec.updateStrategy.rollingUpdate"
METRIC, WINDOW = f"{ROLLING}.canary.metric", f"{ROLLING}.window"


def pacing_problems(rolling: RollingUpdate) -> Iterator[Problem]:
    if rolling.canary and rolling.canary.metric:
        yield from _metric(rolling.canary.metric)
    if rolling.waves:
        yield from key_problems(f"{ROLLING}.waves.byLabel", rolling.waves.by_label)
    if rolling.window:
        yield from _window(rolling.window)


def pacing_warnings(rolling: RollingUpdate, settings: IngressDaemonSetSettings) -> Iterator[str]:
    """Of what waits for something that is not configured."""
    if rolling.canary and rolling.canary.metric and not settings.prometheus.url:
        yield (
            "canary.metric is never measured: Drawbridge has no ingressDaemonSet.prometheus.url;"
            " canaries wait to be promoted by hand"
        )


def _metric(metric: Metric) -> Iterator[Problem]:
    if not metric.query.strip():
        yield f"{METRIC}.query", "it is empty: write a query in PromQL that has one value"
    if not metric.has_bounds:
        yield METRIC, "it has no bounds: write min, or max, or both"
    elif metric.min is not None and metric.max is not None and metric.min > metric.max:
        message = f"it is {metric.min:g}, more than max ({metric.max:g}): no value is within both"
        yield f"{METRIC}.min", message


def _window(window: Window) -> Iterator[Problem]:
    if zone_of(window) is None:
        message = (
            f"{window.time_zone!r:.80} is not known; write one of the IANA database, such as Europe/Berlin"
        )
        yield f"{WINDOW}.timeZone", message
    if not START.fullmatch(window.start):
        yield f"{WINDOW}.start", f"it is {window.start!r:.20}; write hours and minutes, such as 02:00"
    longest = int(LONGEST.total_seconds())
    if not 0 < window.duration_seconds <= longest:
        message = f"it is {window.duration_seconds}; write 1 to {longest}, a week"
        yield f"{WINDOW}.durationSeconds", message
    if unknown := [each for each in window.days if each not in DAYS]:
        yield f"{WINDOW}.days", f"{unknown[0]!r:.20} is none; write of {', '.join(DAYS)}"
