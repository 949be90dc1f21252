"""Labs never share an address or a port: each holds a slot, which the kernel frees on its death."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass

from dev.lab.errors import LabError

COUNT = 32
# Below the range from which Linux takes ports for outgoing connections (32768 and up).
FIRST_PORT = 20_000
PORTS_EACH = 64


@dataclass(frozen=True)
class Slot:
    number: int

    @property
    def service_range(self) -> str:
        return f"127.{64 + self.number}.0.0/16"

    @property
    def pod_range(self) -> str:
        return f"127.{128 + self.number}.0.0/16"

    @property
    def kubernetes_address(self) -> str:
        """The cluster IP of the Service ``default/kubernetes``: the first of its range."""
        return f"127.{64 + self.number}.0.1"

    @property
    def ports(self) -> range:
        first = FIRST_PORT + self.number * PORTS_EACH
        return range(first, first + PORTS_EACH)


def claim(prefix: str = "drawbridge-lab") -> tuple[Slot, socket.socket]:
    """A free slot, and the socket that holds it while it is open.

    An abstract socket lives in the network namespace, as the loopback does, and dies with its process.
    """
    for number in range(COUNT):
        holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            holder.bind(f"\0{prefix}-{number}")
        except OSError:
            holder.close()
            continue
        return Slot(number), holder
    raise LabError(
        f"all {COUNT} slots are taken; end a lab first: python -m dev.lab list, python -m dev.lab down --name NAME"
    )


def free_ports(candidates: Sequence[int], count: int) -> list[int]:
    """The first *count* ports of *candidates* that no one listens on at 127.0.0.1 or at all addresses."""
    free = [port for port in candidates if _is_free(port)][:count]
    if len(free) < count:
        raise LabError(
            f"only {len(free)} of ports {candidates[0]} to {candidates[-1]} are free, {count} are needed"
        )
    return free


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # what lies in TIME_WAIT is free to listen on
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
