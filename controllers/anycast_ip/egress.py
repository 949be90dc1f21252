"""Checks that traffic of a closed node leaves with its address, before the node opens: one at a time for each node.

A result counts for the node that waits, the address that is bound to it, and the pod that this process has created
since: pods have random tokens in their names, and only pods with tokens that are awaited here count. All other pods, of
an earlier leader or of a check that is over, are deleted.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import structlog
from prometheus_client import Counter, Gauge

from cloud.types import Address
from controllers.anycast_ip.claim import MANAGED_BY, MANAGER
from controllers.anycast_ip.egress_probe import ANOTHER, NO_ANSWER
from controllers.anycast_ip.snapshot import Checked, Egress
from controllers.anycast_ip.sources import Sources
from kube.client import Client
from kube.errors import AlreadyExists, Backoff, Conflict, NotFound
from kube.resources import PODS
from kube.types import Node, ObjectMeta, Value, complete
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
PERIOD, REST = 1.0, 300.0
"""Seconds from one look at the pods to the next, while a check runs, and while none does."""
DELETIONS = 50
"""Pods that are deleted in one look."""
CHECKS = Counter(
    "drawbridge_anycast_ip_egress_checks", "Checks of the egress of nodes, by result.", ["result"]
)
for _result in ("passed", "another address", "no answer", "no result"):
    CHECKS.labels(_result)
FAILING = Gauge(
    "drawbridge_anycast_ip_egress_failing",
    "Nodes that stay closed because the last check of their egress failed.",
)
log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True)
class Check:
    """Of one address by one service, while its node waits. *token* is that of the pod that is awaited, if any.

    The pod was *created* at that time, None before it certainly exists. After *failures* in a row, the next one begins
    *not_before*.
    """

    of: Checked
    token: str = ""
    created: float | None = None
    passed: bool = False
    trouble: str = ""
    failures: int = 0
    not_before: float = -math.inf


def judged(check: Check, pod: ProbePod | None, looked_at: float, timeout: float) -> Outcome | None:
    """What became of *check*, whose pod was read, or missed, in a list from *looked_at*; None while it runs."""
    if pod and (outcome := outcome_of(pod)):
        return outcome
    if check.created is None or looked_at <= check.created:
        return None
    if pod is None:
        return Outcome("no result", "its pod was deleted before it ended")
    if looked_at - check.created >= timeout:
        return Outcome("no result", f"its pod has not ended in {timeout:g} s: {waits_for(pod)}")
    return None


def decided(check: Check, outcome: Outcome, now: float) -> Check:
    """*check* after its pod; its trouble stays until another one passes."""
    if outcome.result == "passed":
        return replace(check, token="", created=None, passed=True, trouble="")
    failures = check.failures + 1
    again = now + PAUSES.delay(failures)
    return Check(check.of, trouble=outcome.text, failures=failures, not_before=again)


class Terminated(Value, frozen=True):
    exit_code: int = 0
    message: str = ""


class Waiting(Value, frozen=True):
    reason: str = ""
    message: str = ""


class ContainerState(Value, frozen=True):
    terminated: Terminated | None = None
    waiting: Waiting | None = None


class ContainerStatus(Value, frozen=True):
    state: ContainerState = ContainerState()


class ProbeStatus(Value, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()


class ProbePod(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: ProbeStatus = ProbeStatus()

    @property
    def token(self) -> str:
        return self.metadata.name.removeprefix(PREFIX)

    @property
    def state(self) -> ContainerState:
        return next((each.state for each in self.status.container_statuses), ContainerState())


complete(Terminated, Waiting, ContainerState, ContainerStatus, ProbeStatus, ProbePod)


@dataclass(frozen=True)
class Outcome:
    result: Result
    text: str = ""


def outcome_of(pod: ProbePod) -> Outcome | None:
    """What the end of *pod* says; None before its end."""
    status, ended = pod.status, pod.state.terminated
    if status.phase == "Succeeded":
        return Outcome("passed")
    if status.phase != "Failed":
        return None
    if ended and ended.exit_code == ANOTHER:
        return Outcome("another address", _with("the service does not see that address", ended.message))
    if ended and ended.exit_code == NO_ANSWER:
        return Outcome("no answer", _with("the service gives no usable answer", ended.message))
    why = status.reason or (f"exit code {ended.exit_code}" if ended else "without a reason")
    return Outcome("no result", f"its pod failed: {why} {status.message}".rstrip())


def _with(text: str, message: str) -> str:
    """A container that is killed, or whose node has no disk left, leaves no *message*."""
    return f"{text}: {message.strip()}" if message.strip() else text


def waits_for(pod: ProbePod) -> str:
    """Why *pod* has not ended, in words that stay the same."""
    waiting = pod.state.waiting
    return f"{pod.status.phase or 'Pending'} {waiting.reason if waiting else ''}".rstrip()


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
            "containers": [_container(address, check)],
        },
    }


def _container(address: Address, check: EgressCheck) -> dict[str, Any]:
    return {
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


class ProbePods:
    """Pods of checks in the release's namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace

    def create(self, token: str, node: Node, address: Address, check: EgressCheck) -> None:
        """Once for each *token*, however often it is called."""
        with suppress(AlreadyExists):
            self._client.create(PODS, body(token, node, address, check), self._namespace)

    def list(self) -> Collection[ProbePod]:
        return self._client.list(PODS, self._namespace, type=ProbePod, label_selector=SELECTED).items

    def delete(self, pod: ProbePod) -> None:
        """At once: there is nothing to save, and its kubelet may not answer."""
        preconditions = {"uid": pod.metadata.uid}
        with suppress(NotFound, Conflict):
            self._client.delete(
                PODS, pod.metadata.name, self._namespace, preconditions=preconditions, grace_seconds=0
            )


