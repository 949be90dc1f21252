"""What every program reports: JSON logs, health probes, metrics, and its end by signals.

Health and metrics are served on threads beside the work, with a bound on connections and on silence.
Invariant: nothing here can hold up the work of a program, and no probe is answered 200 by a check that failed.
"""
