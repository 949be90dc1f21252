"""The thin edge to Calico: reservations, pools, and how Calico assigns addresses.

A segment (``segment.py``) is one IPReservation of ours: it says which addresses are reserved, for which pods, and since
when. A writer hands records to the ledger (``ledger.py``), which commits those of many callers in one segment; readers
and the leader go to ``reservations.py``, which finds the API group that is served. ``pools.py`` counts what pools have
left, who has which address, and what decides which pod Calico gives an address to again.

Invariant: only canonical /32 and /128 CIDRs are written, each once; a segment only loses records after it was created,
and every such change is guarded by the resourceVersion it was decided on.
"""
