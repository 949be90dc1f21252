"""Default and validate IngressDaemonSets, and deny evictions until a node is detached.

`webhook.py`, with the rules of `validate.py`, and `evictions.py` decide on values
alone; only `cluster_lookup.py`, which makes them, reads the API server. What cannot be read is never denied.
"""
