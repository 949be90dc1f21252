"""Give each pod another loopback address, and none again soon after its pod has gone."""

from __future__ import annotations

import threading
from ipaddress import IPv4Network


class Addresses:
    def __init__(self, network: IPv4Network) -> None:
        self._network = network
        self._used: set[str] = set()
        self._last = 0
        self._lock = threading.Lock()

    def take(self) -> str:
        """The next free one, going round. Raises RuntimeError when all are in use."""
        with self._lock:
            for _ in range(self._network.num_addresses - 2):
                self._last = self._last % (self._network.num_addresses - 2) + 1
                address = str(self._network[self._last])
                if address not in self._used:
                    self._used.add(address)
                    return address
        raise RuntimeError(f"all addresses of {self._network} are in use; give a larger --pod-cidr")

    def give_back(self, address: str) -> None:
        with self._lock:
            self._used.discard(address)
