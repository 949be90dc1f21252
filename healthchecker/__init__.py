"""Answer an external load balancer on a port of the node: may the pods of an IngressDaemonSet there get traffic?

One runs per node and port, configured by environment variables; the controllers read its ``/state``.
Invariant: 503 from the moment that an update is scheduled; without the API server the last answer stays, by default.
"""
