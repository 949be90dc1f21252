"""Answer an external load balancer on a port of the node: may the pods of an IngressDaemonSet there get traffic?

One runs per node and port, configured by the environment variables below; the controllers read its ``/state``.
Invariant: 503 from the moment that an update is scheduled; without the API server the last answer stays, by default.
"""

NAMESPACE = "POD_NAMESPACE"
NODE = "NODE_NAME"
INGRESS_DAEMONSET = "INGRESS_DAEMONSET"
"""The name of the IngressDaemonSet."""
PORT = "HEALTH_CHECK_PORT"
ANNOTATION = "TO_BE_UPDATED_ANNOTATION"
"""The key, without a value, of the annotation that a Deployment has before its pods are replaced."""
BOUND = "LONGEST_WITHOUT_SIGHT_SECONDS"
ON_OUTAGE = "ON_API_SERVER_OUTAGE"
KEEP, FAIL = "keep", "fail"
"""Beyond the bound: keep the last answer, or answer 503."""

PATHS = ("/healthz", "/ok", "/")
"""Where health checks are answered; ``/ok`` is the original's."""
METRICS_PATH = "/metrics"
STATE_PATH = "/state"
"""Where the controllers read the answer, and the version of the Deployment that it is for."""

DEFAULT_ANNOTATION = "ingressdaemonsets.mumoshu.github.com/to-be-updated"
SCHEDULED = "drawbridge.io/update-scheduled"
"""On a Deployment: the detachment for which it has the other annotation."""
DEFAULT_BOUND = 30
SHORTEST_BOUND, LONGEST_BOUND = 6, 3600
"""Seconds; with less than the shortest, a watch would be opened every second."""
