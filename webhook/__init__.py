"""Admission: the gate of each feature, and the server that keeps it open."""
