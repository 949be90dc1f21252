"""Hand gated pods to the scheduler, without a placement: while the feature is off, and before the release goes.

Gates outlive the feature: a replica of the webhook may gate for a moment after it was switched off, and a request
that is under way comes to its end. So the leader keeps watching.

``python -m controllers.elasticity.open_gates`` runs as a Job of Helm's, before anything else changes: while the
controllers are there they place what is gated, and what they do not place is opened. It ends when no pod has been
gated for *settle* seconds, in which each API server receives the change and requests in progress end.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import structlog
from prometheus_client import Counter

from api.elasticity import GATE
from controllers.controller import Controller, Watch
from controllers.elasticity.patches import opened
from controllers.elasticity.pods import Observed, Pod, decode
from controllers.elasticity.reporter import count_gated
from controllers.manager import Context
from controllers.workqueue import PENDING, WorkQueue
from kube.client import Client
from kube.errors import ApiError, Backoff, Conflict, KubeError, NotFound
from kube.event_recorder import Regarding
from kube.resources import MUTATING_WEBHOOKS, PODS, Selection
from kube.types import key_of
from runtime import futures, time
from settings.values import seconds
from telemetry import logs

UNBOUND = "spec.nodeName=,status.phase=Pending"
"""Each gated pod is one of these, which the API server finds without sending all others."""
WHY = "elasticity is switched off: the gate was opened without a placement"
THREADS = 16
PERIOD = 5.0
PAUSES = Backoff(base=PERIOD, cap=600.0)
"""Between two attempts at a pod whose gate could not be opened."""

OPENED = Counter(
    "drawbridge_elasticity_gates_opened", "Pods whose gate was opened because the feature is off."
)

WEBHOOK = "elasticity.drawbridge.io"
LOOK = 1.0
CALL_TIMEOUT = 4.0
NAMED = 10
"""As many pods are named of those that are left."""

log = structlog.stdlib.get_logger(__name__)


def gated_pods(client: Client) -> list[Pod]:
    """As the API server has them now; one that cannot be read is left out."""
    found = []
    for raw in client.list(PODS, type=msgspec.Raw, field_selector=UNBOUND).items:
        try:
            found.append(decode(raw))
        except msgspec.MsgspecError as error:
            log.warning("pod not readable", error=str(error))
    return [pod for pod in found if pod.gated]


def keep_open(context: Context) -> None:
    """Open what is gated, until the context stops."""
    pods = context.informers.of(PODS, Pod, Selection(field_selector=UNBOUND), decode=decode)
    queue, seen = WorkQueue("gate-opener", pauses=PAUSES), Observed(time.monotonic)

    def gated(*versions: Pod | None) -> Iterable[str]:
        return {key_of(pod.metadata) for pod in versions if pod is not None and pod.gated}

    def reconcile(key: str) -> float | None:
        """One refusal of each pod is reported as an Event."""
        pod = pods.get(key)
        if pod is None or not pod.gated or not (error := _try(context.client, pod)):
            return None
        if not isinstance(error, ApiError):
            return PERIOD
        if isinstance(error, Conflict):
            return 0.0  # the informer is about to have the new version
        if not queue.failures(key):
            why = f"elasticity is switched off, but the API server refused to open this pod's gate: {error}"
            context.recorder.event(Regarding.of(pod, PODS, "Pod"), "FailedPlacement", why, type="Warning")
        queue.retry(key, error)
        return PENDING

    def count(_: str) -> float:
        count_gated(seen.only({pod.metadata.uid for pod in pods.list() if pod.gated}))
        return PERIOD

    try:
        if context.wait_synced(pods):
            context.run(
                Controller(queue, reconcile, Watch(pods, gated), workers=THREADS),
                Controller("open-gates", count, first=["gated"]),
            )
    finally:
        context.informers.release(pods)


def _try(client: Client, pod: Pod) -> KubeError | None:
    """None when the gate is open, or the pod is gone."""
    at = pod.metadata
    try:
        client.patch(PODS, at.name, opened(pod, WHY), at.namespace, type=msgspec.Raw, timeout=CALL_TIMEOUT)
    except NotFound:
        return None
    except KubeError as error:
        log.warning("gate not opened", **at.about, error=str(error))
        return error
    OPENED.inc()
    log.info("gate opened", **at.about)
    return None


@dataclass(frozen=True)
class Patience:
    """In seconds: how long nothing must be gated, how long the leader has for a pod, and how long all may take."""

    settle: float = 10.0
    leader: float = 5.0
    all: float = 120.0


def open_all(
    client: Client,
    configuration: str,
    patience: Patience,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Nothing when no pod is gated any more, and none will be; else what is left. KubeError is tried again."""
    began, problem = clock(), ""
    quiet_since: float | None = None
    seen = Observed(clock)
    while (now := clock()) - began < patience.all:
        try:
            if quiet_since is None:
                may_gate = remove_webhook(client, configuration)
                quiet_since = now if may_gate else now - patience.settle
            gated = {pod.metadata.uid: pod for pod in gated_pods(client)}
            ages = seen.only(gated)
            if not gated and now - quiet_since >= patience.settle:
                return ""
            quiet_since, problem = (now if gated else quiet_since), _left(gated.values())
            # the leader may place them until then
            due = [pod for uid, pod in gated.items() if ages[uid] >= patience.leader]
            with futures.ThreadPoolExecutor(THREADS, thread_name_prefix="gates") as pool:
                list(pool.map(partial(_try, client), due))
        except KubeError as error:
            problem = str(error)
            log.warning("gates not opened yet", error=problem)
        sleep(LOOK)
    return problem or "pods are still being gated"


def _left(gated: Iterable[Pod]) -> str:
    names = [key_of(pod.metadata) for pod in gated]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"pods with gate {GATE}: {', '.join(names[:NAMED])}{more}" if names else ""


def remove_webhook(client: Client, configuration: str) -> bool:
    """Whether requests that it gates may be in progress; the others stay. Conflict or Invalid when it has changed.

    Before Helm 3 uninstalls a release, its configurations are deleted by hand, perhaps a moment ago.
    """
    found = client.find(MUTATING_WEBHOOKS, configuration, type=dict[str, Any])
    if found is None:
        return True
    names = [each["name"] for each in found.get("webhooks") or ()]
    if WEBHOOK not in names:
        return False
    path = f"/webhooks/{names.index(WEBHOOK)}"
    operations = [{"op": "test", "path": f"{path}/name", "value": WEBHOOK}, {"op": "remove", "path": path}]
    client.patch(MUTATING_WEBHOOKS, configuration, operations)
    log.info("webhook removed", configuration=configuration, webhook=WEBHOOK)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    logs.configure("info")
    patience = Patience(seconds(given.settle), all=seconds(given.within))
    if not (left := open_all(Client.from_environment(), given.configuration, patience)):
        log.info("no pod is gated")
        return 0
    print(
        f"gates were not all opened within {timedelta(seconds=patience.all)}: {left}\n"
        "docs/how-to/break-glass.md has the command that opens them by hand; --no-hooks lets Helm go on without this.",
        file=sys.stderr,
    )
    return 1


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m controllers.elasticity.open_gates", description=__doc__)
    parser.add_argument("configuration", help="name of the MutatingWebhookConfiguration")
    parser.add_argument("--settle", default="10s", help="how long no pod must have been gated")
    parser.add_argument("--within", default="120s", help="how long all may take")
    return parser


if __name__ == "__main__":
    sys.exit(main())
