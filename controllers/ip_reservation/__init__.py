"""Release reservations when they are over, and reserve addresses that were missed or taken out of a segment.

``controller.py`` wires the controllers, which work on ``caches.py``; what a lagging cache could get wrong is read
live (``calls.py``). Every few seconds ``release_reconciler.py`` makes a pass over all segments: ``snapshot.py``
gathers them, what is known of their pods, and which of those never existed (``confirmations.py``);
``release_planner.py`` decides what to release and which small segments to compact; the changes are written, and
``reporter.py`` says so.

By pod or by segment, ``late_reservations.py`` reserves what has no record, ``opt_in.py`` copies the annotation of a
workload, ``same_address.py`` ends promises, and ``swaps.py`` reports addresses that came to other pods. ``pools.py``
limits what may stay reserved of a pool.

An address stays reserved while its pod may still have it and until its time is over. Only the leader shrinks or deletes
segments.
"""
