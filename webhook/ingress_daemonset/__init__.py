"""The words of ingress_daemonset: its kind, and every annotation, label and finalizer it writes."""

NAME = "ingress_daemonset"
DEFAULTS_PATH = "/mutate/ingressdaemonsets"
RULES_PATH = "/validate/ingressdaemonsets"
PATHS = (DEFAULTS_PATH, RULES_PATH)

GROUP = "ingressdaemonsets.mumoshu.github.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "IngressDaemonSet"
PLURAL = "ingressdaemonsets"

NODE_LABEL = "ingress-daemon-for-node"
"""As the original calls it; on each Deployment, and on its pods."""
TO_BE_UPDATED = "ingressdaemonsets.mumoshu.github.com/to-be-updated"
"""On a Deployment before its update. The original's default: of another domain than its group, indeed."""
DETACHED_BY = "drawbridge.io/detached-by"
"""On a Node: the uids of the IngressDaemonSets that detached it, so that each takes away its own only."""
TEMPLATE_HASH = "drawbridge.io/template-hash"
FINALIZER = "drawbridge.io/ingress-daemonset"
RESERVED = "drawbridge.io/"
"""What annotations and labels of ours begin with: no user's key may."""
