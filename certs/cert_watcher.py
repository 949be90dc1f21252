"""Serve the certificate on disk, and the last good one while the files are torn or wrong.

With a client CA, handshakes succeed only for clients with a certificate of it.
"""

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from math import inf
from pathlib import Path

import structlog
from prometheus_client import Counter, Gauge

from certs.issue import not_after
from runtime import threading, time

log = structlog.stdlib.get_logger(__name__)

NOT_AFTER = Gauge(
    "drawbridge_serving_cert_not_after_timestamp_seconds",
    "When the certificate that is served ends, as a Unix time.",
)
RELOADS = Counter(
    "drawbridge_serving_cert_reload_total",
    "Times the serving certificate was read because its files or the client CA had changed, by result.",
    ["result"],
)

AGAIN = 10.0
"""Seconds until files that could not be read are read again: they may look the same then."""

Identity = tuple[tuple[int, int, int, int], ...] | None


@dataclass(frozen=True)
class Served:
    """A good pair, ready for handshakes."""

    context: ssl.SSLContext
    not_after: datetime


class ServingPair:
    """The TLS server context of a certificate file and a key file, read again whenever either or *client_ca* changes.

    *client_ca* gives PEM certificates of CAs, or nothing when clients need no certificate.
    """

    def __init__(
        self,
        certificate: str | os.PathLike[str],
        key: str | os.PathLike[str],
        client_ca: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = (Path(certificate), Path(key))
        self._client_ca, self._clock = client_ca, clock
        self._lock = threading.Lock()
        self._seen: tuple[Identity, str] | None = None
        self._served: Served | None = None
        self._again_at = inf

    def context(self) -> ssl.SSLContext:
        """The context for the next handshake: two stat calls when nothing has changed.

        Raises OSError or ValueError (ssl.SSLError is an OSError) when there has never been a good pair.
        """
        return self._current().context

    def problem(self, at: datetime) -> str | None:
        """Why clients would refuse the certificate at that time, if they would."""
        try:
            end = self._current().not_after
        except (OSError, ValueError) as error:
            return f"no serving certificate could be read: {error}"
        return f"the serving certificate ended on {end.isoformat()}" if at > end else None

    def _current(self) -> Served:
        identity, served = (self._identity(), self._client_ca()), self._served
        if served is not None and self._is_known(identity):
            return served
        with self._lock:
            if self._served is None or not self._is_known(identity):
                self._served = self._read(identity[1])
                self._seen = identity
            return self._served

    def _is_known(self, identity: tuple[Identity, str]) -> bool:
        return identity == self._seen and self._clock() < self._again_at

    def _read(self, client_ca: str) -> Served:
        """The pair on disk if it is good, else the last good one; raises only when there is none."""
        try:
            served = load(*self._files, client_ca)
        except (OSError, ValueError) as error:
            RELOADS.labels("failure").inc()
            if self._served is None:
                raise
            log.error("serving certificate refused, last good one stays", error=str(error))
            self._again_at = self._clock() + AGAIN if isinstance(error, OSError) else inf
            return self._served
        self._again_at = inf
        NOT_AFTER.set(served.not_after.timestamp())
        RELOADS.labels("success").inc()
        log.info("serving certificate read", not_after=served.not_after.isoformat())
        return served

    def _identity(self) -> Identity:
        try:
            found = [file.stat() for file in self._files]
        except OSError:
            return None
        # The change time shows a file that has only been made readable, too.
        return tuple((each.st_mtime_ns, each.st_ctime_ns, each.st_ino, each.st_size) for each in found)


def load(certificate: Path, key: Path, client_ca: str = "") -> Served:
    """Raises OSError or ValueError that names the files."""
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # HTTP/2 would put all of an API server's calls on one connection, and so on one replica.
        context.set_alpn_protocols(["http/1.1"])
        # API servers resume no session: tickets would be a tenth of the price of a handshake.
        context.num_tickets = 0
        end = not_after(certificate.read_bytes())
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise ValueError(f"{certificate} and {key} are not a pair: {error}") from error
    except ValueError as error:
        raise ValueError(f"{certificate} is not a PEM certificate: {error}") from error
    if client_ca:
        context.load_verify_locations(cadata=client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return Served(context, end)
