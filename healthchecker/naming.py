"""The name of the Deployment of a node, from the names of the IngressDaemonSet and the node."""

import hashlib

LONGEST = 63
"""Characters; pods carry the name on, in names and labels."""
DIGEST = 10


def deployment_name(ingress_daemonset: str, node: str) -> str:
    """``<IngressDaemonSet>-<node>``; its beginning and a hash of the whole when that is too long."""
    whole = f"{ingress_daemonset}-{node}"
    if len(whole) <= LONGEST:
        return whole
    beginning = whole[: LONGEST - DIGEST - 1].rstrip("-.")
    return f"{beginning}-{hashlib.sha256(whole.encode()).hexdigest()[:DIGEST]}"
