"""Tests that kill servers pass over sockets whose peer is gone, and over no others."""

from __future__ import annotations

import warnings

import pytest

from tests.sockets import PEER_GONE


def unclosed(**more: str) -> str:
    parts = {"fd": "4", "laddr": "('127.0.0.1', 5)", **more}
    return f"unclosed <ssl.SSLSocket {', '.join(f'{name}={value}' for name, value in parts.items())}>"


@PEER_GONE
def test_a_connection_that_stands_must_be_closed() -> None:
    warnings.warn(unclosed(), ResourceWarning, stacklevel=1)
    with pytest.raises(ResourceWarning):
        warnings.warn(unclosed(raddr="('127.0.0.1', 6)"), ResourceWarning, stacklevel=1)
