"""An IngressDaemonSet as values, with every default in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from kube.types import ObjectMeta, Value, complete
from webhook.ingress_daemonset import DRAIN_REQUESTS, EVICTABLE_NODES, TO_BE_UPDATED
from webhook.ingress_daemonset.defaults import defaulted
from webhook.ingress_daemonset.int_or_percent import Share, is_some

REQUIRED, PREFERRED, OFF = CONFIRM = ("required", "preferred", "off")
KEEP, FAIL = ON_OUTAGE = ("keep", "fail")
ORIGINAL_IMAGE = r"(.*/)?mumoshu/ingress-daemonset-(controller|node-healthcheck-server)([:@].*)?"


class Metadata(ObjectMeta, frozen=True):
    generation: int = 0
    finalizers: tuple[str, ...] = ()


class Annotation(Value, frozen=True):
    """What is written to detach, and how many seconds after that the load balancer has let go."""

    key: str = ""
    value: str = ""
    grace_period_seconds: int = 0


class Timestamp(Value, frozen=True):
    """Where a Node says since when it is detached, and how many seconds after that it is safe."""

    key: str = ""
    format: str = "RFC3339"
    grace_period_seconds: int = 0


class RollingUpdate(Value, frozen=True):
    max_unavailable_nodes: Share = 0
    max_degraded_nodes: Share = 1
    max_unavailable_pods_per_node: Share = 1
    max_surged_pods_per_node: Share = 0
    annotate_deployment_to_detach: Annotation | None = None
    annotate_node_to_detach: Annotation | None = None
    wait_for_detachment_by_annotated_timestamp: Timestamp | None = None
    confirm: str = REQUIRED
    """Whether health checkers must have said that they answer 503 before pods are replaced."""
    confirm_timeout_seconds: int = 60

    @property
    def detaches(self) -> bool:
        """Whether nodes are taken off the load balancer before their pods are touched."""
        return is_some(self.max_unavailable_nodes)

    @property
    def deployment_annotation(self) -> Annotation | None:
        """What goes on a Deployment before its update, if anything does."""
        if self.annotate_deployment_to_detach is None and self.detaches:
            return Annotation(key=TO_BE_UPDATED)
        return self.annotate_deployment_to_detach

    @property
    def node_annotation(self) -> Annotation | None:
        """What goes on a Node before the update of its Deployment, if anything does."""
        return self.annotate_node_to_detach if self.detaches else None

    @property
    def timestamp(self) -> Timestamp | None:
        return self.wait_for_detachment_by_annotated_timestamp if self.node_annotation else None


class UpdateStrategy(Value, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate = RollingUpdate()


class HealthChecker(Value, frozen=True):
    """Empty is as the configuration has it."""

    image: str = ""
    image_pull_policy: str = ""
    service_account_name: str = ""
    resources: dict[str, Any] = {}
    on_api_server_outage: str = KEEP
    outage_tolerance_seconds: int = 30

    @property
    def is_the_originals(self) -> bool:
        """Whether its image is the one that the original's manifests name: it answers to another program's words."""
        return re.fullmatch(ORIGINAL_IMAGE, self.image) is not None

    @property
    def own_image(self) -> str:
        return "" if self.is_the_originals else self.image

    @property
    def own_pull_policy(self) -> str:
        return "" if self.is_the_originals else self.image_pull_policy


class Selector(Value, frozen=True):
    match_labels: dict[str, str] = {}


class Spec(Value, frozen=True):
    pods_per_node: int = 1
    selector: Selector = Selector()
    node_selector: dict[str, str] = {}
    health_check_node_ports: tuple[int, ...] = ()
    update_strategy: UpdateStrategy = UpdateStrategy()
    health_checker: HealthChecker = HealthChecker()
    paused: bool = False
    min_ready_seconds: int = 0
    progress_deadline_seconds: int = 600
    drain_timeout_seconds: int = 90
    """For how long an eviction is refused at most while its node is being detached; 0 is not at all."""
    template: dict[str, Any] = {}
    """As written: what of a pod is not known here has to survive."""

    @property
    def detaches_for_evictions(self) -> bool:
        """Whether nodes are detached for evictions, by the same means as in a rollout."""
        rolling = self.update_strategy.rolling_update
        return (
            bool(rolling.deployment_annotation or rolling.node_annotation) and self.drain_timeout_seconds > 0
        )


class IngressDaemonSet(Value, frozen=True):
    metadata: Metadata = Metadata()
    spec: Spec = Spec()
    status: dict[str, Any] = {}
    """As it was last written."""

    @property
    def drain_requests(self) -> dict[str, str]:
        """Written by the webhook, and cleared by the controllers."""
        return self.status.get(DRAIN_REQUESTS) or {}

    @property
    def evictable_nodes(self) -> dict[str, str]:
        """Written by the controllers."""
        return self.status.get(EVICTABLE_NODES) or {}

    @property
    def reported(self) -> dict[str, Any]:
        """The status without what evictions are handed over by."""
        return {
            name: part for name, part in self.status.items() if name not in (DRAIN_REQUESTS, EVICTABLE_NODES)
        }


def resource(raw: Mapping[str, Any]) -> IngressDaemonSet:
    """*raw* with all defaults, even where it was stored without admission; raises msgspec.ValidationError."""
    return msgspec.convert(defaulted(raw), IngressDaemonSet)


complete(IngressDaemonSet)
