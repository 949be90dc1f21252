"""Default and validate IngressDaemonSets, and deny evictions until a node is detached.

`routes.py` makes the webhooks. `webhook.py`, with the rules of `validate.py`, and `evictions.py` decide on values
alone; only `cluster_lookup.py` reads the API server. What cannot be read is never denied.
"""
