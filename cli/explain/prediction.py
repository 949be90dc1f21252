"""What the webhooks would answer to a request now: called as the API server calls them, decided as they decide."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from api.ingress_daemonset.types import IngressDaemonSet, Metadata
from api.ip_reservation import PATH as RESERVES
from api.same_address import CalicoIPAM
from calico.segment import IPReservation, Record
from cli.explain.matching import ApiRequest, Outcome, Verdict, judge
from cli.installation import RegisteredWebhook
from kube.errors import NotFound
from kube.resources import PODS, Resource
from kube.selectors import LabelSelector, selects_labels
from kube.types import Namespace, Pod, Value
from settings import Settings
from webhook.admission import Decision, Operation, Request, ReviewError, Webhook, parse, unreviewed

Raw = Mapping[str, Any]
OF_A_STORED_OBJECT = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
    "selfLink",
)
"""Metadata that no client sends with a new object."""
KINDS = {"pods": "Pod", "nodes": "Node", "daemonsets": "DaemonSet", "ingressdaemonsets": "IngressDaemonSet"}
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets")
UNREADABLE = "not known: you may not list PodDisruptionBudgets"
ALWAYS = "AlwaysAllow"
T = TypeVar("T")
UID = "explained"
"""Of the request: some denials name it."""


def deletion_of(pod: Raw) -> ApiRequest:
    return _request("DELETE", PODS, pod, old=_typed(PODS, pod))


def eviction_of(pod: Raw) -> ApiRequest:
    names = {name: pod["metadata"][name] for name in ("name", "namespace")}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": names}
    return _request("CREATE", PODS.sub("eviction"), pod, new=body)


def creation_of(resource: Resource, stored: Raw) -> ApiRequest:
    """Of an object like *stored*: a pod is not bound to a node yet."""
    metadata = {name: value for name, value in stored["metadata"].items() if name not in OF_A_STORED_OBJECT}
    spec = {name: value for name, value in stored.get("spec", {}).items() if name != "nodeName"}
    new = {"metadata": metadata, "spec": spec}
    return _request("CREATE", resource, stored, new=_typed(resource, new))


def change_of(resource: Resource, old: Raw, new: Raw) -> ApiRequest:
    return _request("UPDATE", resource, old, old=_typed(resource, old), new=_typed(resource, new))


def _request(
    operation: Operation,
    resource: Resource,
    about: Raw,
    *,
    new: Raw | None = None,
    old: Raw | None = None,
) -> ApiRequest:
    metadata = about["metadata"]
    namespace = metadata.get("namespace", "")
    return ApiRequest(operation, resource, metadata["name"], namespace, object=new, old_object=old)


def _typed(resource: Resource, raw: Raw) -> Raw:
    """A LIST leaves these fields out of its items."""
    return {"apiVersion": resource.api_version, "kind": KINDS[resource.plural], **raw}


class BudgetSpec(Value, frozen=True):
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class BudgetStatus(Value, frozen=True):
    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0


class Budget(Value, frozen=True):
    metadata: Metadata = Metadata()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


def refusal(pod: Raw, budgets: Sequence[Budget] | None) -> str:
    """Why the eviction of *pod* is refused, or why that is not known; *budgets* are those of its namespace."""
    if _goes_anyway(pod):
        return ""
    if budgets is None:
        return UNREADABLE
    labels = pod["metadata"].get("labels") or {}
    found = [each for each in budgets if selects_labels(each.spec.selector, labels)]
    if len(found) > 1:
        names = ", ".join(each.metadata.name for each in found)
        return f"more than one PodDisruptionBudget selects the pod, and none may be evicted then: {names}"
    return _refusal(pod, found[0]) if found else ""


def _refusal(pod: Raw, budget: Budget) -> str:
    name, status = budget.metadata.name, budget.status
    if not _is_ready(pod):
        in_budget = 0 < status.desired_healthy <= status.current_healthy
        if in_budget or budget.spec.unhealthy_pod_eviction_policy == ALWAYS:
            return ""
    if status.observed_generation < budget.metadata.generation:
        return f"PodDisruptionBudget {name} has changed, and its disruptions are still to be counted"
    if status.disruptions_allowed > 0:
        return ""
    counts = f"needs {status.desired_healthy} healthy pods and has {status.current_healthy}"
    return f"PodDisruptionBudget {name} allows no disruption: it {counts}"


def _goes_anyway(pod: Raw) -> bool:
    phase = pod.get("status", {}).get("phase")
    return phase in ("Pending", "Succeeded", "Failed") or bool(pod["metadata"].get("deletionTimestamp"))


def _is_ready(pod: Raw) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


@dataclass(frozen=True)
class Objects:
    """Raw *pods* by namespace/name, raw *namespaces* by name, and the IngressDaemonSets of these namespaces.

    *budgets* are theirs, too, where evictions are predicted; None when they may not be read.
    """

    pods: Mapping[str, Raw] = field(default_factory=dict)
    namespaces: Mapping[str, Raw] = field(default_factory=dict)
    ingress_daemonsets: Sequence[IngressDaemonSet] = ()
    budgets: Sequence[Budget] | None = ()

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        return self.namespaces.get(namespace, {}).get("metadata", {}).get("labels") or {}


Make = Callable[["Snapshot", "RecordingLedger"], Sequence[Webhook]]
"""Makes the webhooks of a feature, which read a snapshot and write a ledger."""


@dataclass(frozen=True)
class Snapshot:
    """*makers* make the webhooks of each feature.

    All *segments*, and the configuration of Calico, decide what is promised to a new pod.
    """

    settings: Settings
    webhooks: Sequence[RegisteredWebhook]
    objects: Objects
    now: datetime
    makers: Sequence[Make] = ()
    segments: Sequence[IPReservation] = ()
    calico: CalicoIPAM = field(default_factory=CalicoIPAM)


@dataclass(frozen=True)
class SnapshotReads:
    """What the webhooks read, from *snapshot*: nothing waits. Drain requests that they would write are dropped."""

    snapshot: Snapshot

    def pod(self, namespace: str, name: str, *, deadline: float) -> Pod:
        return _found(self.snapshot.objects.pods, f"{namespace}/{name}", Pod)

    def namespace(self, name: str, *, deadline: float) -> Namespace:
        return _found(self.snapshot.objects.namespaces, name, Namespace)

    def ingress_daemonsets(self, namespace: str, *, deadline: float) -> Iterator[IngressDaemonSet]:
        known = self.snapshot.objects.ingress_daemonsets
        return (each for each in known if each.metadata.namespace == namespace)

    def request_drain(self, resource: IngressDaemonSet, node: str, at: str, *, deadline: float) -> None:
        pass

    def segments(self, deadline: float) -> Sequence[IPReservation]:
        return self.snapshot.segments

    def of_calico(self, deadline: float) -> CalicoIPAM:
        return self.snapshot.calico


class RecordingLedger:
    """Records what would be reserved."""

    def __init__(self) -> None:
        self.records: tuple[Record, ...] = ()

    def reserve(self, records: Sequence[Record], deadline: float) -> None:
        self.records += tuple(records)


def webhooks_of(snapshot: Snapshot, ledger: RecordingLedger) -> Mapping[str, Webhook]:
    """Drawbridge's webhooks by path, as the server builds them; none of these can write."""
    return {webhook.path: webhook for make in snapshot.makers for webhook in make(snapshot, ledger)}


