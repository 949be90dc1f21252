"""Finish what admission began: the one process that leads runs the controllers of all features.

Informers are shared and their handlers only enqueue keys; a reconcile reads a snapshot, plans, and runs the actions.
A feature is a package here: what all share imports no feature, and no feature imports another.
"""
