"""What one decision rests on: the pods of a key, what they ask for, and the cluster around them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from api.elasticity import (
    LOCAL_REPLICAS,
    MODE,
    PIN,
    PREFER,
    SUPER,
    SWITCH,
    Share,
    is_sent,
    local_replicas,
)
from controllers.elasticity.nodes import Nodes
from controllers.elasticity.patches import Action, Kind
from controllers.elasticity.pods import Pod, born, oldest_first
from kube.types import ObjectMeta, Value
from settings import ElasticitySettings

INDEX = "apps.kubernetes.io/pod-index"
PATIENCE = 10.0
"""Seconds for which a new pod waits until its workload is known."""
NAMES = {True: "true", False: "false", None: "unset"}


class Location(StrEnum):
    """Where a pod counts."""

    GATED = "gated"
    LOCAL = "local"
    SUPER = "super"
    OVER = "over"


DECIDED = {Kind.LOCAL: Location.LOCAL, Kind.SUPER: Location.SUPER}
"""Where a gated pod counts after a decision that is not seen yet."""


def location_of(pod: Pod, super_nodes: frozenset[str]) -> Location:
    """A pod without a placement counts as local before it is bound, too.

    One that was placed on super nodes can be nowhere else, also when its node is not known yet, or is gone.
    """
    if not pod.active:
        return Location.OVER
    if pod.node_name and pod.placed != SUPER:
        return Location.SUPER if pod.node_name in super_nodes else Location.LOCAL
    if pod.gated:
        return Location.GATED
    return Location.SUPER if pod.placed == SUPER else Location.LOCAL


def is_unstarted(pod: Pod, super_nodes: Container[str]) -> bool:
    return pod.active and pod.unstarted and pod.node_name in super_nodes


def ordinal_of(pod: Pod) -> int | None:
    """By its label, which has been there since Kubernetes 1.28, or by its name; None for a pod of another owner.

    StatefulSets of other groups may number their pods in another way.
    """
    owner = pod.metadata.controller
    if owner is None or owner.kind != "StatefulSet" or not owner.api_version.startswith("apps/"):
        return None
    name = pod.metadata.labels.get(INDEX) or pod.metadata.name.rpartition("-")[2]
    return int(name) if re.fullmatch(r"[0-9]{1,9}", name) else None


class Workload(Value, frozen=True):
    """How many pods are *wanted* of it; the pods' own controller has *made* at most so many, less in a rolling update.

    *first* is the least ordinal of a StatefulSet.
    """

    metadata: ObjectMeta = ObjectMeta()
    wanted: int = 1
    made: int = 1
    first: int = 0


@dataclass(frozen=True)
class ClusterState:
    """*switch* is the global one. *workload* answers None while a pod's is not known."""

    nodes: Nodes
    settings: ElasticitySettings
    switch: bool | None
    workload: Callable[[Pod], Workload | None]

    @property
    def everywhere(self) -> bool | None:
        """What the global switch says; None while it says nothing, and so allows super nodes."""
        return False if self.switch is None and not self.settings.switch.default else self.switch


@dataclass(frozen=True)
class Policy:
    """What a pod and the switches ask for; what is wrong counts as not set, and is one of *problems*.

    These are (reason of the Event, message). *number* is of *replicas*, as messages have it. *ordinal* is that of a
    StatefulSet's pod, counted from its first. *unknown* says what of its workload is not known yet.
    """

    allowed: bool
    inputs: str
    replicas: int | None
    pin: bool = False
    problems: Sequence[tuple[str, str]] = ()
    number: str = "unset"
    ordinal: int | None = None
    unknown: str | None = None


