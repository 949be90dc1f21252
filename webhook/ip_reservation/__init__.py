"""Reserve the addresses of a selected pod in Calico before it is deleted or evicted, and promise them to its successor.

A review of a deletion or eviction comes to ``webhook.py``: it gathers the pod and its namespace (``reads.py``), decides
which records to write, and asks the ledger to write them. Invariant: an admitted deletion of a selected pod means that
its reservations are durable. A review of a new pod comes to ``same_address_webhook.py``, which asks Calico for the
addresses of its predecessor. ``reads.py`` makes both; ``smoke_check.py`` tries a reservation for ``helm test``.
"""
