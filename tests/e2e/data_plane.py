"""Hosts with Calico's own data plane: Felix, confd and BIRD route between pods that its CNI plugin makes.

There is no kubelet: pods are network namespaces, with a server each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from api.same_address import IP_ADDRS
from dev.lab import binaries, processes
from dev.lab.cluster import component_log
from dev.lab.errors import LabError
from dev.lab.node import network, settings
from dev.lab.node.cluster import CALICO, POOLS, RealNodes
from dev.lab.nodes import NODES
from dev.lab.waiting import stretch, until
from kube.errors import NotFound
from kube.resources import PODS

HOSTS = ("host-a", "host-b", "host-c")
FIRST_NUMBER = 20
"""Those of the network's other nodes are lower."""
LABEL = "drawbridge.test/data-plane"
RANGES = {"data-plane": ("198.18.240.0/24", 28), "data-plane-v6": ("fd00:198:18::/116", 122)}
"""Pools: their addresses, and the size of a block."""
NAMESPACE, POD, CONTAINER = "default", "web-0", "data-plane"
IPAM = ("ipamblocks", "blockaffinities", "ipamhandles")
OURS = ("198-18-240-", "fd00-198-18-", f"k8s-pod-network.{CONTAINER}", *HOSTS)
"""What names of Calico's objects contain."""
SECONDS = 60
ATTACH_SECONDS = 10
"""With `stretch` less than BGP's hold time."""
PREPARE = """\
set -e
for each in /run /var/lib /var/log; do mount -t tmpfs tmpfs $each; done
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
mkdir -p /run/bin /run/cni /run/netns /run/calico/confd/config
cp -r "$NODE/conf.d" "$NODE/templates" /run/calico/confd
# BIRD of Debian lacks the attribute that Calico's has for IP-in-IP.
sed -i 's,/etc/calico/confd,/run/calico/confd,; s,krt_tunnel = "[^"]*";,,' /run/calico/confd/*/*.t*
# By which confd has BIRD read its files again, also while that starts.
printf '#!/bin/sh\\n(until kill -HUP $(cat /run/$2.pid); do sleep 0.1; done) > /dev/null 2>&1 &\\n' > /run/bin/sv
chmod +x /run/bin/sv
cp "$CNI" /run/cni/calico
cp "$CNI" /run/cni/calico-ipam
touch /run/prepared
exec sleep infinity
"""
BIRD = """\
cd /run/calico/confd/config
until [ -s $0.cfg ] && [ -s $0_aggr.cfg ] && [ -s $0_ipam.cfg ]; do sleep 0.1; done
exec $0 -R -d -P /run/$0.pid -s /run/calico/$0.ctl -c $0.cfg
"""
SERVER = """\
import socket
server = socket.create_server(("::", 80), family=socket.AF_INET6, dualstack_ipv6=True)
while True:
    server.accept()[0].close()
"""
CLIENT = """\
import socket, sys, time
address, end, answers = sys.argv[1], time.monotonic() + float(sys.argv[2]), 0
while answers < 10:
    try:
        socket.create_connection((address, 80), 0.3).close()
        answers += 1
    except OSError as error:
        answers = 0
        if time.monotonic() > end:
            sys.exit(str(error))
    time.sleep(0.02)
"""


