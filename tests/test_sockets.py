"""Ports that no other program gets; tests that kill servers pass over sockets whose peer is gone, and no others."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.sockets import PEER_GONE, free_ports


def unclosed(**more: str) -> str:
    parts = {"fd": "4", "laddr": "('127.0.0.1', 5)", **more}
    return f"unclosed <ssl.SSLSocket {', '.join(f'{name}={value}' for name, value in parts.items())}>"


@PEER_GONE
def test_a_connection_that_stands_must_be_closed() -> None:
    warnings.warn(unclosed(), ResourceWarning, stacklevel=1)
    with pytest.raises(ResourceWarning):
        warnings.warn(unclosed(raddr="('127.0.0.1', 6)"), ResourceWarning, stacklevel=1)


def test_a_free_port_is_given_once_and_never_to_an_outgoing_connection() -> None:
    given = [*free_ports(2), *free_ports(3)]
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert len(set(given)) == 5
    assert not any(first <= port <= last for port in given)
