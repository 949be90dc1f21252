"""The thin edge to the Kubernetes API server."""
