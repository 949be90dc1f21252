"""Configuration of kwokctl: our binaries and ports, loopback only, RBAC on, kwok on its own nodes and super nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.lab.slots import Slot
from kube.types import INSTANCE_TYPE, SUPER_NODE

ANY = ":".join(["0000"] * 8)
"""All addresses of both families, as the kernel shows it of a server that listens on 0.0.0.0."""
KWOK = "kwok"
"""The instance type of nodes that only kwok has."""
NOWHERE = "nowhere-1"
"""A zone whose super nodes kwok does not play: they are as if their virtual kubelet was down."""
PLAYED = f"{INSTANCE_TYPE} in ({KWOK}, {SUPER_NODE}),topology.kubernetes.io/zone!={NOWHERE}"
STAGES = Path(__file__).parent / "stages.yaml"
LOOPBACK = "127.0.0.1"
# Published as the address of the Service default/kubernetes, which must not be a loopback address, and where
# the API server would otherwise want a default route. It is never called (RFC 5737: for documentation).
ADVERTISED = "198.51.100.1"


@dataclass(frozen=True)
class Network:
    """Where the API server listens, and which addresses Services have."""

    service_range: str
    kubernetes_address: str
    """The cluster IP of the Service default/kubernetes."""
    advertised: str = ADVERTISED
    bind: str = LOOPBACK
    listening: str = LOOPBACK
    """The address that the kernel shows for *bind*."""
    endpoints: bool = True
    """Whether EndpointSlices are written; they refuse loopback addresses."""


def of_slot(slot: Slot) -> Network:
    """On the loopback, where the lab's balancer finds pods by the selectors of Services."""
    return Network(slot.service_range, slot.kubernetes_address, endpoints=False)


@dataclass(frozen=True)
class Ports:
    etcd: int
    etcd_peer: int
    api_server: int
    controller_manager: int
    scheduler: int
    kwok: int


def configuration(
    binaries: Mapping[str, Path], network: Network, ports: Ports, api_server: Mapping[str, str]
) -> dict[str, Any]:
    """What ``kwokctl create cluster --config`` reads; *api_server* are more arguments of that.

    A file, because its ``--extra-args`` mixes up the components when it is given more than once for several.
    """
    return {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokctlConfiguration",
        "options": {
            "runtime": "binary",
            "bindAddress": LOOPBACK,
            "kubeAuthorization": True,
            "kubeApiserverCertSANs": [network.kubernetes_address, network.advertised],
            **_binary_options(binaries),
            **_port_options(ports),
        },
        "componentsPatches": [
            {"name": name, "extraArgs": [_argument(*each) for each in arguments]}
            for name, arguments in _extra_arguments(network, api_server).items()
        ],
    }


def _binary_options(binaries: Mapping[str, Path]) -> dict[str, str]:
    return {
        "etcdBinary": str(binaries["etcd"]),
        "kubeApiserverBinary": str(binaries["kube-apiserver"]),
        "kubeControllerManagerBinary": str(binaries["kube-controller-manager"]),
        "kubeSchedulerBinary": str(binaries["kube-scheduler"]),
        "kwokControllerBinary": str(binaries["kwok"]),
        "kubectlBinary": str(binaries["kubectl"]),
    }


def _port_options(ports: Ports) -> dict[str, int]:
    return {
        "etcdPort": ports.etcd,
        "etcdPeerPort": ports.etcd_peer,
        "kubeApiserverPort": ports.api_server,
        "kubeControllerManagerPort": ports.controller_manager,
        "kubeSchedulerPort": ports.scheduler,
        "kwokControllerPort": ports.kwok,
    }


def _extra_arguments(
    network: Network, api_server: Mapping[str, str]
) -> dict[str, list[tuple[str, str, bool]]]:
    """Arguments of the components as (key, value, whether it replaces kwokctl's own)."""
    unthrottled = [("kube-api-qps", "1000", False), ("kube-api-burst", "2000", False)]
    # Each is alone: one that ends because it could not renew its lease would be missed for good.
    alone = [("leader-elect", "false", False)]
    without = "" if network.endpoints else ",-endpoints-controller,-endpointslice-controller"
    return {
        "kube-apiserver": [
            ("service-cluster-ip-range", network.service_range, False),
            ("advertise-address", network.advertised, False),
            ("bind-address", network.bind, True),
            # Where names of nodes do not resolve.
            *([("kubelet-preferred-address-types", "InternalIP", False)] if network.endpoints else []),
            # Some clusters ask for the right to hold up an owner's deletion; OpenShift does.
            ("enable-admission-plugins", "OwnerReferencesPermissionEnforcement", False),
            *((key, value, False) for key, value in api_server.items()),
        ],
        "kube-controller-manager": [
            *unthrottled,
            *alone,
            # Each controller under its own name, as kubeadm and every provider have it.
            ("use-service-account-credentials", "true", False),
            ("controllers", f"*{without}", False),
        ],
        "kube-scheduler": [*unthrottled, *alone],
        "kwok-controller": [
            ("manage-all-nodes", "false", True),
            ("manage-nodes-with-label-selector", PLAYED, False),
            ("config", str(STAGES), False),
        ],
    }


def _argument(key: str, value: str, replaces: bool) -> dict[str, Any]:
    return {"key": key, "value": value, "override": replaces}
