"""What a health checker tells a scraper of itself."""

from prometheus_client import Counter, Gauge

from healthchecker.sight import Sight

ANSWERS = Counter("drawbridge_healthchecker_answers", "Answers to load balancers.", ["status"])
HEALTHY = Gauge("drawbridge_healthchecker_healthy", "Whether the node may get traffic.")
SIGHT_AGE = Gauge(
    "drawbridge_healthchecker_sight_age_seconds", "Time since the Deployment was known to be as it was seen."
)
BLIND = Gauge(
    "drawbridge_healthchecker_blind",
    "Whether nothing was heard of the API server for longer than is tolerated.",
)


def show(sight: Sight) -> None:
    """Let the metrics follow *sight*."""
    HEALTHY.set_function(lambda: float(sight.problem() is None))
    SIGHT_AGE.set_function(lambda: sight.age)
    BLIND.set_function(lambda: float(sight.is_blind))
