"""Tell an external load balancer, on a port of the node, whether the pods of an IngressDaemonSet there may get traffic.

What it is to look at, the controller says by environment variables of these names.
"""

NAMESPACE = "POD_NAMESPACE"
NODE = "NODE_NAME"
INGRESS_DAEMONSET = "INGRESS_DAEMONSET"
"""The name of the IngressDaemonSet."""
PORT = "HEALTH_CHECK_PORT"
ANNOTATION = "TO_BE_UPDATED_ANNOTATION"
"""The key, without a value, of the annotation that a Deployment bears before its pods are replaced."""
BOUND = "LONGEST_WITHOUT_SIGHT_SECONDS"
ON_OUTAGE = "ON_API_SERVER_OUTAGE"
KEEP, FAIL = "keep", "fail"
"""Beyond the bound: keep the last answer, or answer 503."""

PATHS = ("/healthz", "/ok", "/")
"""Where the question is answered; ``/ok`` is the original's."""
METRICS_PATH = "/metrics"
STATE_PATH = "/state"
"""Where the controllers read what is answered, and by which version of the Deployment."""

DEFAULT_ANNOTATION = "ingressdaemonsets.mumoshu.github.com/to-be-updated"
SCHEDULED = "drawbridge.io/update-scheduled"
"""On a Deployment: the detachment for which it bears the other annotation."""
DEFAULT_BOUND = 30
SHORTEST_BOUND, LONGEST_BOUND = 6, 3600
"""Seconds; with less than the shortest, a watch would be opened every second."""
