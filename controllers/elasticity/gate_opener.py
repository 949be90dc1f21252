"""While the feature is off, hand gated pods to the scheduler, without a placement.

Gates outlive the feature: a replica of the webhook may gate for a moment after it was switched off, and a request
that is under way comes to its end. So the opener keeps watching.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import msgspec
import structlog
from prometheus_client import Counter

from controllers.elasticity.patches import opened
from controllers.elasticity.pod_cache import CALL_TIMEOUT, PODS
from controllers.elasticity.pods import Pod, decode
from controllers.elasticity.reporter import count_gated
from controllers.manager import Context
from controllers.workqueue import WorkQueue
from kube.client import Client
from kube.errors import ApiError, Backoff, Conflict, KubeError, NotFound
from kube.event_recorder import Regarding
from kube.informer import Informer
from kube.list_watch import Selection
from kube.types import key_of

UNBOUND = "spec.nodeName=,status.phase=Pending"
"""Each gated pod is one of these, which the API server finds without sending all others."""
WHY = "elasticity is switched off: the gate was opened, and no placement decided"
THREADS = 16
PERIOD = 5.0
PAUSES = Backoff(base=PERIOD, cap=600.0)
"""Between two attempts at a pod whose gate could not be opened."""

OPENED = Counter(
    "drawbridge_elasticity_gates_opened", "Pods whose gate was opened because the feature is off."
)

log = structlog.stdlib.get_logger(__name__)


def gated_pods(client: Client) -> list[Pod]:
    """As the API server has them now; one that cannot be read is left out."""
    found = client.list(PODS, type=msgspec.Raw, field_selector=UNBOUND).items
    return [pod for raw in found if (pod := _read(raw)) and pod.gated]


def open_gates(client: Client, pods: Iterable[Pod]) -> None:
    """Try all of them once."""
    with ThreadPoolExecutor(THREADS, thread_name_prefix="gates") as pool:
        list(pool.map(lambda pod: _try(client, pod), pods))


def keep_open(context: Context, _settings: object = None) -> None:
    """Open what is gated, until the context stops."""
    pods = context.informers.of(PODS, Pod, Selection(field_selector=UNBOUND), decode=decode)
    queue = WorkQueue("gate-opener", pauses=PAUSES)
    opener = GateOpener(context, pods)
    pods.on_change(lambda _, new: queue.add(key_of(new.metadata)) if new is not None and new.gated else None)
    try:
        if context.wait_synced(pods):
            with context.working(queue, opener.reconcile, THREADS):
                while not context.stop.wait(PERIOD):
                    count_gated([pod for pod in pods.list() if pod.gated], datetime.now(UTC))
    finally:
        context.informers.release(pods)


class GateOpener:
    """One refusal of each pod is reported as an Event."""

    def __init__(self, context: Context, pods: Informer[Pod]) -> None:
        self._context, self._pods = context, pods
        self._refusals: dict[str, tuple[str, int]] = {}
        """By key: the uid, and how many."""

    def reconcile(self, key: str) -> float | None:
        pod = self._pods.get(key)
        if pod is None or not pod.gated:
            self._refusals.pop(key, None)
            return None
        self._context.check()
        error = _try(self._context.client, pod)
        if isinstance(error, Conflict):
            return 0.0  # the informer is about to have the new version
        return PAUSES.delay(self._note(key, pod, error)) if error else None

    def _note(self, key: str, pod: Pod, error: KubeError) -> int:
        at = pod.metadata
        uid, count = self._refusals.get(key, (at.uid, 0))
        if isinstance(error, ApiError) and (not count or uid != at.uid):
            message = (
                f"elasticity is switched off, but the API server refused to open this pod's gate: {error}"
            )
            regarding = Regarding.pod(at.namespace, at.name, at.uid)
            self._context.recorder.event(regarding, "FailedPlacement", message, type="Warning")
        if isinstance(error, ApiError):
            self._refusals[key] = at.uid, count + 1
        return count + 1


def _try(client: Client, pod: Pod) -> KubeError | None:
    """None when the gate is open, or the pod is gone."""
    at = pod.metadata
    try:
        client.patch(PODS, at.name, opened(pod, WHY), at.namespace, type=msgspec.Raw, timeout=CALL_TIMEOUT)
    except NotFound:
        return None
    except KubeError as error:
        log.warning("gate not opened", namespace=at.namespace, name=at.name, error=str(error))
        return error
    OPENED.inc()
    log.info("gate opened", namespace=at.namespace, name=at.name, uid=at.uid)
    return None


def _read(raw: msgspec.Raw) -> Pod | None:
    try:
        return decode(raw)
    except msgspec.MsgspecError as error:
        log.warning("pod not readable", error=str(error))
        return None
