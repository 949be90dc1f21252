"""An IngressDaemonSet as a value, with all defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import msgspec

from api import health_checks
from api.ingress_daemonset import DRAIN_REQUESTS, EVICTABLE_NODES, PAUSED_UNTIL, TO_BE_UPDATED
from api.ingress_daemonset.status import Status, status_of
from kube.types import Object, ObjectMeta, Value


class Annotation(Value, frozen=True):
    """What is written to detach, and after how many seconds the load balancer sends nothing more."""

    key: str = ""
    value: str = ""
    grace_period_seconds: int = 0


class Timestamp(Value, frozen=True):
    """The annotation with the time of a Node's detachment, and how many seconds later it is safe."""

    key: str = ""
    format: str = "RFC3339"
    grace_period_seconds: int = 0


class Weights(Value, frozen=True):
    """Load balancers at which a node's backends get weight 0, and how many seconds later it gets nothing more."""

    load_balancers: tuple[str, ...] = ()
    grace_period_seconds: int = 0


class Endpoint(Value, frozen=True):
    """A metric of the pods on the node, in the text format of Prometheus."""

    port: int = 0
    path: str = "/metrics"
    metric: str = ""


class Connections(Value, frozen=True):
    """At most how many connections may be open before pods are replaced, and for how many seconds that is waited for.

    They are counted at *ports*, or are what *endpoint* says.
    """

    max: int = 0
    timeout_seconds: int = 300
    ports: tuple[int, ...] = ()
    endpoint: Endpoint | None = None


NODES = "$(NODES)"
"""In a query: the nodes of the canary, as a regular expression."""


class Pause(Value, frozen=True):
    duration_seconds: int = 0
    """0 is until it is promoted by hand, or no pause between waves."""


class Metric(Value, frozen=True):
    """The canary is promoted when *query* has had one value from *min* to *max* for so many seconds."""

    query: str = ""
    min: float | None = None
    max: float | None = None
    for_seconds: int = 300
    interval_seconds: int = 30
    failure_limit: int = 3
    """So many values out of bounds, in all, fail the canary."""

    @property
    def has_bounds(self) -> bool:
        return self.min is not None or self.max is not None


class Waves(Value, frozen=True):
    """Nodes with one value of a label are updated before those with the next one, with a pause between."""

    by_label: str = ""
    pause: Pause = Pause()


class Window(Value, frozen=True):
    """When updates may begin: from *start* on, as a clock in *time_zone* shows it, on these days."""

    days: tuple[str, ...] = ()
    """Empty is every day."""
    start: str = "00:00"
    duration_seconds: int = 0
    time_zone: str = "UTC"


Raw = Mapping[str, Any]

PODS = "maxUnavailablePodsPerNode"
OTHER_SPELLINGS = ("maxUnavaiablePodsPerNode", "maxUnavailablePodsPerNodes")
"""Of PODS: the first in the original's README, the second in its Go code."""
DEGRADED = "maxDegradedNodes"
DETACHING = {DEGRADED: 0, PODS: "100%"}
"""Implied by a `maxUnavailableNodes` of 1 or more."""
NOT_DETACHING = {"maxUnavailableNodes": 0, DEGRADED: 1, PODS: 1}

PARTS = {
    "annotateDeploymentToDetach": {"key": TO_BE_UPDATED},
    "waitForDetachmentByAnnotatedTimestamp": {"format": "RFC3339"},
}
"""Defaults of these fields where they are given."""
PAIRS = ("annotateDeploymentToDetach", "annotateNodeToDetach")
"""Whose key may be written as key=value, as the original's README says."""


Share = int | str
"""A budget: a number, or a percentage such as ``"25%"``."""
PERCENTAGE = re.compile("(100|[0-9]{1,2})%", re.ASCII)


def amount(share: Share) -> int:
    """The number, or that of the percentage. ValueError for what the schema refuses."""
    if isinstance(share, int) and share >= 0:
        return share
    if found := PERCENTAGE.fullmatch(str(share)):
        return int(found[1])
    raise ValueError(f"{share!r:.20} is no budget")


def is_some(share: Share) -> bool:
    try:
        return amount(share) > 0
    except ValueError:
        return False


