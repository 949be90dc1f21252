"""Run N pods on each node, and detach a node from the load balancer before its pods are replaced.

`controller.py` reconciles one IngressDaemonSet at a time. It reads a `Snapshot` of what `object_cache.py` knows, has
`planner.py` decide, applies the plan's actions by `writer.py`, and reports by `status.py` and `reporter.py`.
A plan puts a `rollout.py` together: the phase and the actions of each node are in `nodes.py`, with its `children.py`,
their `drift.py` and its `detachment.py`; what holds it up beside its budget is in `pacing.py`.
`health_checks.py` plans the health checkers, `revisions.py` records templates, and `forecast.py` plays the planner
forward, for the command.
`readers.py` asks health checkers and Prometheus on other threads, and `weights.py` detaches nodes at load balancers.
No more nodes are detached than the budget allows, and no pod is replaced before its node is known to be detached.
"""