@dataclass
class Host:
    """One host, in a network, mount and process namespace."""

    name: str
    number: int
    lab: RealNodes
    uses_vxlan: bool
    process: subprocess.Popen[bytes] = field(init=False)
    containers: dict[str, str] = field(default_factory=dict)
    """Of its pods, by their names."""
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def addresses(self) -> tuple[str, str]:
        return network.address_of(self.number), f"fd00:192::{self.number}"

    @cached_property
    def environment(self) -> dict[str, str]:
        ipv4, ipv6 = self.addresses
        return {
            **processes.marked_environment(self.lab.home),
            "PATH": f"/run/bin:{os.environ['PATH']}",
            "DATASTORE_TYPE": "kubernetes",
            "KUBECONFIG": str(self._kubeconfig),
            "NODENAME": self.name,
            "IP": f"{ipv4}/24",
            "IP6": f"{ipv6}/64",
            "NO_DEFAULT_POOLS": "true",
            "CALICO_NETWORKING_BACKEND": "vxlan" if self.uses_vxlan else "bird",
            "CALICO_DISABLE_FILE_LOGGING": "true",
            "FELIX_FELIXHOSTNAME": self.name,
            "FELIX_DATASTORETYPE": "kubernetes",
            "FELIX_DEFAULTENDPOINTTOHOSTACTION": "ACCEPT",
            "FELIX_IPTABLESBACKEND": "NFT",
            "FELIX_IPV6SUPPORT": "true",
            "FELIX_LOGFILEPATH": "none",
            "FELIX_LOGSEVERITYFILE": "none",
            "FELIX_LOGSEVERITYSYS": "none",
            "FELIX_USAGEREPORTINGENABLED": "false",
        }

    @property
    def _kubeconfig(self) -> Path:
        return self.lab.home / "nodes.kubeconfig"

    def start(self) -> None:
        namespace = network.create_node_namespace(self.name, self.number)
        network.ip("-netns", self.name, "addr", "add", f"{self.addresses[1]}/64", "dev", "eth0", "nodad")
        node = {"metadata": {"name": self.name, "labels": {LABEL: ""}}, "spec": {"unschedulable": True}}
        self.lab.client.create(NODES, {"apiVersion": "v1", "kind": "Node", **node})
        programs = binaries.ensure("calico", "calico-node")
        paths = {"CNI": str(programs["calico"]), "NODE": str(programs["calico-node"].parent)}
        unshare = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL")
        self.process = self._start(
            "host", ["nsenter", f"--net={namespace}", *unshare, "sh", "-c", PREPARE], paths
        )
        until(
            lambda: self._within("/run/prepared").exists(),
            SECONDS,
            f"{self.name} to be prepared",
            check=self._check,
        )
        calico_node = str(programs["calico-node"])
        self.run(calico_node, "-startup")
        self.run(calico_node, "-allocate-tunnel-addrs", "-allocate-tunnel-addrs-run-once")
        self._start("felix", [*self._enter(), calico_node, "-felix"])
        if not self.uses_vxlan:
            confd = (calico_node, "-confd", "-confd-confdir=/run/calico/confd")
            self._start("confd", [*self._enter(), *confd])
            for daemon in ("bird", "bird6"):
                self._start(daemon, [*self._enter(), "sh", "-c", BIRD, daemon])

    def fail(self) -> None:
        """As when its power is cut: it says goodbye to no one."""
        network.ip("link", "set", self.name, "down")
        self.stop()

    def stop(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()

    def add(self, pod: str, addresses: Sequence[str] = ()) -> list[str]:
        """Create a pod, which may ask for *addresses*; those that it has. LabError when Calico refuses it."""
        annotations = {IP_ADDRS: json.dumps(list(addresses))} if addresses else {}
        spec = {"nodeName": self.name, "containers": [{"name": "pod", "image": "none"}]}
        body = {"metadata": {"name": pod, "annotations": annotations}, "spec": spec}
        self.lab.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **body}, NAMESPACE)
        self.run("ip", "netns", "add", pod)
        self.run("ip", "-netns", pod, "link", "set", "lo", "up")
        self._start(f"{pod}-server", [*self._enter(pod), sys.executable, "-c", SERVER])
        self.containers[pod] = f"{CONTAINER}-{time.monotonic_ns()}"
        assigned = json.loads(self._attach(pod))["ips"]
        return [each["address"].partition("/")[0] for each in assigned]

    def remove(self, pod: str) -> None:
        """As a kubelet does: the pod's processes end, then its network, and then it is deleted."""
        for pid in self.run("ip", "netns", "pids", pod).split():
            self.run("kill", "-KILL", pid)
        self._cni("DEL", pod)
        self.run("ip", "netns", "delete", pod)
        del self.containers[pod]
        delete_pod(self.lab, pod)

    def routes(self) -> str:
        return self.run("ip", "route") + self.run("ip", "-6", "route")

    def client(self, address: str, seconds: float, pod: str = "") -> subprocess.Popen[bytes]:
        """Tries *address*, from the host or one of its pods; ends well once it has answered ten times running."""
        arguments = (sys.executable, "-c", CLIENT, address, str(seconds))
        return self._start(f"{pod or 'host'}-client", [*self._enter(pod), *arguments])

    def run(self, *command: str, stdin: str = "", **environment: str) -> str:
        done = subprocess.run(
            [*self._enter(), *command],
            env={**self.environment, **environment},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise LabError(f"`{' '.join(command)}` failed on {self.name}: {done.stdout or done.stderr}")
        return done.stdout

    def _attach(self, pod: str) -> str:
        """As a kubelet does, which tries again: Calico refuses an IP while the host has another route to it."""
        refusals: list[LabError] = []

        def attached() -> str:
            try:
                return self._cni("ADD", pod)
            except LabError as refusal:
                refusals.append(refusal)
                self._cni("DEL", pod)
                return ""

        try:
            return until(attached, ATTACH_SECONDS, every=0.5)
        except LabError as error:
            raise refusals[-1] from error

    def _cni(self, verb: str, pod: str) -> str:
        found = json.loads(settings.cni(self.name, self._kubeconfig))
        plugin = {**found["plugins"][0], "name": found["name"], "cniVersion": found["cniVersion"]}
        plugin["ipam"] = {"type": "calico-ipam", "assign_ipv4": "true", "assign_ipv6": "true"}
        names = f"K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME={pod}"
        return self.run(
            "/run/cni/calico",
            stdin=json.dumps(plugin),
            CNI_COMMAND=verb,
            CNI_CONTAINERID=self.containers[pod],
            CNI_NETNS=f"/run/netns/{pod}",
            CNI_IFNAME="eth0",
            CNI_PATH="/run/cni",
            CNI_ARGS=f"IgnoreUnknown=1;{names};K8S_POD_INFRA_CONTAINER_ID={self.containers[pod]}",
        )

    def _enter(self, pod: str = "") -> list[str]:
        within = ["nsenter", f"--target={self._first_process()}", "--mount", "--net", "--pid"]
        return [*within, "ip", "netns", "exec", pod] if pod else within

    def _first_process(self) -> str:
        """The one that `unshare` started."""
        pid = self.process.pid
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().strip()

    def _check(self) -> None:
        if self.process.poll() is not None:
            raise LabError(component_log(self.lab.home, f"{self.name}-host"))

    def _within(self, path: str) -> Path:
        return Path(f"/proc/{self._first_process() or 'none'}/root{path}")

    def _start(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with (self.lab.home / "logs" / f"{self.name}-{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                env={**self.environment, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=processes.die_with_parent,
            )
        self._started.append(process)
        return process


def missing() -> str:
    """Why this machine cannot run them, or nothing."""
    attempts = {
        ("ip", "link", "add", "attempt", "type", "vxlan", "id", "1", "dstport", "4789"): (
            "ip",
            "link",
            "delete",
        ),
        ("ipset", "create", "attempt", "hash:net"): ("ipset", "destroy"),
    }
    for command, undo in attempts.items():
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"Calico's data plane: `{' '.join(command)}` failed: {done.stderr.strip()}"
        subprocess.run([*undo, "attempt"], check=True)
    return ""


@contextmanager
def running(lab: RealNodes, encapsulation: str) -> Iterator[tuple[Host, ...]]:
    """Three hosts, with a client pod each, and pools of both families with `vxlan` or, with `bgp`, no encapsulation."""
    uses_vxlan = encapsulation == "vxlan"
    hosts = [Host(name, FIRST_NUMBER + at, lab, uses_vxlan) for at, name in enumerate(HOSTS)]
    for name, (cidr, block_size) in RANGES.items():
        spec: dict[str, Any] = {"cidr": cidr, "blockSize": block_size, "nodeSelector": f"has({LABEL})"}
        spec |= {"ipipMode": "Never", "vxlanMode": "Always" if uses_vxlan else "Never"}
        spec |= {"allowedUses": ["Workload", "Tunnel"]}
        body = {"apiVersion": f"{CALICO}/v1", "kind": "IPPool", "metadata": {"name": name}, "spec": spec}
        lab.client.create(POOLS, body)
    try:
        for host in hosts:
            host.start()
        clients = [address for host in hosts for address in host.add(client_of(host))]
        if missing := unreached(hosts, clients, SECONDS):  # BGP's sessions take their time
            raise LabError(f"no answer of {', '.join(missing)}")
        yield tuple(hosts)
    finally:
        for host in hosts:
            host.stop()
        _clean_up(lab, hosts)


def client_of(host: Host) -> str:
    return f"client-{host.name}"


def unreached(hosts: Sequence[Host], addresses: Sequence[str], seconds: float = 10) -> list[str]:
    """From where, of these hosts and their client pods, which of *addresses* does not answer."""
    clients = {
        f"{address} from {pod or host.name}": host.client(address, seconds * stretch(), pod)
        for host in hosts
        for pod in ("", client_of(host))
        for address in addresses
    }
    return [name for name, process in clients.items() if process.wait() != 0]


def free(lab: RealNodes, addresses: Sequence[str]) -> None:
    """What Calico's controllers do, later, for a pod whose host has failed."""
    delete_pod(lab, POD)
    program = binaries.ensure("calico-ipam")["calico-ipam"]
    command = [str(program), "release", *addresses, "--kubeconfig", str(lab.kubeconfig)]
    subprocess.run(command, check=True, capture_output=True)


def delete_pod(lab: RealNodes, pod: str) -> None:
    lab.kubectl("--namespace", NAMESPACE, "delete", "pod", pod, "--force", "--grace-period=0")


def _clean_up(lab: RealNodes, hosts: Sequence[Host]) -> None:
    for pod in (POD, *map(client_of, hosts)):
        lab.kubectl(
            *("--namespace", NAMESPACE, "delete", "pod", pod),
            *("--force", "--grace-period=0", "--ignore-not-found"),
        )
    for kind in IPAM:
        names = lab.kubectl("get", f"{kind}.{CALICO}", "--output", "name").stdout.split()
        if ours := [name for name in names if any(part in name for part in OURS)]:
            lab.kubectl("delete", *ours)
    for host in hosts:
        try:
            lab.client.delete(NODES, host.name)
        except NotFound:
            continue
        network.ip("link", "delete", host.name)
        network.ip("netns", "delete", host.name)
    for name in RANGES:
        lab.client.delete(POOLS, name)
