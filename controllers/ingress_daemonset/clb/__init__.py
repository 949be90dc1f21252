"""Detach nodes at Tencent CLB: weight 0 for their backends, read back, and their former weights afterwards.

`reconciler.py` reads a load balancer, `planner.py` decides, `store.py` remembers weights before they are overwritten,
and `cache.py` has what the rollout of a node waits for, as values of `backends.py`.
"""
