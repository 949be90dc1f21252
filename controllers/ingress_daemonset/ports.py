"""Pods that share the ports of their node list none: probes and hooks that name a port get its number instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Raw = Mapping[str, Any]
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
HOOKS = ("postStart", "preStop")
ASKING = ("httpGet", "tcpSocket")


def without_ports(spec: Raw) -> dict[str, Any]:
    """*spec* of a pod: the kubelet refuses a second one on a node that lists the same ports of the host."""
    lists = {name: spec[name] for name in ("containers", "initContainers") if spec.get(name)}
    return {**spec} | {name: [_bare(each) for each in containers] for name, containers in lists.items()}


def _bare(container: Raw) -> dict[str, Any]:
    numbers = {
        port["name"]: port["containerPort"] for port in container.get("ports") or () if port.get("name")
    }
    bare = {key: value for key, value in container.items() if key != "ports"}
    bare |= {name: _numbered(bare[name], numbers) for name in PROBES if bare.get(name)}
    if hooks := bare.get("lifecycle"):
        found = {name: _numbered(hooks[name], numbers) for name in HOOKS if hooks.get(name)}
        bare["lifecycle"] = {**hooks, **found}
    return bare


def _numbered(handler: Raw, numbers: Mapping[str, int]) -> dict[str, Any]:
    asking = {name: handler[name] for name in ASKING if handler.get(name)}
    return {**handler} | {
        name: {**each, "port": _number(each.get("port"), numbers)} for name, each in asking.items()
    }


def _number(port: Any, numbers: Mapping[str, int]) -> Any:
    return numbers.get(port, port) if isinstance(port, str) else port
