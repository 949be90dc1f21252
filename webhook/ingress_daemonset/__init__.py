"""Default and validate IngressDaemonSets, and deny evictions until a node is detached.

`webhook.py` and `evictions.py` decide on values alone; only `cluster_lookup.py` and `openapi.py` read the API server.
What cannot be read is never denied.
"""