def _found(objects: Mapping[str, Raw], key: str, kind: type[T]) -> T:
    if key not in objects:
        raise NotFound(404, "NotFound", f"there is no {kind.__name__.lower()} {key}")
    return msgspec.convert(objects[key], kind)


@dataclass(frozen=True)
class Answer:
    """*decision* is None when the webhook is not called."""

    verdict: Verdict
    decision: Decision | None = None

    @property
    def effect(self) -> str:
        """In a line."""
        if self.decision is None:
            by = f" by {self.verdict.by}" if self.verdict.by else ""
            return f"{self.verdict.outcome}{by}: {self.verdict.why}"
        if_called = "if it is called: " if self.verdict.outcome is Outcome.UNKNOWN else ""
        return if_called + effect_of(self.decision)


@dataclass(frozen=True)
class Prediction:
    """*answers* of Drawbridge's webhooks, *others* that are called, too, and the *records* that would be reserved.

    *budget* is why a PodDisruptionBudget refuses an eviction after admission, or why that is not known.
    """

    request: ApiRequest
    answers: tuple[Answer, ...]
    others: tuple[Verdict, ...]
    records: tuple[Record, ...]
    budget: str = ""

    @property
    def denials(self) -> tuple[str, ...]:
        """What Drawbridge's webhooks, or the API server for want of a condition's value or of a budget, refuse."""
        refused = [each.verdict for each in self.answers if each.verdict.outcome is Outcome.REFUSED]
        decisions = [each.decision for each in self.answers if each.decision]
        denied = tuple(each.message for each in decisions if not each.allowed)
        budget = (self.budget,) if self.budget not in ("", UNREADABLE) else ()
        return (*denied, *(f"{each.by} {each.why}" for each in refused), *budget)

    @property
    def reserving(self) -> tuple[Answer, ...]:
        """Of the webhooks that reserve addresses, whether they are called or not."""
        return tuple(each for each in self.answers if each.verdict.webhook.path == RESERVES)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Why it is not known whether a webhook is called; *records* then are what it would reserve."""
        found = [each.verdict for each in self.answers if each.verdict.outcome is Outcome.UNKNOWN]
        return tuple(f"{each.webhook.name}: {each.by} {each.why}" for each in found)

    @property
    def allowed(self) -> bool:
        return not self.denials


def predict(request: ApiRequest, snapshot: Snapshot) -> Prediction:
    ledger = RecordingLedger()
    ours, labels = webhooks_of(snapshot, ledger), snapshot.objects.labels_of(request.namespace)
    verdicts = [judge(each, request, labels) for each in snapshot.webhooks]
    parsed = parse(request.review(UID))
    answers = tuple(_answer(each, ours, parsed) for each in verdicts if each.webhook.path in ours)
    others = [each for each in verdicts if each.webhook.path not in ours]
    return Prediction(
        request,
        answers,
        tuple(each for each in others if each.outcome is not Outcome.SKIPPED),
        ledger.records,
        _budget(request, snapshot),
    )


def _budget(request: ApiRequest, snapshot: Snapshot) -> str:
    pod = snapshot.objects.pods.get(f"{request.namespace}/{request.name}")
    is_eviction = request.resource.subresource == "eviction"
    return refusal(pod, snapshot.objects.budgets) if pod and is_eviction else ""


def decide(webhook: Webhook, request: Request) -> Decision:
    """As the server does with a review that cannot be decoded."""
    try:
        return webhook.review(request, math.inf)
    except ReviewError as error:
        return unreviewed(webhook, request, f"it cannot be decoded: {error}", 400)


def effect_of(decision: Decision) -> str:
    if not decision.allowed:
        return f"denied ({decision.code}): {decision.message}"
    if skipped := decision.audit.get("skipped"):
        return f"allowed, nothing to do: {skipped}"
    done = [f"{name}: {value}" for name, value in decision.audit.items()]
    if decision.patch and not done:
        done = [f"changed: {', '.join(sorted({str(each['path']) for each in decision.patch}))}"]
    return "allowed; " + "; ".join((*done, *decision.warnings)) if done or decision.warnings else "allowed"


def _answer(verdict: Verdict, ours: Mapping[str, Webhook], request: Request) -> Answer:
    if verdict.outcome not in (Outcome.CALLED, Outcome.UNKNOWN):
        return Answer(verdict)
    return Answer(verdict, decide(ours[verdict.webhook.path], request))
