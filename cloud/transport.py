"""Sign a call with the official SDK, send it once, and return its whole answer, or an error, within one timeout.

The SDK signs and keeps the connection. Its retries (they allocate twice), its region breaker (it loses
errors), its reading of NO_PROXY (host and port as one word) and of answers (`cloud.responses`) are not used.
"""

# ruff: noqa: A002 (``type`` reads best)

from __future__ import annotations

import contextlib
import functools
import http.client
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import requests
import requests.adapters
import urllib3
import urllib3.connection
from tencentcloud.common.common_client import CommonClient
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException
from tencentcloud.common.profile.client_profile import ClientProfile
from tencentcloud.common.profile.http_profile import HttpProfile

from cloud.apis import Api, Service
from cloud.errors import Unavailable, Unreachable
from cloud.responses import decoded
from cloud.types import Keys
from runtime import threading, time
from settings import CloudSettings

T = TypeVar("T")
Source = Callable[[], Keys]
"""Brings the keys of the moment; raises CloudError when there are none."""
CONNECT_TIMEOUT = 5.0

# At debug level the SDK writes whole requests and answers, credentials among them.
logging.getLogger("tencentcloud_sdk_common").setLevel(logging.WARNING)


class Transport:
    """Safe to share between threads: each call has a client of the SDK, with its connection, for itself.

    Without *source* nothing is signed, which only the exchange of one identity for another allows.
    """

    def __init__(self, settings: CloudSettings, region: str, source: Source | None) -> None:
        self._settings, self._region, self._source = settings, region, source
        self._idle: dict[Service, list[Any]] = {}

    def call(self, api: Api, params: Mapping[str, object], type: type[T], timeout: float) -> T:
        deadline, idle = time.monotonic() + timeout, self._idle.setdefault(api.service, [])
        try:
            client = idle.pop()
        except IndexError:
            client = self._new_client(api.service)
        # The other half is for the cloud: what is sent late is carried out later still.
        connect = min(CONNECT_TIMEOUT, timeout / 2)
        client.request.conn.timeout = urllib3.Timeout(connect=connect, total=timeout)
        try:
            # Its public methods judge the answer, too; this is the part of them that signs and sends.
            answer = client._call(api.action, dict(params), {"SkipSign": self._source is None})
            content = _read(answer.raw, deadline)
        except TencentCloudSDKException as error:
            kind = Unreachable if _never_connected(error.__context__) else Unavailable
            raise kind(error.code, error.message, action=api.action) from error
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
            raise Unavailable("Network", str(error) or error.__class__.__name__, action=api.action) from error
        finally:
            idle.append(client)
        return decoded(content, answer.status_code, type, api.action)

    def _new_client(self, service: Service) -> Any:
        settings = self._settings
        http_profile = HttpProfile(
            endpoint=settings.endpoint or None,
            rootDomain=settings.root_domain,
            proxy=settings.proxy or None,
            certification=settings.ca_file or True,  # True: the environment's bundle, else certifi's
        )
        profile = ClientProfile(httpProfile=http_profile, language="en-US", request_client="drawbridge")
        signer = _Signer(self._source) if self._source else None
        client = CommonClient(service.name, service.version, signer, self._region, profile)
        client.request.conn._session = _Session()
        if not settings.proxy:
            # Then requests takes the environment's, and understands its NO_PROXY.
            client.request.conn.proxy = None
        return client


class _Signer:
    """What the SDK asks for the keys, each time that it signs."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def get_credential_info(self) -> tuple[str, str, str | None]:
        keys = self._source()
        return keys.secret_id, keys.secret_key, keys.token


def _never_connected(error: object) -> bool:
    """Whether requests failed before anything was sent; when in doubt, it did not."""
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return True
    why = error.args[0] if isinstance(error, requests.exceptions.ConnectionError) and error.args else None
    return isinstance(getattr(why, "reason", None), urllib3.exceptions.NewConnectionError)


def _read(answer: urllib3.HTTPResponse, deadline: float) -> bytes:
    """The whole body, or an error at *deadline* however slowly it trickles."""
    left = max(0.0, deadline - time.monotonic())
    # It is back in the pool when it was read to its end, and closed otherwise.
    with contextlib.closing(answer), hung_up(left, answer.shutdown):
        return answer.read(decode_content=True)


@contextlib.contextmanager
def hung_up(after: float, hang_up: Callable[[], object]) -> Iterator[None]:
    """Unless the block ends within *after* seconds, *hang_up* is called, which must end it.

    Never once the block has ended: its connection may be in use for another call by then.
    """
    over, ending = False, threading.Lock()

    def act() -> None:
        # What is over just now cannot be hung up any more, and says so in many ways.
        with ending, contextlib.suppress(Exception):
            if not over:
                hang_up()

    timer = threading.Timer(after, act)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with ending:
            over = True


class _Session(requests.Session):
    """A redirect that is followed sends a call again, perhaps to a host that must not have its token."""

    def __init__(self) -> None:
        super().__init__()
        self.mount("https://", _Adapter())

    def get_redirect_target(self, resp: object) -> None:
        """None: a redirect is an answer like others."""


class _Bounded(urllib3.connection.HTTPSConnection):
    """Hangs up when the head has not come within the timeout, which a socket starts again with every byte.

    Nothing is sent over a connection that took longer than its own timeout, which neither the look-up of the name
    counts in, nor all addresses together.
    """

    def connect(self) -> None:
        began = time.monotonic()
        super().connect()
        if self.timeout is not None and time.monotonic() - began > self.timeout:
            self.close()
            raise urllib3.exceptions.NewConnectionError(self, "connected too late to send anything")

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]
        # Below TLS, whose own shutdown is not for another thread than the one that reads.
        hang_up = functools.partial(socket.socket.shutdown, self.sock, socket.SHUT_RDWR)
        with hung_up(self.timeout or 0.0, hang_up):
            return super().getresponse()


class _Adapter(requests.adapters.HTTPAdapter):
    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        pool = super().get_connection_with_tls_context(*args, **kwargs)
        pool.ConnectionCls = _Bounded
        return pool
