"""Bind an anycast IP to each node that needs one, open the node when that is proven, and release the IP afterwards.

A node that changes is queued by its uid. ``reconciler`` reads a snapshot (the node, its address claim, what other
claims and the cloud say), has the ``planner`` plan the next action, and runs it on the claim, the cloud or the node.
``memory`` has what the process remembers of a node until its next reconcile. A ``claim`` is written before an address
is ordered and deleted after its address and tags are gone, so that a crash between any two lines neither leaks an
address nor orders a second one.

Controllers beside it have nodes reconciled when something else changes: the addresses at the cloud (``resync``), the
``pool``, the ``egress`` of a node, the ``allow_list``, an operator's confirmation (``brake``). ``reporter`` writes
what was decided to the node; ``feed`` serves the allow-list on each replica. ``controller`` puts all together.
"""
