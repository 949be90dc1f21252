"""The kinds of objects that are explained: for the command, and for the dashboard."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from cli.errors import Failure
from cli.explain import ingress_daemonset, ip, node, pod
from cli.explain.reader import Reader
from cli.output import Part


@dataclass(frozen=True)
class Kind:
    """*read* the facts of an object by its namespace and name; KubeError, Failure. The rest are functions of them."""

    read: Callable[[Reader, str, str], Any]
    explain: Callable[[Any], Any]
    parts: Callable[[Any], Iterable[Part]]
    namespaced: bool = True


def _ip(reader: Reader, _namespace: str, address: str) -> ip.IPFacts:
    try:
        canonical = str(ip_address(address))
    except ValueError:
        raise Failure(f"{address!r} is no IP address", "write for example 10.0.0.5") from None
    return reader.ip(canonical)


KINDS = {
    "pod": Kind(Reader.pod, pod.explain, pod.parts),
    "ip": Kind(_ip, ip.explain, ip.parts, namespaced=False),
    "node": Kind(
        lambda reader, _namespace, name: reader.node(name), node.explain, node.parts, namespaced=False
    ),
    "ingressdaemonset": Kind(Reader.ingress_daemonset, ingress_daemonset.explain, ingress_daemonset.parts),
}
