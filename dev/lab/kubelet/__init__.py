"""A small kubelet: it runs the pods of the lab's own nodes as processes of this machine, as installed.

Not honoured, on purpose: images (a directory stands for each), users and capabilities of the
``securityContext`` (``readOnlyRootFilesystem`` is honoured), resources, and the network: a pod is an address
on the loopback that its programs must bind to themselves. There is no cluster DNS, and Services put nothing
into the environment. What else it does not know (sidecar init containers, gRPC probes, volumes of other
kinds) it refuses with an Event.

Like a container's, a program's pid is 1 in its own namespace: SIGTERM goes to it alone, and does nothing
unless it handles it. Containers that end are started again after 1 s, doubling to 60 s, and from 1 s again
after ten minutes of running. A kubelet that is restarted starts its pods again.
"""
