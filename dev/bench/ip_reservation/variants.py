"""Clusters to compare, one at a time in one lab: no webhook, one that does nothing (about each request, or only
about those that ours is asked about), and ours, with pods whose IPs are reserved when they go, or ahead."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dev.bench.arithmetic import growth, total
from dev.bench.cluster import CALLS, awaited_leader, counters
from dev.bench.deployments import (
    BENCH,
    CONTROLLERS,
    PATIENCE,
    SERVERS,
    Place,
    await_scaled,
    deploy_program,
    replicas,
    scale,
)
from dev.bench.ip_reservation.ahead import show_pool
from dev.lab import binaries
from dev.lab.install import NAMESPACE, RELEASE
from dev.lab.session import Lab
from kube.errors import ApiError, NotFound
from kube.resources import VALIDATING_WEBHOOKS

NONE, NO_OP, NO_OP_CONDITIONS = "no webhook", "no-op", "no-op, our match conditions"
OURS, AHEAD = "ours", "ours, reserved ahead"


@dataclass(frozen=True)
class Variant:
    """*runs* are the Deployments that are up in it, with how many pods each; *registration* is what the API
    server calls, if anything."""

    name: str
    runs: Mapping[Place, int] = field(default_factory=dict)
    registration: Mapping[str, Any] | None = None

    @property
    def webhook(self) -> str:
        return str(self.registration["webhooks"][0]["name"]) if self.registration else ""


class Stage:
    """Sets the variants up in turn; evictions of absent pods in *namespace* show which webhook is called."""

    def __init__(self, lab: Lab, namespace: str) -> None:
        self._lab, self._client, self._namespace = lab, lab.client, namespace
        ours = _recreatable(self._client.get(VALIDATING_WEBHOOKS, RELEASE))
        programs = ((NAMESPACE, SERVERS), (NAMESPACE, CONTROLLERS))
        runs = {place: replicas(self._client, place) for place in programs}
        authority = deploy_program(self._client, "noop", binaries.ensure("noop-webhook")["noop-webhook"])
        noop = {(BENCH, "noop"): runs[NAMESPACE, SERVERS]}
        self.variants = (
            Variant(NONE),
            Variant(NO_OP, noop, noop_registration(ours, authority, conditions=False)),
            Variant(NO_OP_CONDITIONS, noop, noop_registration(ours, authority, conditions=True)),
            Variant(OURS, runs, ours),
            Variant(AHEAD, runs, ours),
        )

    def enter(self, variant: Variant) -> None:
        """Back when just its programs run, and just its webhook is called."""
        self._register(None)
        show_pool(self._client, shown=variant.name == AHEAD)
        wanted = {place: variant.runs.get(place, 0) for each in self.variants for place in each.runs}
        for place, pods in wanted.items():
            scale(self._client, place, pods)
        for place, pods in wanted.items():
            await_scaled(self._lab, place, pods)
        if (NAMESPACE, CONTROLLERS) in variant.runs:
            awaited_leader(self._lab)
        self._register(variant.registration)
        self._lab.wait(lambda: self._is_called(variant.webhook), PATIENCE, f"{variant.name} to be in force")

    def _register(self, registration: Mapping[str, Any] | None) -> None:
        for name in {each.registration["metadata"]["name"] for each in self.variants if each.registration}:
            with suppress(NotFound):
                self._client.delete(VALIDATING_WEBHOOKS, name)
        if registration:
            self._client.create(VALIDATING_WEBHOOKS, registration)

    def _is_called(self, webhook: str) -> bool:
        before = counters(self._client, CALLS)
        with suppress(ApiError):  # there is no such pod: what counts is who was asked about it
            self._client.evict("absent", self._namespace, preconditions={})
        more = growth(before, counters(self._client, CALLS))
        called = {each.webhook for each in self.variants if total(more, CALLS, name=each.webhook, code="200")}
        return called == ({webhook} if webhook else set())


def noop_registration(ours: Mapping[str, Any], authority: bytes, *, conditions: bool) -> dict[str, Any]:
    """Our own webhooks, to the no-op server, with or without their match conditions."""
    service = {"name": "noop", "namespace": BENCH, "path": "/", "port": 443}
    called = {"caBundle": base64.b64encode(authority).decode(), "service": service}
    # Separate names, so that the API server's metrics say which of them is in force.
    name = "noop-conditions" if conditions else "noop"
    noops = [
        webhook
        | {
            "name": f"{name}-{number}.bench.drawbridge.io",
            "clientConfig": called,
            "matchConditions": webhook["matchConditions"] if conditions else [],
        }
        for number, webhook in enumerate(ours["webhooks"])
    ]
    return dict(ours) | {"metadata": {"name": "bench-noop"}, "webhooks": noops}


def _recreatable(found: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: found["metadata"][key] for key in ("name", "labels")}
    return {key: found[key] for key in ("apiVersion", "kind", "webhooks")} | {"metadata": kept}
