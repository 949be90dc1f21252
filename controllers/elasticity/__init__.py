"""Place the first N pods of an owner and revision on local nodes and the others on super nodes.

One key of the work queue is one owner and revision. `sources` follow the cluster; of them, and of what is
decided and not seen yet, the `controller` takes a `snapshot`. `planner` turns it into actions, by the
account of one decision in `room`: limits, `rules`, and the scheduler's `filters` on super nodes. The `writer` patches
pods, and each action counts as assumed until the informer shows it or it failed. A new leader begins with a `takeover`.
Beside that, `super_nodes` are registered, `daemon_sets` kept off them, and pods of full local nodes brought back by
`return_home`; while the feature is off, `open_gates` lets pods go.
Invariant: at no revision of the cluster has an owner more than its N local pods, or super nodes more than their cap.
"""
