"""A policy engine, as clusters have them: it changes the workloads, pods and nodes of everybody, Drawbridge's too."""
