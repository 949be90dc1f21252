"""The thin edge to Calico: IPReservation segments as values, their API, and the ledger that commits to them in groups.

A segment says in one object which addresses are reserved, for which pods, and since when. Invariant: only canonical
/32 and /128 CIDRs are written, each once; a segment only loses records after it was created, and every such change is
guarded by the resourceVersion it was decided on.
"""
