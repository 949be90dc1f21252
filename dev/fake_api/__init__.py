"""The one fake API server of all tests.

``FakeAPI().client()`` is the product's own client on it, without a socket; ``misbehaving_server.serving(api)``
serves it to other processes. ``put``, ``edit``, ``remove``, ``get`` and ``list`` are the test's own hands.
"""

from collections.abc import Iterable

from dev.fake_api.calls import Reply, Request, refusal
from dev.fake_api.front import connection_to
from dev.fake_api.kinds import BUILT_IN, CALICO_V1, CALICO_V3, INGRESS_DAEMONSETS, Kind
from dev.fake_api.patches import merged
from dev.fake_api.server import NAMESPACES, Denied, FakeAPI, Review, Unavailable
from dev.fake_api.view import Objects


def calico_api(*served: str, kinds: Iterable[Kind] = ()) -> FakeAPI:
    """One that answers for IPReservations in these API versions alone, and for more *kinds*."""
    api = FakeAPI(*BUILT_IN, *CALICO_V3, *CALICO_V1, *kinds)
    api.unserved = {kind.resource.api_version for kind in (*CALICO_V3, *CALICO_V1)} - {*served}
    return api


__all__ = [
    "BUILT_IN",
    "CALICO_V1",
    "CALICO_V3",
    "INGRESS_DAEMONSETS",
    "NAMESPACES",
    "Denied",
    "FakeAPI",
    "Kind",
    "Objects",
    "Reply",
    "Request",
    "Review",
    "Unavailable",
    "calico_api",
    "connection_to",
    "merged",
    "refusal",
]
