"""What the webhooks would answer to a request now: called as the API server calls them, decided as they decide."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from api.ingress_daemonset.types import IngressDaemonSet
from api.ip_reservation import PATH as RESERVES
from api.ip_reservation import records_of
from api.same_address import CalicoIPAM
from api.standing import CONDITION, RESERVED, STANDING, epoch_among, epoch_of
from calico.segment import IPReservation, Record
from cli.explain.matching import RULES, ApiRequest, Outcome, Verdict, judge
from cli.installation import RegisteredWebhook
from cli.output import Cell, Document, Table, bad, faint, good, warning
from kube.errors import NotFound
from kube.resources import PODS, Resource
from kube.selectors import LabelSelector, selects_labels
from kube.types import Namespace, ObjectMeta, Pod, Value, converted
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
UNREGISTERED = "no webhook configuration has the webhook that reserves IPs"
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
    operation: Operation, resource: Resource, about: Raw, *, new: Raw | None = None, old: Raw | None = None
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
    metadata: ObjectMeta = ObjectMeta()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


def refusal(pod: Pod, budgets: Sequence[Budget] | None) -> str:
    """Why the eviction of *pod* is refused, or why that is not known; *budgets* are those of its namespace."""
    if pod.finished or pod.terminating or pod.status.phase == "Pending":
        return ""
    if budgets is None:
        return UNREADABLE
    found = [each for each in budgets if selects_labels(each.spec.selector, pod.metadata.labels)]
    if len(found) > 1:
        names = ", ".join(each.metadata.name for each in found)
        return f"more than one PodDisruptionBudget selects the pod, and none may be evicted then: {names}"
    if not found:
        return ""
    name, spec, status = found[0].metadata.name, found[0].spec, found[0].status
    if not any((each.type, each.status) == ("Ready", "True") for each in pod.status.conditions):
        in_budget = 0 < status.desired_healthy <= status.current_healthy
        if in_budget or spec.unhealthy_pod_eviction_policy == ALWAYS:
            return ""
    if status.observed_generation < found[0].metadata.generation:
        return f"PodDisruptionBudget {name} has changed, and its disruptions are still to be counted"
    if status.disruptions_allowed > 0:
        return ""
    counts = f"needs {status.desired_healthy} healthy pods and has {status.current_healthy}"
    return f"PodDisruptionBudget {name} allows no disruption: it {counts}"


Make = Callable[["Snapshot", "RecordingLedger"], Sequence[Webhook]]
"""Makes the webhooks of a feature, which read a snapshot and write a ledger."""


@dataclass(frozen=True)
class Snapshot:
    """Its methods are the reads of webhooks, which wait for nothing; *makers* make the webhooks of each feature.

    Raw *pods* are by namespace/name, raw *namespaces* by name, with the IngressDaemonSets and, where evictions are
    predicted, the *budgets* of these: None when they may not be read. All *segments*, and the configuration of Calico,
    decide what is promised to a new pod.
    """

    settings: Settings
    webhooks: Sequence[RegisteredWebhook]
    now: datetime
    pods: Mapping[str, Raw]
    namespaces: Mapping[str, Raw]
    resources: Sequence[IngressDaemonSet]
    budgets: Sequence[Budget] | None = ()
    makers: Sequence[Make] = ()
    segments: Sequence[IPReservation] = ()
    calico: CalicoIPAM = field(default_factory=CalicoIPAM)

    def pod(self, namespace: str, name: str, *, deadline: float) -> Pod:
        return _found(self.pods, f"{namespace}/{name}", Pod)

    def namespace(self, name: str, *, deadline: float) -> Namespace:
        return _found(self.namespaces, name, Namespace)

    def ingress_daemonsets(self, namespace: str, name: str, *, deadline: float) -> Iterator[IngressDaemonSet]:
        return (each for each in self.resources if each.metadata.namespace == namespace)

    def request_drain(self, resource: IngressDaemonSet, node: str, at: str, *, deadline: float) -> None:
        """Dropped."""


class RecordingLedger:
    """Records what would be reserved."""

    def __init__(self) -> None:
        self.records: tuple[Record, ...] = ()

    def reserve(self, records: Sequence[Record], deadline: float) -> None:
        self.records += tuple(records)


def _found(objects: Mapping[str, Raw], key: str, kind: type[T]) -> T:
    if key not in objects:
        raise NotFound(404, "NotFound", f"there is no {kind.__name__.lower()} {key}")
    return converted(objects[key], kind)


class Prediction(Document, frozen=True):
    """What happens when *request*, in a word the *action*, is made now.

    *answers* of Drawbridge's webhooks, *others* that are called, too, and the *records* that are reserved then.
    *budget* is why a PodDisruptionBudget refuses an eviction after admission, or why that is not known.
    """

    action: str
    request: ApiRequest
    answers: tuple[Verdict, ...]
    others: tuple[Verdict, ...]
    records: tuple[Record, ...]
    budget: str = ""

    @property
    def content(self) -> Raw:
        """``others`` are webhooks of other programs that are called; ``decidedBy`` is why one of ours is not."""
        return {
            "action": self.action,
            "allowed": self.allowed,
            "reserved": [*self.addresses],
            "notReservedBecause": "" if self.records else self.why_not_reserved,
            "webhooks": [
                {
                    "webhook": each.webhook.name,
                    "path": each.webhook.path,
                    "called": each.outcome,
                    "decidedBy": each.by,
                    "effect": each.effect,
                    "expression": each.expression,
                }
                for each in self.relevant
            ],
            "others": [each.webhook.name for each in self.others],
            "budget": self.budget,
        }

    @property
    def denials(self) -> tuple[str, ...]:
        """What Drawbridge's webhooks, or the API server for want of a condition's value or of a budget, refuse."""
        refused = [each for each in self.answers if each.outcome is Outcome.REFUSED]
        decisions = [each.decision for each in self.answers if each.decision]
        denied = tuple(each.message for each in decisions if not each.allowed)
        budget = (self.budget,) if self.budget not in ("", UNREADABLE) else ()
        return (*denied, *(each.reason for each in refused), *budget)

    @property
    def addresses(self) -> Iterable[str]:
        """That would be reserved, each once."""
        return dict.fromkeys(each.cidr.partition("/")[0] for each in self.records)

    @property
    def relevant(self) -> list[Verdict]:
        """Without the webhooks whose rules are for other requests."""
        return [each for each in self.answers if each.by != RULES]

    def answer(self, path: str) -> Verdict | None:
        """That of the webhooks for different namespaces, which share a path, that is nearest to being called."""
        return min((each for each in self.answers if each.webhook.path == path), key=_closeness, default=None)

    @property
    def why_not_reserved(self) -> str:
        """Of the webhooks that reserve addresses; nothing for other requests."""
        if self.request.removes_a_pod and all(each.webhook.path != RESERVES for each in self.answers):
            return UNREGISTERED
        answer = self.answer(RESERVES)
        return answer.effect if answer and answer.by != RULES else ""

    @property
    def unknown(self) -> tuple[str, ...]:
        """Why it is not known whether a webhook is called; *records* then are what it would reserve."""
        found = [each for each in self.answers if each.outcome is Outcome.UNKNOWN]
        return tuple(f"{each.webhook.name}: {each.reason}" for each in found)

    @property
    def allowed(self) -> bool:
        return not self.denials


def predict(request: ApiRequest, snapshot: Snapshot, action: str = "") -> Prediction:
    """As the server decides, also of a review that cannot be decoded; none of these webhooks can write."""
    ledger = RecordingLedger()
    ours, not_called = (
        {webhook.path: webhook for make in snapshot.makers for webhook in make(snapshot, each)}
        for each in (ledger, RecordingLedger())
    )
    namespace = snapshot.namespaces.get(request.namespace, {})
    labels = namespace.get("metadata", {}).get("labels") or {}
    parsed, answers, others = parse(request.review(UID)), list[Verdict](), list[Verdict]()
    for registered in snapshot.webhooks:
        verdict = judge(registered, request, labels)
        if registered.path not in ours:
            if verdict.outcome is not Outcome.SKIPPED:
                others.append(verdict)
            continue
        if verdict.outcome in (Outcome.CALLED, Outcome.UNKNOWN):
            verdict = replace(verdict, decision=_decide(ours[registered.path], parsed))
        elif verdict.by == f"matchCondition {CONDITION}":
            verdict = replace(verdict, why=f"its IPs are reserved ahead, as its annotation {RESERVED} says")
        elif not verdict.why:
            # The condition is what the webhook would find, too, and its reasons are in words.
            verdict = replace(
                verdict, why=_decide(not_called[registered.path], parsed).audit.get("skipped", "")
            )
        answers.append(verdict)
    stored, budget = snapshot.pods.get(f"{request.namespace}/{request.name}"), ""
    if stored and request.removes_a_pod:
        pod = converted(stored, Pod)
        ledger.records = ledger.records or tuple(_reserved_ahead(pod, snapshot))
        budget = refusal(pod, snapshot.budgets) if request.resource.subresource else ""
    return Prediction(action, request, tuple(answers), tuple(others), ledger.records, budget)


def epoch(snapshot: Snapshot) -> str | None:
    """In which annotations of pods that are reserved ahead count."""
    conditions = (each for webhook in snapshot.webhooks for each in webhook.match_conditions)
    return epoch_among((each.name, each.expression) for each in conditions)


def _reserved_ahead(pod: Pod, snapshot: Snapshot) -> Sequence[Record]:
    """What stays reserved when *pod* goes."""
    of = epoch_of(pod)
    if of is None or of != epoch(snapshot):
        return ()
    return records_of(pod, snapshot.settings.ip_reservation, reason=STANDING, at=snapshot.now)


def _decide(webhook: Webhook, request: Request) -> Decision:
    try:
        return webhook.review(request, math.inf)
    except ReviewError as error:
        return unreviewed(webhook, request, f"it cannot be decoded: {error}", 400)


def questions_about_pod(pod: Raw, snapshot: Snapshot) -> Iterator[Prediction]:
    yield predict(deletion_of(pod), snapshot, "delete")
    yield predict(eviction_of(pod), snapshot, "evict")
    yield predict(creation_of(PODS, pod), snapshot, "create")


def question_table(asked: Iterable[Prediction], title: str = "") -> Table:
    found = [row for question in asked for row in _rows(question)]
    return Table(("IF IT IS REQUESTED NOW", "", "WHAT HAPPENS"), found, title=title)


def _rows(found: Prediction) -> Iterator[tuple[Cell, ...]]:
    """A line for the action, then one for each path."""
    what = f"reserves {', '.join(found.addresses)}" if found.addresses else ""
    if not what and found.why_not_reserved:
        what = "no IP is reserved"
    yield found.action, good("allowed") if found.allowed else bad("denied"), what
    paths = dict.fromkeys(each.webhook.path for each in found.relevant)
    for each in filter(None, map(found.answer, paths)):
        called = {Outcome.CALLED: good, Outcome.SKIPPED: faint}.get(each.outcome, warning)
        effect = each.effect.removeprefix(f"{Outcome.SKIPPED}: ")
        yield faint(f"  {each.webhook.name}"), called(each.outcome), effect
    if found.budget:
        refused = warning("unknown") if found.budget == UNREADABLE else bad("refused")
        yield faint("  PodDisruptionBudget"), refused, found.budget
    for each in found.others:
        why = "not one of Drawbridge's: its answer is not known"
        yield faint(f"  {each.webhook.name}"), warning("called"), why


def _closeness(verdict: Verdict) -> int:
    """How near the webhook is to being called: of several for one path, the nearest is for this namespace."""
    if verdict.outcome is not Outcome.SKIPPED:
        return 0
    return {RULES: 3, "namespaceSelector": 2}.get(verdict.by, 1)
