"""The addresses of a world of real nodes, and the links between them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from dev.lab.errors import LabError
from dev.lab.kwokctl import ANY, Network

BRIDGE = "nodes"
CONTROL_PLANE = "192.0.2.1"
"""Of the world itself: its API server, its load balancer, and its clients."""
NETWORK = Network("198.19.0.0/16", "198.19.0.1", advertised=CONTROL_PLANE, bind="0.0.0.0", listening=ANY)
POD_RANGE = "198.18.0.0/16"
HOST_LINK = "eth0"
FILTERS = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")


def address_of(number: int) -> str:
    return f"192.0.2.{10 + number}"


def pods_of(number: int) -> str:
    """What Calico assigns on node *number*: routes to it need no BGP."""
    return f"198.18.{number}.0/24"


def create_bridge() -> None:
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("addr", "add", f"{CONTROL_PLANE}/24", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")
    if FILTERS.exists():  # a switch has no kube-proxy that drops what is between nodes
        FILTERS.write_text("0")
    # kube-proxy rewrites addresses of Services after a route to them was found.
    ip("route", "add", NETWORK.service_range, "dev", BRIDGE)


def create_node_namespace(name: str, number: int) -> Path:
    """A network namespace with one link, to the bridge; its path."""
    ip("netns", "add", name)
    ip("link", "add", name, "type", "veth", "peer", "name", HOST_LINK, "netns", name)
    ip("link", "set", name, "master", BRIDGE, "up")
    within = ("-netns", name)
    ip(*within, "link", "set", "lo", "up")
    ip(*within, "addr", "add", f"{address_of(number)}/24", "dev", HOST_LINK)
    ip(*within, "link", "set", HOST_LINK, "up")
    ip(*within, "route", "add", "default", "via", CONTROL_PLANE)
    return Path("/run/netns") / name


def route_pods(count: int) -> None:
    """From everywhere to the pods of each node."""
    for number in range(count):
        ip("route", "add", pods_of(number), "via", address_of(number))
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"`ip {' '.join(arguments)}` failed: {done.stderr.strip()}")
