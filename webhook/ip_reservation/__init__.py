"""Reserve the addresses of a selected pod in Calico before it is deleted or evicted.

``webhook.py`` decides and asks the ledger to write. Invariant: an admitted deletion of a selected pod means that its
reservations are durable.
"""
