"""The cloud's side of a call in the tests of the edge: answers in its form, and stand-ins for its parts."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from cloud.apis import Api
from cloud.batched import BatchedCloud, Batcher
from cloud.caller import Caller, Timing
from cloud.errors import CloudError
from cloud.transport import Transport
from cloud.types import Keys
from dev.lab.cloud import tls
from settings import CloudSettings
from tests.fakes import FakeClock
from tests.misbehaving_server import Answer, Server, answers

T = TypeVar("T")
KEYS = Keys("AKIDtest", "test-secret-key")


def says(content_type: str = "application/json", **fields: object) -> Answer:
    return answers({"Response": {"RequestId": "r-1", **fields}}, Content_Type=content_type)


def refuses(code: str, content_type: str = "application/json") -> Answer:
    return says(content_type, Error={"Code": code, "Message": "no"})


def settings(server: Server, **fields: Any) -> CloudSettings:
    """For calls to *server*, which expects TLS from now on."""
    if not isinstance(server.socket, ssl.SSLSocket):
        server.socket = tls.context("127.0.0.1").wrap_socket(server.socket, server_side=True)
    endpoint = f"127.0.0.1:{server.server_port}"
    return CloudSettings(**{"endpoint": endpoint, "ca_file": str(tls.AUTHORITY), **fields})


def transport(server: Server, **fields: Any) -> Transport:
    return Transport(settings(server, **fields), "ap-singapore", lambda: KEYS)


class FakeTransport:
    """Answers each action by its function of the parameters, whose result is fields or an error to raise."""

    def __init__(self, **actions: Callable[[Mapping[str, Any]], object]) -> None:
        self.actions = actions
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.timeouts: list[float] = []

    def call(self, api: Api, params: Mapping[str, object], type: type[T], timeout: float) -> T:  # noqa: A002
        self.asked.append((api.action, dict(params)))
        self.timeouts.append(timeout)
        answer = self.actions[api.action](params)
        if isinstance(answer, CloudError):
            raise answer
        return msgspec.convert(answer, type)


def batchers(cloud: BatchedCloud) -> list[Batcher[Any, Any]]:
    """In the order in which they were made."""
    found = (getattr(each, "__self__", each) for each in vars(cloud).values())
    return [each for each in found if isinstance(each, Batcher)]


def step(batcher: Batcher[Any, Any]) -> bool:
    """Send one batch if one is due, without a thread that waits for it."""
    with batcher._changed:
        batch = batcher._take() if batcher.due <= batcher._clock() else ()
    if batch:
        batcher._send(batch)
    return bool(batch)


def in_turn(*results: object) -> Callable[[Mapping[str, Any]], object]:
    """Each once, whatever the parameters."""
    left: Iterable[object] = iter(results)
    return lambda params: next(left)  # type: ignore[call-overload,no-any-return]


def error(kind: type[CloudError], code: str = "Code") -> CloudError:
    return kind(code, "no", action="Action")


def limited(call: float, attempt: float) -> CloudSettings:
    """To so many seconds, with all that the cloud allows for us."""
    return CloudSettings.model_validate(
        {"callTimeout": f"{call:g}s", "attemptTimeout": f"{attempt:g}s", "rateShare": "100%"}
    )


def calls(
    fake: FakeTransport,
    clock: FakeClock,
    *,
    timeout: float = 30.0,
    write: float = 10.0,
    may_write: Callable[[], object] = lambda: None,
    keys: Callable[[], object] = lambda: None,
) -> Caller:
    """Time passes only by waiting."""
    return Caller(
        fake,
        limited(timeout, min(timeout, 10.0)),
        write,
        may_write,
        keys,
        Timing(clock, clock.advance, lambda: 1.0),
    )
