"""Tests that kill servers pass over sockets whose peer is gone, and over no others."""

from __future__ import annotations

import gc
import select
import socket
import ssl
import struct
import warnings

import pytest

from tests.sockets import PEER_GONE

LINGER = struct.pack("ii", 1, 0)


@PEER_GONE
def test_a_peer_that_resets_before_the_handshake_fails_no_test() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
        accepted.close()
        assert select.select([client], [], [], 10)[0], "no reset came"
        with pytest.raises(OSError):  # noqa: PT011 - which one, only the kernel knows
            ssl.create_default_context().wrap_socket(client, server_hostname="server")
    gc.collect()


def unclosed(**more: str) -> str:
    parts = {"fd": "4", "laddr": "('127.0.0.1', 5)", **more}
    return f"unclosed <ssl.SSLSocket {', '.join(f'{name}={value}' for name, value in parts.items())}>"


@PEER_GONE
def test_a_connection_that_stands_must_be_closed() -> None:
    warnings.warn(unclosed(), ResourceWarning, stacklevel=1)
    with pytest.raises(ResourceWarning):
        warnings.warn(unclosed(raddr="('127.0.0.1', 6)"), ResourceWarning, stacklevel=1)
