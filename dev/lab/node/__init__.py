"""Real nodes on one machine: kubelet, containerd, runc, kube-proxy and Calico in namespaces, without Docker."""
