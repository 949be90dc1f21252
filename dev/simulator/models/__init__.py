"""What surrounds the product: models of the controllers, the scheduler and the kubelets of Kubernetes, and of others.

Each is a page long, written from what its docstring names, takes the time as an argument, and is deterministic.
"""
