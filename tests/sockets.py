"""Free ports, sockets that break, and what Python leaves behind when a server is killed while a client connects."""

from __future__ import annotations

import socket
import struct
from collections import deque
from functools import cache
from typing import TypeVar

import pytest

from dev.lab import slots

Connected = TypeVar("Connected", bound=socket.socket)

PEER_GONE = pytest.mark.filterwarnings(
    r"ignore:unclosed <ssl\.SSLSocket [^>]*laddr=\([^)]*\)>:ResourceWarning"
)
"""Python 3.11's SSLSocket._create does not close a socket that was reset before the handshake; the collector does."""

FIRST_PORT = 24_000
"""Above the ports of the labs, below those that Linux takes for outgoing connections."""
PORTS_EACH = 256


def reset(sock: socket.socket) -> None:
    """Close *sock* so that its peer gets a reset, whatever it reads or writes then."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def sent(sock: Connected, data: bytes) -> Connected:
    """*sock*, on which *data* is on its way."""
    sock.sendall(data)
    return sock


def free_ports(count: int) -> list[int]:
    """Of the loopback; neither another test nor an outgoing connection gets one before its server listens."""
    own = _own_ports()
    found = slots.free_ports(own, count)
    own.rotate(-1 - own.index(found[-1]))
    return found


@cache
def _own_ports() -> deque[int]:
    slot, holder = slots.claim("drawbridge-test-ports")
    holder.detach()  # the end of the process frees the slot
    first = FIRST_PORT + slot.number * PORTS_EACH
    return deque(range(first, first + PORTS_EACH))
