"""Gate pods that may not be scheduled yet: the leader decides where they belong and removes the gate.

Invariant: admission never refuses a pod, and changes it only on CREATE.
"""
