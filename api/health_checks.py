"""What a health checker reads from environment variables, where it answers, and what it says of itself."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

NAMESPACE = "POD_NAMESPACE"
NODE = "NODE_NAME"
INGRESS_DAEMONSET = "INGRESS_DAEMONSET"
"""The name of the IngressDaemonSet."""
PORT = "HEALTH_CHECK_PORT"
ANNOTATION = "TO_BE_UPDATED_ANNOTATION"
"""The key, without a value, of the annotation that a Deployment has before its pods are replaced."""
BOUND = "LONGEST_WITHOUT_SIGHT_SECONDS"
ON_OUTAGE = "ON_API_SERVER_OUTAGE"
CONNECTION_PORTS = "CONNECTION_PORTS"
"""Ports of the node, with commas, whose established connections are counted."""
CONNECTION_METRIC = "CONNECTION_METRIC"
"""Instead of those, the port, the path and the name of a metric, with blanks."""
KEEP: Final = "keep"
FAIL: Final = "fail"
"""Beyond the bound: keep the last answer, or answer 503."""

PATHS = ("/healthz", "/ok", "/")
"""Where health checks are answered; ``/ok`` is the original's."""
METRICS_PATH = "/metrics"
STATE_PATH = "/state"
"""Where the controllers read the answer, and the version of the Deployment that it is for."""

READY_PATH = "/ready"
"""Where the kubelet asks whether it has seen its Deployment; only then is the next health checker updated."""

SCHEDULED = "drawbridge.io/update-scheduled"
"""On a Deployment: the detachment for which it has the other annotation."""
DEFAULT_BOUND = 30
SHORTEST_BOUND, LONGEST_BOUND = 6, 3600
"""Seconds; with less than the shortest, a watch would be opened every second."""

LONGEST = 63
"""Characters; pods carry the name on, in names and labels."""
DIGEST = 10


def deployment_name(ingress_daemonset: str, node: str) -> str:
    return shortened(f"{ingress_daemonset}-{node}")


def shortened(name: str) -> str:
    """*name*; its beginning and a hash of the whole when it is too long."""
    if len(name) <= LONGEST:
        return name
    beginning = name[: LONGEST - DIGEST - 1].rstrip("-.")
    return f"{beginning}-{hashlib.sha256(name.encode()).hexdigest()[:DIGEST]}"


class State(msgspec.Struct, frozen=True, rename="camel"):
    """What a health checker answers, and why; durations, so that the clocks of two machines need not agree.

    *status* is answered because of the Deployment of this uid and generation. For *detached_seconds* it has been 503
    because the Deployment bears the annotation, with *scheduled* as what SCHEDULED says. *seen_seconds_ago* is the age
    of what is known of the Deployment; None when it was never seen. *connections* are open, where they are counted;
    None with a *connections_error* when that fails.
    """

    status: int = 503
    reason: str = ""
    uid: str = ""
    generation: int = 0
    scheduled: str = ""
    detached_seconds: float = 0.0
    seen_seconds_ago: float | None = None
    connections: int | None = None
    connections_error: str = ""
