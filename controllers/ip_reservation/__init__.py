"""Release reservations when they are over, and reserve addresses that were missed or taken out of a segment.

The leader reconciles these keys: all segments every few seconds, each pod that goes without a record, each segment
that another client has changed, and, if so configured, each pod whose workload has the annotation, and each pod that
was promised the address of its predecessor. An address stays reserved while its pod may still have it and until its
time is over; only the leader shrinks or deletes segments. It compacts small ones. Where so configured, it also notes
who had which address before.
"""
