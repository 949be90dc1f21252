"""While the feature is off, a pod that is gated all the same is given to the scheduler, without a placement.

Gates outlive the feature: a replica of the webhook may gate for a moment after it was switched off, and a request
that is under way comes to its end. So the opener keeps watching.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
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
from kube.backoff import Backoff
from kube.client import Client
from kube.errors import ApiError, Conflict, KubeError, NotFound
from kube.event_correlator import Regarding
from kube.event_recorder import EventRecorder
from kube.informer import Informer
from kube.list_watch import Selection

UNBOUND = "spec.nodeName=,status.phase=Pending"
"""Each gated pod is one of these, which the API server finds without sending all others."""
WHY = "elasticity is switched off: the gate was opened, and no placement decided"
THREADS = 16
RETRY = 5.0
PAUSES = Backoff(base=RETRY, cap=600.0)
"""Between two attempts at a pod of which the API server has refused the first."""
NOTICE = 0.5
"""Seconds within which a stop, or a loss, is noticed."""

OPENED = Counter(
    "drawbridge_elasticity_gates_opened", "Pods whose gate was opened because the feature is off."
)

log = structlog.stdlib.get_logger(__name__)

Refused = Callable[[Pod, ApiError], None]


def gated_pods(client: Client) -> list[Pod]:
    """As the API server has them now; one that cannot be read is left out."""
    found = client.list(PODS, type=msgspec.Raw, field_selector=UNBOUND).items
    return [pod for raw in found if (pod := _read(raw)) and pod.gated]


def open_gates(
    client: Client, pods: Iterable[Pod], *, check: Callable[[], None], refused: Refused = lambda *_: None
) -> bool:
    """Open all of them; whether nothing is left to be tried again. *check* runs before each write."""

    def one(pod: Pod) -> bool:
        check()
        return _open(client, pod, refused)

    with ThreadPoolExecutor(THREADS, thread_name_prefix="gates") as pool:
        return all(list(pool.map(one, pods)))


def keep_open(context: Context, _settings: object = None) -> None:
    """Open what is gated, until the context stops; LeadershipLost."""
    pods = context.informers.of(PODS, Pod, Selection(field_selector=UNBOUND), decode=decode)
    wake = threading.Event()
    pods.on_change(lambda _, new: wake.set() if new is not None and new.gated else None)
    try:
        if context.wait_synced(pods):
            _run(context, pods, _Refusals(context.recorder), wake)
    finally:
        context.informers.release(pods)


def _run(context: Context, pods: Informer[Pod], refusals: _Refusals, wake: threading.Event) -> None:
    stop = context.stop
    while not stop.is_set():
        wake.clear()
        gated = [pod for pod in pods.list() if pod.gated]
        count_gated(gated, datetime.now(UTC))
        refusals.keep_only({pod.metadata.uid for pod in gated})
        open_gates(context.client, refusals.due(gated), check=context.check, refused=refusals.note)
        stop.wait(NOTICE)  # what was opened is seen before the next look
        waited = NOTICE
        while not stop.is_set() and not wake.is_set() and (waited < RETRY or not gated):
            context.check()
            wake.wait(NOTICE)
            waited += NOTICE


class _Refusals:
    """An Event for each pod whose gate the API server does not let us open, once, and ever longer pauses."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._refused: dict[str, tuple[int, float]] = {}

    def due(self, pods: Iterable[Pod]) -> list[Pod]:
        now = time.monotonic()
        return [pod for pod in pods if self._refused.get(pod.metadata.uid, (0, now))[1] <= now]

    def note(self, pod: Pod, error: ApiError) -> None:
        at = pod.metadata
        count = self._refused.get(at.uid, (0, 0.0))[0] + 1
        self._refused[at.uid] = count, time.monotonic() + PAUSES.delay(count)
        if count == 1:
            message = (
                f"elasticity is switched off, but the API server refused to open this pod's gate: {error}"
            )
            regarding = Regarding.pod(at.namespace, at.name, at.uid)
            self._recorder.event(regarding, "FailedPlacement", message, type="Warning")

    def keep_only(self, uids: set[str]) -> None:
        self._refused = {uid: refused for uid, refused in self._refused.items() if uid in uids}


def _open(client: Client, pod: Pod, refused: Refused) -> bool:
    at = pod.metadata
    try:
        client.patch(PODS, at.name, opened(pod, WHY), at.namespace, type=msgspec.Raw, timeout=CALL_TIMEOUT)
    except NotFound:
        return True
    except Conflict:
        return False
    except KubeError as error:
        log.warning("gate not opened", namespace=at.namespace, name=at.name, error=str(error))
        if isinstance(error, ApiError):
            refused(pod, error)
        return False
    OPENED.inc()
    log.info("gate opened", namespace=at.namespace, name=at.name, uid=at.uid)
    return True


def _read(raw: msgspec.Raw) -> Pod | None:
    try:
        return decode(raw)
    except msgspec.MsgspecError as error:
        log.warning("pod not readable", error=str(error))
        return None
