"""The one fake API server of all tests.

``FakeAPI().client()`` is the product's own client on it, without a socket; ``over_http`` serves the same to other
processes. ``put``, ``edit``, ``remove``, ``get`` and ``list`` are the test's own hands.
"""

from tests.fake_api.calls import Reply, Request, refusal
from tests.fake_api.front import over_http
from tests.fake_api.kinds import BUILT_IN, CALICO_V1, CALICO_V3, INGRESS_DAEMONSETS, Kind
from tests.fake_api.patches import merged
from tests.fake_api.server import Denied, FakeAPI, Review, Unavailable

__all__ = [
    "BUILT_IN",
    "CALICO_V1",
    "CALICO_V3",
    "INGRESS_DAEMONSETS",
    "Denied",
    "FakeAPI",
    "Kind",
    "Reply",
    "Request",
    "Review",
    "Unavailable",
    "merged",
    "over_http",
    "refusal",
]
