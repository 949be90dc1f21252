"""A pod's status from the states of its containers, by the rules of the real kubelet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dev.lab.kubelet.values import Place, Pod, timestamp

LONG_RUN = 600.0
FIRST_DELAY, LAST_DELAY = 1.0, 60.0


@dataclass(frozen=True)
class Ended:
    exit_code: int
    reason: str
    message: str
    started_at: float
    finished_at: float


@dataclass(frozen=True)
class State:
    """A container now: ended if ``ended``, else running if ``running_since``, else waiting. In Unix times."""

    name: str
    image: str = ""
    waiting: tuple[str, str] = ("ContainerCreating", "")
    running_since: float | None = None
    ended: Ended | None = None
    last: Ended | None = None
    restarts: int = 0
    ready: bool = False
    started: bool = False

    @property
    def never_ran(self) -> bool:
        return self.running_since is None and self.ended is None and self.last is None


def may_restart(policy: str, exit_code: int) -> bool:
    """Whether a container that ended is started again."""
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def crashes_in_a_row(before: int, ran_for: float) -> int:
    """How many times it has ended by now without having run for long."""
    return 1 if ran_for >= LONG_RUN else before + 1


def restart_delay(crashes: int) -> float:
    """Seconds to wait after so many ends in a row."""
    return min(LAST_DELAY, FIRST_DELAY * 2.0 ** (min(crashes, 10) - 1))


def phase(pod: Pod, containers: Sequence[State]) -> str:
    policy = pod.spec.get("restartPolicy", "Always")
    ends = [each.ended for each in containers if each.ended]
    if len(ends) == len(containers) and (policy != "Always" or pod.metadata.deletion_timestamp):
        return _final(policy, ends, deleted=pod.metadata.deletion_timestamp is not None)
    if any(each.never_ran for each in containers):
        return "Pending"
    return "Running"


def _final(policy: str, ends: Iterable[Ended], *, deleted: bool) -> str:
    if all(end.exit_code == 0 for end in ends):
        return "Succeeded"
    return "Failed" if policy == "Never" or deleted else "Running"


def status(
    pod: Pod,
    place: Place,
    containers: Sequence[State],
    *,
    before: Sequence[Mapping[str, Any]],
    since: float,
    now: float,
) -> dict[str, Any]:
    """The whole of what the kubelet says about the pod, as a strategic merge patch of its status.

    ``before`` are the conditions that it last wrote: the time of a transition is kept while the value stays.
    """
    reached = phase(pod, containers)
    found = _findings(pod, reached, containers)
    return {
        "phase": reached,
        "startTime": timestamp(since),
        "podIP": place.pod_ip,
        "podIPs": [{"ip": place.pod_ip}],
        "hostIP": place.host_ip,
        "hostIPs": [{"ip": place.host_ip}],
        "conditions": [_condition(kind, before, now, *why) for kind, why in found.items()],
        "containerStatuses": [container_status(each) for each in containers],
    }


def is_altered(pod: Pod, written: Mapping[str, Any]) -> bool:
    """Whether a live condition differs from the one *written*: the pods of a lost node are marked unready."""
    live = {each["type"]: each["status"] for each in pod.status.get("conditions", ())}
    return any(live.get(each["type"]) != each["status"] for each in written.get("conditions", ()))


def _findings(pod: Pod, reached: str, containers: Sequence[State]) -> dict[str, tuple[str, ...]]:
    """For each condition, why it is not met; nothing when it is."""
    unready = _unready(reached, [each.name for each in containers if not each.ready])
    return {
        "PodReadyToStartContainers": (),
        "Initialized": (),
        "ContainersReady": unready,
        "Ready": unready or _when(shut_gates(pod), "ReadinessGatesNotReady", "readiness gates not yet true"),
    }


def _unready(reached: str, names: Sequence[str]) -> tuple[str, ...]:
    if names and reached in ("Succeeded", "Failed"):
        return ("PodCompleted" if reached == "Succeeded" else "PodFailed", "")
    return _when(names, "ContainersNotReady", "containers with unready status")


def shut_gates(pod: Pod) -> list[str]:
    """The pod's readiness gates that are not open yet."""
    conditions = pod.status.get("conditions", ())
    true = {each["type"] for each in conditions if each["status"] == "True"}
    wanted = [gate["conditionType"] for gate in pod.spec.get("readinessGates", ())]
    return [gate for gate in wanted if gate not in true]


def _when(found: Sequence[str], reason: str, message: str) -> tuple[str, ...]:
    return (reason, f"{message}: [{' '.join(found)}]") if found else ()


def _condition(
    kind: str, before: Sequence[Mapping[str, Any]], now: float, reason: str = "", message: str = ""
) -> dict[str, Any]:
    value = "False" if reason else "True"
    last = next((each for each in before if each["type"] == kind), {})
    kept = last.get("lastTransitionTime") if last.get("status") == value else None
    return {
        "type": kind,
        "status": value,
        "reason": reason or None,
        "message": message or None,
        "lastTransitionTime": kept or timestamp(now),
    }


def container_status(state: State) -> dict[str, Any]:
    return {
        "name": state.name,
        "image": state.image,
        "imageID": state.image,
        "ready": state.ready,
        "started": state.started,
        "restartCount": state.restarts,
        "state": _current(state),
        "lastState": {"terminated": _terminated(state.last)} if state.last else {},
    }


def _current(state: State) -> dict[str, Any]:
    if state.ended:
        return {"terminated": _terminated(state.ended)}
    if state.running_since is not None:
        return {"running": {"startedAt": timestamp(state.running_since)}}
    return {"waiting": dict(zip(("reason", "message"), filter(None, state.waiting), strict=False))}


def _terminated(ended: Ended) -> dict[str, Any]:
    return {
        "exitCode": ended.exit_code,
        "reason": ended.reason,
        "message": ended.message,
        "startedAt": timestamp(ended.started_at),
        "finishedAt": timestamp(ended.finished_at),
    }
