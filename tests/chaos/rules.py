"""How Drawbridge is configured while it is being stormed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

HOLD = timedelta(seconds=10)
"""So short that the leader releases during each storm what the webhook servers are adding to."""
VALUES: dict[str, Any] = {
    "replicaCount": 2,
    "config": {
        "ipReserveTime": f"{HOLD.seconds}s",
        "ipReleasePeriod": "1s",
        "ipReserveMaxCount": 10_000,
    },
    "leaderElection": {"leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "1s"},
    "webhook": {"preStopSleepSeconds": 1, "drainPeriod": "2s"},
}
