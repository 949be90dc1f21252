"""Checks that traffic of a closed node leaves with its address, before the node opens: one at a time for each node.

A result counts for the node that waits, the address that is bound to it, and the pod that this process has created
since: pods have random tokens in their names, and only pods with tokens that are awaited here count. All other pods, of
an earlier leader or of a check that is over, are deleted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, get_args

import structlog
from prometheus_client import Counter, Gauge

from cloud.types import Address
from controllers.anycast_ip.claim import MANAGED_BY, MANAGER
from controllers.anycast_ip.egress_probe import ANOTHER, NO_ANSWER
from controllers.anycast_ip.snapshot import Check, Checked
from controllers.anycast_ip.sources import Sources
from kube.client import Client
from kube.errors import AlreadyExists, Backoff, Conflict, NotFound
from kube.resources import PODS
from kube.types import Node, ObjectMeta, Value
from runtime import threading, uuid4
from settings.anycast_ip import EgressCheck

PAUSES = Backoff(base=10.0, cap=300.0)
"""From a check that failed to the next."""


LABEL, LABEL_VALUE = "drawbridge.io/egress-check", "anycast-ip"
SELECTED = f"{LABEL}={LABEL_VALUE}"
PREFIX = "egress-check-"
TRIES = 20
"""Seconds for which the program asks, once it runs."""
COMMAND = ("python", "-E", "-m", "controllers.anycast_ip.egress_probe")
"""It ignores variables that could have it run something else; the admission policy allows nothing but this."""
Result = Literal["passed", "another address", "no answer", "no result"]
Outcome = tuple[Result, str]
"""Of a check, and why it failed."""
FAILURES: Mapping[int, Outcome] = {
    ANOTHER: ("another address", "the service does not see that address"),
    NO_ANSWER: ("no answer", "the service gives no usable answer"),
}
"""By the exit code of the program."""
PERIOD, REST = 1.0, 300.0
"""Seconds from one look at the pods to the next, while a check runs, and while none does."""
DELETIONS = 50
"""Pods that are deleted in one look."""
CHECKS = Counter(
    "drawbridge_anycast_ip_egress_checks", "Checks of the egress of nodes, by result.", ["result"]
)
for _result in get_args(Result):
    CHECKS.labels(_result)
FAILING = Gauge(
    "drawbridge_anycast_ip_egress_failing",
    "Nodes that stay closed because the last check of their egress failed.",
)
log = structlog.stdlib.get_logger(__name__)


class ProbePod(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: dict[str, Any] = {}

    @property
    def token(self) -> str:
        return self.metadata.name.removeprefix(PREFIX)


def outcome_of(check: Check, pod: ProbePod | None, looked_at: float, timeout: float) -> Outcome | None:
    """What became of *check*, whose pod was read, or missed, in a list from *looked_at*; None while it runs."""
    status = pod.status if pod else {}
    containers: list[Any] = status.get("containerStatuses") or [{}]
    state = containers[0].get("state", {})
    phase = status.get("phase", "Pending")
    if phase == "Succeeded":
        return "passed", ""
    if phase == "Failed":
        ended = state.get("terminated", {})
        if (code := ended.get("exitCode")) in FAILURES:
            result, text = FAILURES[code]
            # A container that is killed, or whose node has no disk left, leaves no message.
            message = ended.get("message", "").strip()
            return result, f"{text}: {message}" if message else text
        why = status.get("reason") or (f"exit code {code}" if ended else "without a reason")
        return "no result", f"its pod failed: {why} {status.get('message', '')}".rstrip()
    if check.created is None or looked_at <= check.created:
        return None
    if pod is None:
        return "no result", "its pod was deleted before it ended"
    if looked_at - check.created < timeout:
        return None
    waits_for = f"{phase} {state.get('waiting', {}).get('reason', '')}".rstrip()
    return "no result", f"its pod has not ended in {timeout:g} s: {waits_for}"


def body(token: str, node: Node, address: Address, check: EgressCheck) -> dict[str, Any]:
    """Bound to *node* without the scheduler, on its network, with no permission, and gone with it at the latest."""
    name, uid = node.metadata.name, node.metadata.uid
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{PREFIX}{token}",
            "labels": {MANAGED_BY: MANAGER, LABEL: LABEL_VALUE},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}],
        },
        "spec": {
            "nodeName": name,
            "hostNetwork": True,
            # The node's own: its services may not work yet.
            "dnsPolicy": "Default",
            "restartPolicy": "Never",
            "activeDeadlineSeconds": max(1, int(check.timeout)),
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "egress-check",
                    "image": check.image,
                    "imagePullPolicy": check.image_pull_policy or "IfNotPresent",
                    "command": [*COMMAND],
                    "args": [check.url, address.ip, str(TRIES)],
                    "resources": {
                        "requests": {"cpu": "10m", "memory": "32Mi"},
                        "limits": {"memory": "128Mi"},
                    },
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                        "readOnlyRootFilesystem": True,
                    },
                }
            ],
        },
    }


class EgressChecks:
    """The checks of nodes by their uids, with pods in the release's *namespace*. Safe to share between threads.

    Nothing else is known of them: after a restart they begin again.
    """

    def __init__(self, sources: Sources, client: Client, namespace: str) -> None:
        self._settings, self._enqueue = sources.settings, sources.enqueue
        self._clock, self._client, self._namespace = sources.clocks.monotonic, client, namespace
        self._checks: dict[str, Check] = {}
        self._looked_at = -math.inf
        self._lock = threading.Lock()

    def of(self, uid: str) -> Check | None:
        return self._checks.get(uid)

    def end(self, uid: str) -> None:
        """The node waits no more, or its address is bound again: what was seen before does not count."""
        with self._lock:
            self._checks.pop(uid, None)

    def check(self, node: Node, address: Address) -> float:
        """Let a pod on *node* find out, if it is time for one; return the seconds until the next look."""
        uid, settings = node.metadata.uid, self._settings().egress_check
        of = Checked(address.id, address.ip, settings.url)
        with self._lock:
            check = self._checks.get(uid)
            if check is None or check.of != of:
                check = Check(of)
            if not check.token and not check.passed and self._clock() >= check.not_before:
                check = replace(check, token=f"{uid[:8]}-{uuid4().hex[:16]}")
            self._checks[uid] = check
        if not check.token:
            return max(0.0, check.not_before - self._clock())
        if check.created is None:
            # Once for each token, however often an answer is lost.
            with suppress(AlreadyExists):
                self._client.create(PODS, body(check.token, node, address, settings), self._namespace)
            self._change(uid, check, replace(check, created=self._clock()))
        return settings.timeout

    def look(self) -> None:
        """Read how checks have ended, reconcile their nodes, and delete the pods that are not awaited. KubeError.

        With the check off, there is no permission to read pods.
        """
        FAILING.set(sum(bool(check.trouble) for check in list(self._checks.values())))
        now, period = self._clock(), PERIOD if self._awaited() else REST
        if not self._settings().egress_check.enabled or now - self._looked_at < period:
            return
        self._looked_at = now
        listed = self._client.list(PODS, self._namespace, type=ProbePod, label_selector=SELECTED).items
        self._judge({pod.token: pod for pod in listed}, now)
        # What was listed was created before; so a pod that no check awaits by now is awaited by none.
        awaited = {check.token for check in self._awaited().values()}
        over = [pod for pod in listed if pod.token not in awaited and not pod.metadata.deletion_timestamp]
        for metadata in (pod.metadata for pod in over[:DELETIONS]):
            # At once: there is nothing to save, and its kubelet may not answer.
            guard = {"uid": metadata.uid}
            with suppress(NotFound, Conflict):
                self._client.delete(
                    PODS, metadata.name, self._namespace, preconditions=guard, grace_seconds=0
                )

    def _awaited(self) -> Mapping[str, Check]:
        """Those that a pod is awaited for."""
        with self._lock:
            return {uid: check for uid, check in self._checks.items() if check.token}

    def _judge(self, pods: Mapping[str, ProbePod], now: float) -> None:
        for uid, check in self._awaited().items():
            outcome = outcome_of(check, pods.get(check.token), now, self._settings().egress_check.timeout)
            if outcome is None:
                continue
            result, text = outcome
            failures = check.failures + 1
            pause = PAUSES.delay(failures)
            # Its trouble stays until another one passes.
            after = Check(check.of, trouble=text, failures=failures, not_before=self._clock() + pause)
            if self._change(uid, check, Check(check.of, passed=True) if result == "passed" else after):
                CHECKS.labels(result).inc()
                log.info("egress checked", uid=uid, address=check.of.address, result=result, error=text)
                self._enqueue(uid)

    def _change(self, uid: str, before: Check, after: Check) -> bool:
        """Whether *before* still was its check."""
        with self._lock:
            if self._checks.get(uid) != before:
                return False
            self._checks[uid] = after
            return True
