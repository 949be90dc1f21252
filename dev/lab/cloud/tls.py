"""TLS of the emulator. The key of its authority is known to everyone, so that no file has to be shared.

The certificate of that authority is in authority.crt.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certs.issue import Pair, new_leaf

AUTHORITY = Path(__file__).with_name("authority.crt")
_KEY = ec.derive_private_key(int.from_bytes(b"known to everyone"), ec.SECP256R1())
_BEGIN, _END = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)


@cache
def context(address: str) -> ssl.SSLContext:
    """Of a server at this IP."""
    key = _KEY.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    leaf = new_leaf(Pair(AUTHORITY.read_bytes(), key), (), (address,), _BEGIN, _END)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with NamedTemporaryFile() as file:
        file.write(leaf.certificate + leaf.key)
        file.flush()
        made.load_cert_chain(file.name)
    return made
