"""Run N pods on each node, and detach a node from the load balancer before its pods are replaced.

`reconciler.py` reads a snapshot, `planner.py` and the pure modules below it decide, and `writer.py` applies actions.
No more nodes are detached than the budget allows, and no pod is replaced before its node is known to be detached.
"""
