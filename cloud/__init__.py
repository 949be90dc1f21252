"""Call Tencent Cloud: addresses, instances and tags as values.

`BatchedCloud` is what a reconciler uses; it batches the calls of `Cloud`, which `Caller` sends. Each call is bounded
in time and rate, is repeated only when it cannot do anything twice, and changes nothing without leadership.
"""
