"""What Python leaves behind when a server is killed while a client connects."""

from __future__ import annotations

import pytest

PEER_GONE = pytest.mark.filterwarnings(
    r"ignore:unclosed <ssl\.SSLSocket [^>]*laddr=\([^)]*\)>:ResourceWarning"
)
"""Python 3.11's SSLSocket._create does not close a socket that was reset before the handshake; the collector does."""
