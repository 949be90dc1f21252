"""The names of elasticity, and its predicates on pods."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kube.selectors import is_tolerated, kept_off_super_nodes
from kube.types import ObjectMeta, Taint, Toleration
from settings import ElasticitySettings

NAME = "elasticity"
PATH = "/mutate/pods/elasticity"
DAEMON_SETS_PATH = "/mutate/daemonsets/elasticity"

GATE = "drawbridge.io/placement"
PLACEMENT = "drawbridge.io/placement"
"""The annotation that says where a pod was placed; it is written in the change that removes the gate."""
LOCAL, SUPER, ANY = "local", "super", "any"
"""ANY is for a pod that tolerates super nodes by itself and may run there: the scheduler decides."""
REASON = "drawbridge.io/placement-reason"
"""The annotation that explains a placement, or what a pod waits for: unlike an Event it costs no additional write."""
WAITS = "gated by Drawbridge: once other gates are open, the leader of the controllers decides where it runs"
"""How the REASON of a gated pod begins until the leader has one."""
BURST = "drawbridge.io/burst"
"""The annotation of a pod that was allowed on super nodes because no local node had room."""
FENCED_BY = "drawbridge.io/fenced-by"
"""The annotation by which a new leader gives a pod a new version."""
OF_THE_LEADER = (PLACEMENT, REASON, BURST, FENCED_BY)
"""The annotations that only the leader writes: a new pod that has one is a copy, and it is not believed."""
MODE = "drawbridge.io/placement-mode"
"""The annotation by which a pod says what LOCAL_REPLICAS means: PREFER or PIN."""
PREFER, PIN = "prefer", "pin"
RETURN_HOME = "drawbridge.io/return-home"
"""The annotation by which a pod says whether it returns: "false" never, "true" also as the only pod of its workload."""
RETURNING = ("ReplicaSet", "StatefulSet")
"""Of group apps: those whose availability can be read."""
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
KEEPING = {RETURN_HOME: "false", SAFE_TO_EVICT: "false", DO_NOT_DISRUPT: "true"}
"""Annotations by which a pod is never evicted for its return."""
IGNORE_RULES = "drawbridge.io/ignore-rules"
"""The annotation by which a pod that tolerates super nodes is exempt from rules and caps."""

LOCAL_REPLICAS, SWITCH = "LOCAL_REPLICAS", "AUTO_SCALE_EKS"
"""As the original, TKE Resilience, calls these annotations of a pod; SWITCH is a key of its ConfigMap, too."""

DS_INJECTION = "eks.tke.cloud.tencent.com/ds-injection"
"""What the provider injects beside the pods of super nodes: an annotation or a label, "true", of a DaemonSet's pods."""

TAINT_KEY = "eks.tke.cloud.tencent.com/eklet"
TAINT = Taint(key=TAINT_KEY, effect="NoSchedule")
TKE_SCHEDULER = "tke-scheduler"

COST = "controller.kubernetes.io/pod-deletion-cost"
OUR_COST = "drawbridge.io/deletion-cost"
"""The value of COST that we wrote: one that differs from it, or stands alone, is the user's."""
SUPER_COST = "-100"


COUNTED = {"ReplicaSet": "apps/", "StatefulSet": "apps/", "Job": "batch/"}
"""The controllers whose wanted replicas are read, and the groups of these kinds."""


