"""Answer a request as the cloud's gateway: authenticate, find the action, limit the rate, authorize, run."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from dev.lab.cloud import envelope, faults, policy, products, signature, sts
from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.limits import Limits
from dev.lab.cloud.request import Request
from dev.lab.cloud.values import Call
from dev.lab.cloud.world import World

LARGEST = 10 << 20
PAGE = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"
JSON, HTML = "application/json", "text/html"
THROTTLED = Fault("RequestLimitExceeded", "The frequency limit is exceeded. Please reduce your calls.")
INTERNAL = Fault("InternalError", "An internal error occurred. Please try again.")


@dataclass(frozen=True)
class Reply:
    body: bytes
    status: int = 200
    content_type: str = JSON
    lost: bool = False
    """The connection breaks instead."""
    delay: float = 0.0


class Emulator:
    """*wall* is the time that signatures are measured by, the world's clock what tasks and limits go by."""

    def __init__(self, world: World, wall: Callable[[], float]) -> None:
        self.world = world
        self._wall = wall
        self._limits = Limits()
        self._dice = Random(world.knobs.seed + 1)  # noqa: S311 - dice, not secrets
        self._rolling = threading.Lock()

    def reply(self, request: Request) -> Reply:
        knobs, request_id = self.world.knobs, str(uuid.uuid4())
        with self._rolling:
            strike = faults.strike(knobs, request.action, self._dice)
        struck = _struck(strike.kind, request_id)
        instead = struck and (strike.kind == "RequestLimitExceeded" or not knobs.errors_after_commit)
        body, outcome = (b"", strike.kind) if instead else self._answer(request, request_id)
        delivered = not strike.lost and (instead or not struck)
        self._note(request, outcome, bool(delivered))
        status, content_type, body = struck or (200, JSON, body)
        return Reply(body, status, content_type, strike.lost, strike.delay)

    def _answer(self, request: Request, request_id: str) -> tuple[bytes, str]:
        try:
            with self.world.advanced() as now:
                return envelope.success(self._run(request, now), request_id), "OK"
        except Fault as fault:
            return envelope.failure(fault, request_id), fault.code

    def _run(self, request: Request, now: float) -> Any:
        world = self.world
        if len(request.body) > LARGEST:
            raise Fault("RequestSizeLimitExceeded", f"The body is longer than {LARGEST} bytes.")
        caller, service = self._caller(request)
        region = request.headers.get("x-tc-region", "")
        action = products.find(service, request.headers.get("x-tc-version", ""), request.action, region)
        self._limits.take(world.knobs, request.action, caller, action.rate, now)
        policy.check_action(world, request.action)
        if code := world.knobs.errors.get(request.action):
            raise Fault(code, f"{request.action} is made to fail.")
        params = request.read(action.params)
        policy.check_resources(world, request.action, params)
        return action.run(world, params, region)

    def _caller(self, request: Request) -> tuple[str, str]:
        """Who it is, and the product; raises Fault for one who does not prove it."""
        if request.headers.get("authorization") == "SKIP" and request.action == products.UNSIGNED:
            return "unsigned", "sts"
        said = signature.claim(request)
        now = self._wall() + self.world.knobs.clock_skew_seconds
        signature.verify(request, said, lambda *who: sts.secret_key(self.world, *who), now)
        host = request.headers.get("host", "").partition(".")[0]
        if host in products.PRODUCTS and host != said.service:
            raise Fault(
                "AuthFailure.SignatureFailure", f"The signature is for {said.service}, not for {host}."
            )
        return said.secret_id, said.service

    def _note(self, request: Request, outcome: str, delivered: bool) -> None:
        try:
            params = msgspec.json.decode(request.body or b"null")
        except (msgspec.DecodeError, UnicodeDecodeError):
            params = None
        call = Call(
            at=self.world.clock(),
            action=request.action,
            region=request.headers.get("x-tc-region", ""),
            outcome=outcome,
            delivered=delivered,
            params=params,
        )
        with self.world.lock:
            self.world.log.append(call)


def _struck(kind: str, request_id: str) -> tuple[int, str, bytes] | None:
    """Status, content type and body of the answer that this kind of trouble gives; None for no trouble."""
    if kind == "HTTP 502":
        return 502, HTML, PAGE
    if kind == "HTML":
        return 200, HTML, PAGE
    fault = {THROTTLED.code: THROTTLED, INTERNAL.code: INTERNAL}.get(kind)
    return (200, JSON, envelope.failure(fault, request_id)) if fault else None
