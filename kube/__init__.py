"""The thin edge to the Kubernetes API server: client, informers, leader election, Events, and objects as values.

Every call has a timeout and ends with a value or a KubeError; what is read is decoded into small immutable structs.
Invariant: nothing here knows a feature, and no write is sent twice without its caller.
"""
