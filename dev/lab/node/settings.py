"""Configuration files of containerd, the kubelet, kube-proxy and Calico's CNI plugin on a real node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dev.lab.node.network import POD_RANGE, address_of

PAUSE = "drawbridge.local/pause:1"
CNI_PROGRAMS, CNI_NETWORKS = "/var/lib/cni/bin", "/var/lib/cni/net.d"
SOCKET = "/run/containerd/containerd.sock"
CONTAINERD = f"""\
version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{PAUSE}'
[plugins.'io.containerd.cri.v1.runtime']
# To lower the score, as runc is asked to for pods, needs a capability that containers of machines lack.
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['{CNI_PROGRAMS}', '/usr/lib/cni']
conf_dir = '{CNI_NETWORKS}'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def kubelet(number: int, cgroup: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address_of(number),
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": ["none"],
        "resolvConf": "",
        # kwokctl gives the API server no client certificate for kubelets; no one else is in this network.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "nodeStatusUpdateFrequency": "5s",
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "syncFrequency": "5s",
    }


def kube_proxy(node: str, kubeconfig: Path) -> list[str]:
    """Arguments; sysctls of the machine are left alone."""
    return [
        "--kubeconfig",
        str(kubeconfig),
        "--hostname-override",
        node,
        "--proxy-mode",
        "iptables",
        "--cluster-cidr",
        POD_RANGE,
        "--conntrack-max-per-core",
        "0",
        "--conntrack-tcp-timeout-established",
        "0",
        "--conntrack-tcp-timeout-close-wait",
        "0",
    ]


def cni(node: str, kubeconfig: Path) -> str:
    """Calico's own network plugin and IPAM, as its manifests configure them."""
    calico = {
        "type": "calico",
        "datastore_type": "kubernetes",
        "nodename": node,
        "nodename_file_optional": True,
        "mtu": 1500,
        "log_level": "info",
        "log_file_path": "/var/log/calico-cni.log",
        "ipam": {"type": "calico-ipam"},
        "policy": {"type": "k8s"},
        "kubernetes": {"kubeconfig": str(kubeconfig)},
    }
    return json.dumps({"name": "k8s-pod-network", "cniVersion": "0.3.1", "plugins": [calico]})
