"""Free ports, sockets that break, and what Python leaves behind when a server is killed while a client connects."""

from __future__ import annotations

import socket
import struct

import pytest

PEER_GONE = pytest.mark.filterwarnings(
    r"ignore:unclosed <ssl\.SSLSocket [^>]*laddr=\([^)]*\)>:ResourceWarning"
)
"""Python 3.11's SSLSocket._create does not close a socket that was reset before the handshake; the collector does."""


def reset(sock: socket.socket) -> None:
    """Close *sock* so that its peer gets a reset, whatever it reads or writes then."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def free_ports(count: int) -> list[int]:
    """Of the loopback."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports
