"""How Drawbridge is configured while it is being stormed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

HOLD = timedelta(seconds=10)
"""So short that the leader releases during each storm what the webhook servers are adding to."""
VALUES: dict[str, Any] = {
    "replicaCount": 2,
    "ipReservation": {
        "duration": f"{HOLD.seconds}s",
        "maxCount": 10_000,
        "advanced": {"releasePeriod": "1s"},
    },
    "controllers": {"leaseDuration": "6s"},
    "webhook": {"preStopSleep": "1s", "drainPeriod": "2s"},
}