class EgressChecks:
    """The checks of nodes by their uids. Safe to share between threads.

    Nothing else is known of them: after a restart they begin again.
    """

    def __init__(self, sources: Sources, pods: ProbePods) -> None:
        self._settings, self._enqueue = sources.settings, sources.enqueue
        self._clock, self._pods = sources.clocks.monotonic, pods
        self._checks: dict[str, Check] = {}
        self._looked_at = -math.inf
        self._lock = threading.Lock()

    def view(self, uid: str) -> Egress:
        check = self._checks.get(uid)
        return Egress(check.of if check.passed else None, check.trouble) if check else Egress()

    def end(self, uid: str) -> None:
        """The node waits no more, or its address is bound again: what was seen before does not count."""
        with self._lock:
            self._checks.pop(uid, None)

    def check(self, node: Node, address: Address) -> float:
        """Let a pod on *node* find out, if it is time for one; return the seconds until the next look."""
        uid, settings = node.metadata.uid, self._settings().egress_check
        check = self._begun(uid, Checked(address.id, address.ip, settings.url))
        if not check.token:
            return max(0.0, check.not_before - self._clock())
        if check.created is None:
            self._pods.create(check.token, node, address, settings)
            self._change(uid, check, replace(check, created=self._clock()))
        return settings.timeout

    def look(self) -> None:
        """Read how checks have ended, reconcile their nodes, and delete the pods that are not awaited. KubeError.

        With the check off, there is no permission to read pods.
        """
        FAILING.set(sum(bool(check.trouble) for check in list(self._checks.values())))
        now, period = self._clock(), PERIOD if self._awaited() else REST
        if self._settings().egress_check.url and now - self._looked_at >= period:
            self._looked_at = now
            pods = {pod.token: pod for pod in self._pods.list()}
            self._judge(pods, now)
            self._sweep(list(pods.values()))

    def _begun(self, uid: str, of: Checked) -> Check:
        """The check of what is *of*, with a token if it is time for one; it stays until its pod certainly exists."""
        with self._lock:
            check = self._checks.get(uid)
            if check is None or check.of != of:
                check = Check(of)
            if not check.token and not check.passed and self._clock() >= check.not_before:
                check = replace(check, token=f"{uid[:8]}-{uuid4().hex[:16]}")
            self._checks[uid] = check
            return check

    def _awaited(self) -> Mapping[str, Check]:
        """Those that a pod is awaited for."""
        with self._lock:
            return {uid: check for uid, check in self._checks.items() if check.token}

    def _judge(self, pods: Mapping[str, ProbePod], now: float) -> None:
        for uid, check in self._awaited().items():
            outcome = judged(check, pods.get(check.token), now, self._settings().egress_check.timeout)
            if outcome and self._change(uid, check, decided(check, outcome, self._clock())):
                CHECKS.labels(outcome.result).inc()
                result, error = outcome.result, outcome.text
                log.info("egress checked", uid=uid, address=check.of.address, result=result, error=error)
                self._enqueue(uid)

    def _sweep(self, pods: Collection[ProbePod]) -> None:
        """What was listed was created before; so a pod that no check awaits by now is awaited by none."""
        awaited = {check.token for check in self._awaited().values()}
        over = [pod for pod in pods if pod.token not in awaited and not pod.metadata.deletion_timestamp]
        for pod in over[:DELETIONS]:
            self._pods.delete(pod)

    def _change(self, uid: str, before: Check, after: Check) -> bool:
        """Whether *before* still was its check."""
        with self._lock:
            if self._checks.get(uid) != before:
                return False
            self._checks[uid] = after
            return True
