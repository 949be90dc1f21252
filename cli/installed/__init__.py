"""Drawbridge as it is installed in the cluster, for the commands that ask about it."""
