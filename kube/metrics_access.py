"""Who may read metrics: clients with a token whose user may get /metrics, as the API server says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from kube.client import Client, Resource
from kube.errors import KubeError
from runtime import threading, time
from settings.models import Metrics
from telemetry.http import METRICS_PATH, Access
from telemetry.server import Response, text

log = structlog.stdlib.get_logger(__name__)

TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", namespaced=False)
ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)
KEPT = 60.0
"""Seconds for which a verdict holds."""
MOST = 256
"""Tokens whose verdicts are kept."""
TIMEOUT = 3.0
"""Seconds for each of the two reviews: a scraper waits for both."""


def metrics_access(client: Client, settings: Metrics) -> Access | None:
    """By tokens if the settings say so; None where every client may read metrics."""
    return MetricsAccess(client) if settings.authentication else None


class MetricsAccess:
    """None for the Authorization header of a client that may read metrics, else the refusal."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        # Forged tokens must not take up the API server's share for our writes.
        self._one_at_a_time = threading.Lock()
        self._verdicts: dict[str, tuple[float, Response | None]] = {}

    def __call__(self, authorization: str) -> Response | None:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            return text(401, "send a token of the cluster: Authorization: Bearer ...")
        try:
            return self._verdict(token)
        except KubeError as error:
            log.warning("metrics access not reviewed", error=str(error))
            return text(503, "the API server did not review the token; try again")

    def _verdict(self, token: str) -> Response | None:
        until, verdict = self._verdicts.get(token, (0.0, None))
        now = self._clock()
        if now < until:
            return verdict
        with self._one_at_a_time:
            verdict = self._review(token)
        if len(self._verdicts) >= MOST:
            self._verdicts.clear()
        self._verdicts[token] = (now + KEPT, verdict)
        return verdict

    def _review(self, token: str) -> Response | None:
        status = self._create(TOKEN_REVIEWS, "TokenReview", {"token": token})
        if not status.get("authenticated"):
            return text(401, "the token is not one of this cluster, or has ended")
        user = status["user"]
        known = {name: user[name] for name in ("uid", "groups", "extra") if name in user}
        attributes = {"path": METRICS_PATH, "verb": "get"}
        asked = {"user": user["username"], **known, "nonResourceAttributes": attributes}
        if self._create(ACCESS_REVIEWS, "SubjectAccessReview", asked).get("allowed"):
            return None
        return text(403, f"{user['username']} may not get {METRICS_PATH}; bind the ClusterRole for it")

    def _create(self, resource: Resource, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        """The status of a review."""
        body = {"apiVersion": resource.api_version, "kind": kind, "spec": spec}
        status: dict[str, Any] = self._client.create(resource, body, timeout=TIMEOUT)["status"]
        return status
