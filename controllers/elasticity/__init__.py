"""Place the first N pods of an owner on local nodes and the others on super nodes.

One key of the work queue is one owner and revision: `reconciler` reads a `snapshot` of its pods, `planner`
decides, `writer` patches, and whatever was decided counts until the pod informer shows it or it failed.
Invariant: at no revision of the cluster has an owner more than its N local pods, or super nodes more than their cap.
"""
