"""Replace pods on super nodes by local ones when there is room again, one of a workload at a time.

`planner` chooses a pod, by an estimate of where it would fit; `workloads` reads its workload afresh, the `reconciler`
evicts it, and `planner` says what became of it.
Invariant: a pod is evicted only while all others of its workload are available, and no workload twice within `after`
if its replacement came to a super node again.
"""
