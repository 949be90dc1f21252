"""Default and validate IngressDaemonSets, and deny evictions until a node is detached.

Here are its kind, and every annotation, label and finalizer that it writes. `webhook.py` and `evictions.py` decide on
values alone; only `cluster_lookup.py` and `openapi.py` read the API server. What cannot be read is never denied.
"""

from kube.resources import Resource

NAME = "ingress_daemonset"
DEFAULTS_PATH = "/mutate/ingressdaemonsets"
RULES_PATH = "/validate/ingressdaemonsets"
EVICTIONS_PATH = "/validate/evictions/ingress-daemonset"
PATHS = (DEFAULTS_PATH, RULES_PATH)

GROUP = "ingressdaemonsets.mumoshu.github.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "IngressDaemonSet"
PLURAL = "ingressdaemonsets"
INGRESS_DAEMONSETS = Resource(GROUP, VERSION, PLURAL)

NODE_LABEL = "ingress-daemon-for-node"
"""As in the original controller: on each Deployment and its pods."""
TO_BE_UPDATED = "ingressdaemonsets.mumoshu.github.com/to-be-updated"
"""On a Deployment before its update; the original's default, whose domain differs from its group's."""
DETACHED_BY = "drawbridge.io/detached-by"
"""On a Node: the uids of the IngressDaemonSets that detached it, so that each removes only its own."""
DRAIN_REQUESTS = "drainRequests"
"""In the status, by node: when an eviction of one of its pods was first denied."""
EVICTABLE_NODES = "evictableNodes"
"""In the status, by node: since when evictions may pass, after all graces and confirmations."""
TEMPLATE_HASH = "drawbridge.io/template-hash"
"""Of the desired template at the last write."""
APPLIED_TEMPLATE = "drawbridge.io/applied-template"
"""The baseline: what the API server made of that template."""
REVISION_OF = "drawbridge.io/revision-of"
"""On a ControllerRevision: the IngressDaemonSet whose template it has."""
PROMOTE = "drawbridge.io/promote"
"""On an IngressDaemonSet: the id of the canary after which its rollout goes on."""
UPDATE_NOW = "drawbridge.io/update-now"
"""On an IngressDaemonSet: the revision of the template that does not wait for its window."""
PAUSED_UNTIL = "drawbridge.io/paused-until"
"""On an IngressDaemonSet: until then all its nodes are attached, because the feature or the release goes."""
WEIGHTS_OF = "drawbridge.io/weights-of"
"""On a ConfigMap: the load balancer whose former weights it has."""
FINALIZER = "drawbridge.io/ingress-daemonset"
RESERVED = "drawbridge.io/"
"""The prefix of our annotations and labels; a user's key may not have it."""