@dataclass(frozen=True)
class Snapshot:
    """*pods* are those of one key that are not over; *assumed* is by uid.

    *avoided* are super nodes that did not start pods of the key, each with the seconds for which it has been avoided;
    "" stands for all, which did not take them. *ages* are the seconds, by uid, for which this leader has known pods
    that have no node; its clock may be minutes off the one that stamps their creation.
    """

    pods: Sequence[Pod]
    assumed: Mapping[str, Action]
    cluster: ClusterState
    now: datetime
    avoided: Mapping[str, float] = field(default_factory=dict)
    ages: Mapping[str, float] = field(default_factory=dict)

    @property
    def gated(self) -> list[Pod]:
        return self._idle(pod for pod in self.pods if pod.gated and not pod.held)

    @property
    def stuck(self) -> list[Pod]:
        """Those that the scheduler finds no room for."""
        return self._idle(pod for pod in self.pods if pod.stuck)

    @property
    def unstarted(self) -> list[Pod]:
        """Those that we have sent to a super node, or allowed there, and that it has not started yet."""
        names = self.cluster.nodes.names
        return self._idle(pod for pod in self.pods if is_unstarted(pod, names) and is_sent(pod.metadata))

    @property
    def is_overtaken(self) -> bool:
        """Whether a pod shows already what follows a write without an answer yet: no event need say so again."""
        names = self.cluster.nodes.names
        under_way = (pod for pod in self.pods if pod.metadata.uid in self.assumed)
        return any(pod.stuck or is_unstarted(pod, names) for pod in under_way)

    @property
    def siblings(self) -> Counter[Location]:
        """How many are local or will be, and how many are on super nodes or on their way there."""
        found = Counter(location_of(pod, self.cluster.nodes.names) for pod in self.pods)
        for pod in self.pods:
            action = self.assumed.get(pod.metadata.uid) if pod.gated else None
            if action and action.kind in DECIDED:
                found[DECIDED[action.kind]] += 1
        return found

    def is_pinned(self, pod: Pod, policy: Policy) -> bool:
        """Whether *pod*, which has no node, is one of the first N that wait for local ones, or that is not known yet.

        Those placed as such are known by their affinity; this is for those that no webhook server saw.
        """
        if not policy.pin or policy.replicas is None:
            return policy.pin and policy.unknown is not None
        if policy.ordinal is not None:
            return policy.ordinal < policy.replicas
        names = self.cluster.nodes.names
        local = [
            pod
            for pod in self.pods
            if location_of(pod, names) is Location.LOCAL and not pod.may_come_to_super_nodes
        ]
        local.sort(key=lambda pod: (not pod.node_name, born(pod)))
        return pod in local[: policy.replicas]

    def age(self, pod: Pod) -> float:
        return self.ages.get(pod.metadata.uid, math.inf)

    def policy(self, pod: Pod) -> Policy:
        settings, everywhere = self.cluster.settings, self.cluster.everywhere
        annotations = pod.metadata.annotations
        own, wrong_switch = parse(annotations.get(SWITCH))
        mode, wrong_mode = annotations.get(MODE, settings.placement).strip().lower(), ""
        if mode not in (PREFER, PIN):
            wrong_mode = f'{MODE} is {mode[:20]!r}, neither "{PREFER}" nor "{PIN}", and counts as not set'
            mode = settings.placement
        ordinal, unknown = self._ordinal(pod)
        replicas: int | None = None
        said, wrong_number = "unset", ""
        try:
            number = local_replicas(pod.metadata, settings)
            if isinstance(number, Share):
                wanted, unknown_wanted = self._wanted(pod)
                replicas, unknown = number.of(wanted), unknown or unknown_wanted
                said = f"{replicas} ({number} of {wanted})"
            elif number is not None:
                replicas, said = number, str(number)
        except ValueError as error:
            wrong_number = str(error)
        problems = {
            "BadSwitch": wrong_switch,
            "BadLocalReplicas": wrong_number,
            "BadPlacementMode": wrong_mode,
        }
        return Policy(
            allows(everywhere, own, local_opt_out=settings.local_opt_out),
            f"global={NAMES[everywhere]} local={NAMES[own]}",
            replicas,
            mode == PIN,
            [(reason, message) for reason, message in problems.items() if message],
            said,
            ordinal,
            unknown,
        )

    def _ordinal(self, pod: Pod) -> tuple[int | None, str | None]:
        """And what is not known of it yet."""
        if (number := ordinal_of(pod)) is None:
            return None, None
        found = self.cluster.workload(pod)
        why = "its StatefulSet is not known yet" if found is None and self.age(pod) < PATIENCE else None
        return number - (found.first if found else 0), why

    def _wanted(self, pod: Pod) -> tuple[int, str | None]:
        """How many replicas its workload wants, and what is not known of that yet. ValueError for what will not be.

        A pod without a controller is the only one of its kind.
        """
        if (owner := pod.metadata.controller) is None:
            return 1, None
        found, is_new = self.cluster.workload(pod), self.age(pod) < PATIENCE
        if found is not None and (len(self.pods) <= found.made or not is_new):
            return found.wanted, None
        if is_new:
            return 0, f"its {owner.kind} is not known {'as it is now' if found else 'yet'}"
        raise ValueError(
            f"the replicas of {owner.kind} {owner.name} are not known: write a number, not a percentage"
        )

    def _idle(self, pods: Iterable[Pod]) -> list[Pod]:
        return oldest_first(pod for pod in pods if pod.metadata.uid not in self.assumed)


def is_readable(pod: Pod, settings: ElasticitySettings) -> bool:
    """Whether what it says of switch and number can be followed, or it says nothing."""
    annotations = pod.metadata.annotations
    try:
        _ = LOCAL_REPLICAS not in annotations or local_replicas(pod.metadata, settings)
    except ValueError:
        return False
    return SWITCH not in annotations or not parse(annotations[SWITCH])[1]


def allows(everywhere: bool | None, of_pod: bool | None, *, local_opt_out: bool) -> bool:
    """Whether super nodes are open to a pod, by the table of the original; None is a switch that is not set.

    In the original's table (TKE Resilience) a pod's own switch only opens what is closed for all; in its later
    one, with *local_opt_out*, it closes, too.
    """
    if local_opt_out and of_pod is False:
        return False
    return of_pod is True or everywhere is not False


def parse(value: str | None) -> tuple[bool | None, str]:
    """A switch, and what is wrong with it: then, too, it counts as not set."""
    word = (value or "").strip().lower()
    if value is None or word in ("true", "false"):
        return {"true": True, "false": False}.get(word), ""
    return None, f'{SWITCH} is {value[:20]!r}, neither "true" nor "false", and counts as not set'
