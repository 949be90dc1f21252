"""The one fake API server of all tests.

``FakeAPI().client()`` is the product's own client on it, without a socket; ``over_http`` serves the same to other
processes. ``put``, ``edit``, ``remove``, ``get`` and ``list`` are the test's own hands.
"""

from tests.fake_api.calls import Reply, Request, refusal
from tests.fake_api.front import connection_to, over_http
from tests.fake_api.kinds import BUILT_IN, CALICO_V1, CALICO_V3, INGRESS_DAEMONSETS, Kind
from tests.fake_api.patches import merged
from tests.fake_api.server import NAMESPACES, Denied, FakeAPI, Review, Unavailable
from tests.fake_api.view import Objects

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
    "connection_to",
    "merged",
    "over_http",
    "refusal",
]
