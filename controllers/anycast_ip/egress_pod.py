"""The pod that checks the egress of a node, and what its end says: functions of values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from cloud.types import Address
from controllers.anycast_ip.claim import MANAGED_BY, MANAGER
from controllers.anycast_ip.egress_probe import ANOTHER, NO_ANSWER
from kube.types import Node, ObjectMeta, Value, complete
from settings.anycast_ip import EgressCheck

LABEL, LABEL_VALUE = "drawbridge.io/egress-check", "anycast-ip"
SELECTED = f"{LABEL}={LABEL_VALUE}"
PREFIX = "egress-check-"
TRIES = 20
"""Seconds for which the program asks, once it runs."""
COMMAND = ("python", "-E", "-m", "controllers.anycast_ip.egress_probe")
"""It ignores variables that could have it run something else; the admission policy allows nothing but this."""

Result = Literal["passed", "another address", "no answer", "no result"]


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
