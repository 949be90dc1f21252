"""Take the webhook of elasticity away and open all gates, before the feature or the release goes.

``python -m controllers.elasticity.open_gates`` runs as a Job of Helm's, before anything else changes: while the
controllers are there they place what is gated, and what they do not place is opened. It ends when no pod has been
gated for *settle* seconds, in which each API server receives the change and requests in progress end.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec
import structlog

from controllers.elasticity.gate_opener import gated_pods, open_gates
from controllers.elasticity.pods import Pod
from kube.client import Client, Resource
from kube.errors import KubeError, NotFound
from settings.values import seconds
from telemetry import logs
from webhook.elasticity import GATE

WEBHOOK = "elasticity.drawbridge.io"
CONFIGURATIONS = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", namespaced=False
)
LOOK = 1.0
NAMED = 10
"""As many pods are named of those that are left."""

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True)
class Patience:
    """In seconds: how long nothing must be gated, how long the leader has for a pod, and how long all may take."""

    settle: float = 10.0
    leader: float = 5.0
    all: float = 120.0


@dataclass
class Look:
    """What has been seen so far, on a monotonic clock."""

    quiet_since: float
    first_seen: dict[str, float] = field(default_factory=dict)

    def take(self, gated: Sequence[Pod], now: float, patience: Patience) -> list[Pod]:
        """Those whose time for being placed by the leader is over."""
        if gated:
            self.quiet_since = now
        uids = [pod.metadata.uid for pod in gated]
        self.first_seen = {uid: self.first_seen.get(uid, now) for uid in uids}
        return [pod for pod in gated if now - self.first_seen[pod.metadata.uid] >= patience.leader]

    def is_settled(self, now: float, patience: Patience) -> bool:
        return not self.first_seen and now - self.quiet_since >= patience.settle


def open_all(
    client: Client,
    configuration: str,
    patience: Patience,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Nothing when no pod is gated any more, and none will be; else what is left. KubeError is tried again."""
    began, problem, look = clock(), "", None
    while clock() - began < patience.all:
        try:
            if look is None:
                was_there = remove_webhook(client, configuration)
                look = Look(clock() if was_there else clock() - patience.settle)
            gated = gated_pods(client)
            due = look.take(gated, clock(), patience)
            if look.is_settled(clock(), patience):
                return ""
            problem = _left(gated)
            open_gates(client, due)
        except KubeError as error:
            problem = str(error)
            log.warning("gates not opened yet", error=problem)
        sleep(LOOK)
    return problem or "pods are still being gated"


def remove_webhook(client: Client, configuration: str) -> bool:
    """Whether it was there; the other webhooks of the configuration stay. Conflict or Invalid when it has changed."""
    try:
        found = client.get(CONFIGURATIONS, configuration, type=_Configuration)
    except NotFound:
        return False
    names = [each.name for each in found.webhooks or ()]
    if WEBHOOK not in names:
        return False
    path = f"/webhooks/{names.index(WEBHOOK)}"
    operations = [{"op": "test", "path": f"{path}/name", "value": WEBHOOK}, {"op": "remove", "path": path}]
    client.patch(CONFIGURATIONS, configuration, operations)
    log.info("webhook removed", configuration=configuration, webhook=WEBHOOK)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    logs.configure("info")
    patience = Patience(seconds(given.settle), seconds(given.leader), seconds(given.within))
    if not (left := open_all(Client.from_environment(), given.configuration, patience)):
        log.info("no pod is gated")
        return 0
    print(
        f"gates were not all opened within {timedelta(seconds=patience.all)}: {left}\n"
        "docs/how-to/break-glass.md has the command that opens them by hand; --no-hooks lets Helm go on without this.",
        file=sys.stderr,
    )
    return 1


class _Webhook(msgspec.Struct):
    name: str = ""


class _Configuration(msgspec.Struct):
    webhooks: list[_Webhook] | None = None


def _left(gated: Sequence[Pod]) -> str:
    names = [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in gated]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"pods with gate {GATE}: {', '.join(names[:NAMED])}{more}" if names else ""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m controllers.elasticity.open_gates", description=__doc__)
    parser.add_argument("configuration", help="name of the MutatingWebhookConfiguration")
    parser.add_argument("--settle", default="10s", help="how long no pod must have been gated")
    parser.add_argument("--leader", default="5s", help="how long the leader has to place a pod")
    parser.add_argument("--within", default="120s", help="how long all may take")
    return parser


if __name__ == "__main__":
    sys.exit(main())
