"""Answer with the allow-list over HTTP: on each replica, as the API server has it when the request comes.

Nothing is answered from memory, so that no client gets an older list after a newer one, from any two replicas and
across changes of the leader. What cannot be read, or was never written, is answered with 503, not with an empty list.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address

import msgspec
import structlog
from prometheus_client import Counter

from api.anycast_ip import ALLOW_LIST_LABEL, ENTRIES, JSON, TEXT, data_of
from kube.client import Client
from kube.errors import KubeError
from kube.store import Store
from kube.types import ConfigMap
from runtime import threading, time
from settings import Settings
from telemetry.http import serve as serve_at
from telemetry.server import TEXT as PLAIN
from telemetry.server import Request, Response, Server, text

CIDRS, ADDRESSES = "/cidrs.txt", "/addresses.json"
PAUSE = 0.05
"""Seconds from one read to the next at least: however many ask, the API server is asked twenty times a second."""
TRY_AGAIN = 10
"""Seconds after which a client may ask again when the list cannot be read."""
REQUESTS = Counter(
    "drawbridge_anycast_ip_allow_list_requests",
    "Requests for the allow-list over HTTP, by result.",
    ["result"],
)
for _result in ("sent", "unchanged", "unavailable", "not_found"):
    REQUESTS.labels(_result)

log = structlog.stdlib.get_logger(__name__)


class Unavailable(Exception):
    """There is no list to answer with; the message says why."""


class Feed:
    """`respond` is for any number of threads. *read* brings the ConfigMap, or None; KubeError, ValueError."""

    def __init__(
        self,
        read: Callable[[], ConfigMap | None],
        clock: Callable[[], float],
        sleep: Callable[[float], object],
    ) -> None:
        self._read, self._clock, self._sleep = read, clock, sleep
        self._reading = threading.Lock()
        self._began = -PAUSE
        self._found: ConfigMap | Unavailable = Unavailable("it was not read yet")
        self._problem = ""

    def respond(self, request: Request) -> Response:
        if request.path not in (CIDRS, ADDRESSES):
            REQUESTS.labels("not_found").inc()
            return text(404, f"not found; here are {CIDRS} and {ADDRESSES}")
        is_json = request.path == ADDRESSES
        try:
            body = representations(*self._fresh())[is_json]
        except Unavailable as error:
            return self._unavailable(str(error))
        self._problem = ""
        # The same on all replicas as long as the body is.
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        kind = "application/json" if is_json else PLAIN
        headers = {"Content-Type": kind, "ETag": etag, "Cache-Control": "no-cache"}
        is_known = matches(request.headers.get("if-none-match", ""), etag)
        REQUESTS.labels("unchanged" if is_known else "sent").inc()
        return Response(304, b"", headers) if is_known else Response(200, body, headers)

    def _fresh(self) -> tuple[str, str]:
        """Both texts of the ConfigMap, from a read that began after this call; those who wait share one."""
        asked = self._clock()
        with self._reading:
            if self._began <= asked:
                self._sleep(max(0.0, self._began + PAUSE - self._clock()))
                self._began = self._clock()
                try:
                    read = self._read()
                    self._found = read or Unavailable("the controllers have not written it yet")
                except (KubeError, ValueError) as error:
                    self._found = Unavailable(str(error))
            found = self._found
        if isinstance(found, Unavailable):
            raise found
        return found.data.get(JSON, ""), found.data.get(TEXT, "")

    def _unavailable(self, problem: str) -> Response:
        REQUESTS.labels("unavailable").inc()
        if problem != self._problem:
            self._problem = problem
            log.warning("allow-list not served", error=problem)
        message = f"the allow-list is not available: {problem}; keep the one that you have"
        headers = {"Content-Type": PLAIN, "Retry-After": str(TRY_AGAIN)}
        return Response(503, f"{message}\n".encode(), headers)


@lru_cache(maxsize=2)
def representations(as_json: str, as_text: str) -> tuple[bytes, bytes]:
    """As plain text and as JSON, of what the ConfigMap has; Unavailable when both do not say the same."""
    try:
        found = ENTRIES.decode(as_json)
        ips = map(ip_address, dict.fromkeys(each.address for each in found))
        cidrs = "".join(f"{ip}/{ip.max_prefixlen}\n" for ip in ips)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unavailable(f"its ConfigMap has been changed, and is repaired soon: {error}") from None
    if data_of(found)[TEXT] != as_text:
        raise Unavailable(f"its ConfigMap has been changed, and is repaired soon: {TEXT} differs from {JSON}")
    return cidrs.encode(), as_json.encode()


def matches(if_none_match: str, etag: str) -> bool:
    """Whether the client has it already."""
    known = {each.strip().removeprefix("W/") for each in if_none_match.split(",")}
    return bool(known & {etag, "*"})


TIMEOUT = 3.0
"""Seconds for a read of the ConfigMap: less than a third of what a connection has, for those who wait for another."""


def serve(client: Client, settings: Callable[[], Settings]) -> Server | None:
    """None when it is off; CannotListen."""
    now = settings()
    if not now.anycast_ip.allow_list.is_served:
        return None
    namespace = os.environ.get("POD_NAMESPACE") or now.leader_election.resource_namespace
    store = Store(client, namespace, ConfigMap, TIMEOUT)

    def read() -> ConfigMap | None:
        allow_list = settings().anycast_ip.allow_list
        return store.read(allow_list.config_map, ALLOW_LIST_LABEL) if allow_list.enabled else None

    feed = Feed(read, time.monotonic, time.sleep)
    address = now.anycast_ip.allow_list.http.bind_address
    return serve_at("anycastIP.allowList.http.bindAddress", address, feed.respond)