@dataclass(frozen=True)
class Share:
    """Of the replicas that a workload wants."""

    percent: int

    def __str__(self) -> str:
        return f"{self.percent}%"

    def of(self, wanted: int) -> int:
        """Rounded up, as Kubernetes rounds minAvailable: any share but 0% is at least one."""
        return -(-wanted * self.percent // 100)


def is_daemon_pod(metadata: ObjectMeta) -> bool:
    """By kind alone: other groups have DaemonSets, too, and theirs are bound to their nodes just the same."""
    owner = metadata.controller
    return owner is not None and owner.kind == "DaemonSet"


def is_injected(metadata: ObjectMeta) -> bool:
    """Whether a DaemonSet's pod or template asks the provider to run it beside the pods of super nodes."""
    return "true" in (metadata.annotations.get(DS_INJECTION), metadata.labels.get(DS_INJECTION))


def tolerates_super_nodes(tolerations: Iterable[Toleration]) -> bool:
    return is_tolerated(TAINT, tolerations)


def ignores_rules(metadata: ObjectMeta) -> bool:
    return metadata.annotations.get(IGNORE_RULES) == "true"


def is_sent(metadata: ObjectMeta) -> bool:
    """Whether the pod was placed on super nodes, or allowed there."""
    return metadata.annotations.get(PLACEMENT) == SUPER or BURST in metadata.annotations


def never_returns(metadata: ObjectMeta) -> str | None:
    """Why a pod on a super node never returns, whatever room there is."""
    annotations, owner = metadata.annotations, metadata.controller
    if BURST not in annotations or annotations.get(PLACEMENT) == SUPER:
        return "it did not go to a super node for want of local room"
    if why := must_stay(metadata):
        return why
    if owner and (owner.kind not in RETURNING or not owner.api_version.startswith("apps/")):
        return f"its owner is a {owner.kind} of {owner.api_version}, whose availability is not known"
    return None


def must_stay(metadata: ObjectMeta) -> str | None:
    """Why a pod is not evicted for its return, unless a person names it."""
    annotations, owner = metadata.annotations, metadata.controller
    if owner is None:
        return "no controller replaces it"
    if owner.kind == "Job":
        return "it belongs to a Job, whose work would be lost"
    if kept := next(
        (f"{key}={value}" for key, value in KEEPING.items() if annotations.get(key) == value), ""
    ):
        return f"it has annotation {kept}"
    if (said := annotations.get(RETURN_HOME, "true")) != "true":
        return f'{RETURN_HOME} is {said[:20]!r}, neither "true" nor "false": it stays until that is corrected'
    return None


def local_replicas(metadata: ObjectMeta, settings: ElasticitySettings) -> int | Share | None:
    """How many pods of its owner and revision are local; None when not set; ValueError for what cannot be followed.

    The pod's own annotation wins. The configured number is for pods of controllers: the others are no replicas.
    """
    said = metadata.annotations.get(LOCAL_REPLICAS)
    if said is None:
        if settings.local_replicas is None or metadata.controller is None:
            return None
        said = str(settings.local_replicas)
    number = replicas_in(said)
    if isinstance(number, Share) and (why := why_no_share(metadata, settings)):
        raise ValueError(f"{LOCAL_REPLICAS} is {number}: {why}")
    return number


_REPLICAS = re.compile("([0-9]{1,10})(%?)")


def replicas_in(said: str) -> int | Share:
    """ValueError for neither a number nor a percentage."""
    found = _REPLICAS.fullmatch(said.strip())
    if not found or (found[2] and int(found[1]) > 100):
        raise ValueError(
            f"{LOCAL_REPLICAS} is {said[:20]!r}, neither number nor percentage: the pod is not placed;"
            ' write for example "2"'
        )
    return Share(int(found[1])) if found[2] else int(found[1])


def why_no_share(metadata: ObjectMeta, settings: ElasticitySettings) -> str:
    """Why a percentage cannot be followed for that pod, and the way out; nothing when it can."""
    owner = metadata.controller
    if not settings.percentages:
        return "the pod is not placed; write a number, or set elasticity.percentages to true"
    if owner is None or owner.api_version.startswith(COUNTED.get(owner.kind, "none of these/")):
        return ""
    group = owner.api_version.partition("/")[0]
    return f"not placed; write a number, because the replicas of {owner.kind}.{group} are not known"


Raw = Mapping[str, Any]


def affinity_to_set(spec: Raw, tolerations: Iterable[Toleration]) -> dict[str, Any] | None:
    """The affinity by which a template's *spec*, raw, keeps its pods off super nodes; None where it needs no other."""
    affinity: dict[str, Any] = kept_off_super_nodes(spec)["affinity"]
    needs_it = tolerates_super_nodes(tolerations) and affinity != spec.get("affinity")
    return affinity if needs_it else None
