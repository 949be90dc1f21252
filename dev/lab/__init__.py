"""The lab: a real Kubernetes control plane on this machine's loopback, with Drawbridge installed on it."""
