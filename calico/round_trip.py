"""Reserve an address and release it: whether permissions, admission policies and Calico let a writer do both."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from calico.ledger import Ledger
from calico.reservations import NotServed, Reservations
from calico.segment import NotReserved, Record
from kube.errors import Conflict, KubeError, NotFound
from runtime import time, uuid4

ADDRESS = "192.0.2.1"
"""Of TEST-NET-1 (RFC 5737): no pod has it, so nothing is kept from any pod."""
RELEASE_TIMEOUT = 5.0


def round_trip(store: Reservations, writer: str, namespace: str, now: datetime, seconds: float) -> str:
    """What went wrong within *seconds*, or nothing.

    The leader deletes the segment, which is empty then, in its next pass.
    """
    record = Record(f"{ADDRESS}/32", now, namespace, writer, str(uuid4()), reason="test")
    try:
        segment = Ledger(store, writer).reserve([record], time.monotonic() + seconds)
    except NotReserved as error:
        return f"{ADDRESS} cannot be reserved: {error}"
    try:
        # A pass of the leader in between has released it, since there is no such pod.
        with suppress(Conflict, NotFound):
            store.write(segment, (), timeout=RELEASE_TIMEOUT)
    except (KubeError, NotServed) as error:
        return f"{ADDRESS} was reserved, and cannot be released: {error}"
    return ""