def share(value: Share, whole: int) -> int:
    """*value*, or that percentage of *whole*: rounded up, at least 1 unless it is 0%. ValueError."""
    number = amount(value)
    if isinstance(value, int):
        return number
    return max(1, -(-number * whole // 100)) if number else 0


def defaulted(raw: Raw, old: Raw | None = None) -> dict[str, Any]:
    """*raw*, which was *old* until now, with one spelling and all defaults; idempotent."""
    spec, before = raw.get("spec", {}), old.get("spec", {}) if old else {}
    strategy = {"type": "RollingUpdate"} | spec.get("updateStrategy", {})
    strategy["rollingUpdate"] = _rolling(rolling_update(raw))
    spec = {"podsPerNode": 1} | spec | _selector(spec, before) | {"updateStrategy": strategy}
    return {**raw, "spec": spec}


def overridden(raw: Raw) -> Iterator[str]:
    """Warnings of fields of *raw* that are stored with another value."""
    given, stored = _one_spelling(rolling_update(raw)), _rolling(rolling_update(raw))
    how = "1 or more: nodes are detached whole" if _detaches(given) else "0: nodes are not detached"
    for name in DETACHING:
        if name in given and given[name] != stored[name]:
            yield f"{name} is {stored[name]}, not {given[name]}, since maxUnavailableNodes is {how}"


def rolling_update(raw: Raw) -> dict[str, Any]:
    found: dict[str, Any] = raw.get("spec", {}).get("updateStrategy", {}).get("rollingUpdate", {})
    return found


def _rolling(given: Raw) -> dict[str, Any]:
    rolling = _one_spelling(given)
    if _detaches(given):
        rolling |= DETACHING
    elif rolling.get(DEGRADED) == DETACHING[DEGRADED]:
        # Implied by a former `maxUnavailableNodes`: with 0 for both, no node could be updated.
        rolling = {name: value for name, value in rolling.items() if DETACHING.get(name) != value}
    rolling = NOT_DETACHING | rolling
    rolling |= {name: _pair(rolling[name]) for name in PAIRS if rolling.get(name) is not None}
    parts = {name: value | rolling[name] for name, value in PARTS.items() if rolling.get(name) is not None}
    return rolling | parts


def _one_spelling(given: Raw) -> dict[str, Any]:
    """Another spelling outweighs the usual one, which may be only what was stored before."""
    usual = {name: value for name, value in given.items() if name not in OTHER_SPELLINGS}
    return next((usual | {PODS: given[name]} for name in OTHER_SPELLINGS if name in given), usual)


def _pair(given: Raw) -> Raw:
    """*given* with key and value apart; a value in the key outweighs another one in the same way."""
    key, equals, value = str(given.get("key", "")).partition("=")
    return {**given, "key": key, "value": value} if equals else given


def _detaches(rolling: Raw) -> bool:
    return is_some(rolling.get("maxUnavailableNodes", 0))


def _selector(spec: Raw, before: Raw) -> dict[str, Any]:
    """An absent selector is that of *before*: it can never change."""
    if "selector" in spec or "selector" in before:
        return {"selector": spec.get("selector", before.get("selector"))}
    # A manifest may have null for an absent part.
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    return {"selector": {"matchLabels": labels}} if labels else {}


REQUIRED, PREFERRED, OFF = "required", "preferred", "off"
ORIGINAL_IMAGE = r"(.*/)?mumoshu/ingress-daemonset-(controller|node-healthcheck-server)([:@].*)?"


class Canary(Value, frozen=True):
    """The nodes that get a new template first."""

    nodes: Share | None = None
    """How many of those that match; None is all of them."""
    node_selector: dict[str, str] = {}
    pause: Pause = Pause()
    metric: Metric | None = None


class RollingUpdate(Value, frozen=True):
    max_unavailable_nodes: Share = 0
    max_degraded_nodes: Share = 1
    max_unavailable_pods_per_node: Share = 1
    max_surged_pods_per_node: Share = 0
    annotate_deployment_to_detach: Annotation | None = None
    annotate_node_to_detach: Annotation | None = None
    wait_for_detachment_by_annotated_timestamp: Timestamp | None = None
    set_weight_to_detach: Weights | None = None
    label_node_to_detach: bool = False
    wait_for_connections: Connections | None = None
    confirm: str = REQUIRED
    """Whether health checkers and load balancers must confirm the detachment before pods are replaced."""
    confirm_timeout_seconds: int = 60
    attach_grace_period_seconds: int = 0
    """How long an attached node still counts as detached, until the load balancer sends it traffic."""
    canary: Canary | None = None
    waves: Waves | None = None
    window: Window | None = None
    """Outside of it, no node begins to get a new template."""
    auto_rollback: bool = False
    """Whether nodes return to the last template that all of them had, when those with a new one fail."""

    @property
    def detaches(self) -> bool:
        """Whether nodes are detached from the load balancer before their pods are replaced."""
        return is_some(self.max_unavailable_nodes)

    @property
    def deployment_annotation(self) -> Annotation | None:
        """Written to a Deployment before its update."""
        if self.annotate_deployment_to_detach is None and self.detaches:
            return Annotation(key=TO_BE_UPDATED)
        return self.annotate_deployment_to_detach

    @property
    def node_annotation(self) -> Annotation | None:
        """Written to a Node before the update of its Deployment."""
        return self.annotate_node_to_detach if self.detaches else None

    @property
    def labels_node(self) -> bool:
        """Whether a Node is excluded from external load balancers by its label before the update of its Deployment."""
        return self.label_node_to_detach and self.detaches

    @property
    def node_grace_seconds(self) -> int:
        """After what is written to a Node."""
        of_annotation = self.node_annotation.grace_period_seconds if self.node_annotation else 0
        # Nothing says when load balancers have followed the label.
        of_label = self.confirm_timeout_seconds if self.labels_node else 0
        return max(of_annotation, of_label)

    @property
    def grace_seconds(self) -> int:
        """The longest until a detached node gets nothing more, where others do their part at once."""
        ways = (self.deployment_annotation, self.weights, self.timestamp)
        graces = (each.grace_period_seconds for each in ways if each)
        return max(self.node_grace_seconds, *graces, 0)

    @property
    def weights(self) -> Weights | None:
        """Set to 0 before the update of a node."""
        return self.set_weight_to_detach if self.detaches else None

    @property
    def connections(self) -> Connections | None:
        """Waited for before the update of a node."""
        return self.wait_for_connections if self.detaches else None

    @property
    def timestamp(self) -> Timestamp | None:
        return self.wait_for_detachment_by_annotated_timestamp if self.node_annotation else None


class UpdateStrategy(Value, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate = RollingUpdate()


class HealthChecker(Value, frozen=True):
    """Empty fields are as in the configuration."""

    image: str = ""
    image_pull_policy: str = ""
    service_account_name: str = ""
    resources: dict[str, Any] = {}
    on_api_server_outage: str = health_checks.KEEP
    outage_tolerance_seconds: int = health_checks.DEFAULT_BOUND

    @property
    def is_the_originals(self) -> bool:
        """Whether its image is that of the original controller's manifests, another program."""
        return re.fullmatch(ORIGINAL_IMAGE, self.image) is not None


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
    """How long an eviction is denied at most while its node is being detached; 0 is never."""
    revision_history_limit: int = 10
    """How many former templates are kept."""
    template: dict[str, Any] = {}
    """As written, so that fields survive that are not known here."""

    @property
    def detaches_for_evictions(self) -> bool:
        annotation = self.update_strategy.rolling_update.deployment_annotation
        return annotation is not None and self.drain_timeout_seconds > 0


class IngressDaemonSet(Value, frozen=True, dict=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: Spec = Spec()
    status: dict[str, Any] = {}
    """As last written."""

    @cached_property
    def stored(self) -> Status:
        """The status as a value."""
        return status_of(self.status)

    @property
    def reported(self) -> dict[str, Any]:
        """The status without its fields for drains."""
        return {
            name: part for name, part in self.status.items() if name not in (DRAIN_REQUESTS, EVICTABLE_NODES)
        }


def resource(raw: Mapping[str, Any]) -> IngressDaemonSet:
    """*raw* with all defaults, even where it was stored without admission; raises msgspec.ValidationError."""
    return msgspec.convert(defaulted(raw), IngressDaemonSet)


def time_of(text: str) -> datetime | None:
    """In UTC; None for a text that is not a time with a zone."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None


def suspended_until(resource: Object, now: datetime) -> datetime | None:
    """None while it is not."""
    until = time_of(resource.metadata.annotations.get(PAUSED_UNTIL, ""))
    return until if until and until > now else None


def load_balancers(resource: IngressDaemonSet) -> tuple[str, ...]:
    weights = resource.spec.update_strategy.rolling_update.set_weight_to_detach
    return weights.load_balancers if weights else ()
