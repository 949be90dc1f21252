"""Run N pods on each node, and take a node off the load balancer before its pods are replaced."""
