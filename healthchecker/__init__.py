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

PATHS = ("/healthz", "/ok", "/")
"""Where the question is answered; ``/ok`` is the original's."""
METRICS_PATH = "/metrics"

DEFAULT_ANNOTATION = "ingressdaemonsets.mumoshu.github.com/to-be-updated"
DEFAULT_BOUND = 30
SHORTEST_BOUND = 6
"""Seconds; with less, a watch would be opened anew every second."""
