"""Clients that are refused before a review: counted, and few of them logged."""

import errno
import ssl

import structlog
from prometheus_client import Counter

from telemetry.sparing import SparingLogger
from webhook.inbox import Refused

log = structlog.stdlib.get_logger(__name__)
sparing = SparingLogger(log)

REFUSED = Counter(
    "drawbridge_refused_connections",
    "Connections refused before a review, by reason: tls, or the HTTP status.",
    ["reason"],
)
TLS = "tls"
for _reason in (TLS, "400", "411", "413", "417", "503"):
    REFUSED.labels(_reason)  # from zero on: a scraper cannot tell a first one from a new series


def report(client: str, refused: Refused) -> None:
    REFUSED.labels(refused.status).inc()
    sparing.warning("request refused", client=client, status=refused.args[0])


def report_failure(client: str, error: OSError) -> None:
    """A client that refuses our certificate is worth a warning; one that leaves is not."""
    # ENOTCONN: Python found the connection reset, with part of a handshake in it.
    has_left = isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)) or error.errno == errno.ENOTCONN
    if isinstance(error, ssl.SSLError) and not has_left:
        REFUSED.labels(TLS).inc()
        sparing.warning("TLS failed", client=client, error=str(error))
    else:
        log.debug("connection dropped", client=client, error=str(error))
