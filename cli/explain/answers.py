"""A look ahead as it is shown: what each webhook makes of a request, and what is reserved for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cli.explain.matching import ApiRequest, Outcome
from cli.explain.prediction import (
    UNREADABLE,
    Answer,
    Prediction,
    Snapshot,
    creation_of,
    deletion_of,
    eviction_of,
    predict,
)
from cli.output import Cell, Document, Table, age, bad, faint, good, warning
from kube.resources import PODS
from kube.types import ObjectMeta, Value

Raw = Mapping[str, Any]
UNREGISTERED = "no webhook configuration has the webhook that reserves IPs"
MOST = 20


class WebhookAnswer(Document, frozen=True):
    """*decided_by* is the part of the webhook configuration because of which the webhook is not called."""

    webhook: str
    path: str
    called: str
    decided_by: str
    effect: str


class Question(Document, frozen=True):
    """What happens when the *action* is requested now; *others* are webhooks of other programs that are called."""

    action: str
    allowed: bool
    reserved: tuple[str, ...]
    not_reserved_because: str
    webhooks: tuple[WebhookAnswer, ...]
    others: tuple[str, ...]
    budget: str = ""
    """Why a PodDisruptionBudget refuses it, or why that is not known."""


def question(action: str, predicted: Prediction) -> Question:
    """Without the webhooks whose rules are for other requests."""
    relevant = [each for each in predicted.answers if each.verdict.by != "rules"]
    return Question(
        action=action,
        allowed=predicted.allowed,
        reserved=tuple(dict.fromkeys(each.cidr.partition("/")[0] for each in predicted.records)),
        not_reserved_because="" if predicted.records else why_not_reserved(predicted),
        webhooks=tuple(_answer(each) for each in relevant),
        others=tuple(each.webhook.name for each in predicted.others),
        budget=predicted.budget,
    )


def questions_about_pod(pod: Raw, snapshot: Snapshot) -> Iterator[Question]:
    asked = {
        "delete": deletion_of(pod),
        "evict": eviction_of(pod),
        "create": creation_of(PODS, pod),
    }
    for action, request in asked.items():
        yield question(action, predict(request, snapshot))


def why_not_reserved(predicted: Prediction) -> str:
    """Of the webhooks that reserve addresses: one that is called decides; nothing for other requests."""
    if not predicted.reserving and _removes_a_pod(predicted.request):
        return UNREGISTERED
    concerned = [each for each in predicted.reserving if each.verdict.by != "rules"]
    called = [each for each in concerned if each.decision]
    return next((each.effect for each in (*called, *concerned)), "")


def _removes_a_pod(request: ApiRequest) -> bool:
    asked = request.operation, request.resource.plural, request.resource.subresource
    return asked in (("DELETE", "pods", ""), ("CREATE", "pods", "eviction"))


def question_table(asked: Iterable[Question], title: str = "") -> Table:
    found = [row for question in asked for row in _rows(question)]
    return Table(("IF IT IS REQUESTED NOW", "", "WHAT HAPPENS"), found, title=title)


def _rows(asked: Question) -> Iterator[tuple[Cell, ...]]:
    """A line for the action, then one for each webhook, but for those whose twin for other namespaces is called."""
    paths = [each.path for each in asked.webhooks if each.called != Outcome.SKIPPED]
    shown = [each for each in asked.webhooks if each.called != Outcome.SKIPPED or each.path not in paths]
    yield asked.action, good("allowed") if asked.allowed else bad("denied"), reserved(asked)
    for each in shown:
        called = {Outcome.CALLED: good, Outcome.SKIPPED: faint}.get(Outcome(each.called), warning)
        yield faint(f"  {each.webhook}"), called(each.called), each.effect.removeprefix(f"{Outcome.SKIPPED} ")
    if asked.budget:
        refused = warning("unknown") if asked.budget == UNREADABLE else bad("refused")
        yield faint("  PodDisruptionBudget"), refused, asked.budget
    for name in asked.others:
        yield faint(f"  {name}"), warning("called"), "not one of Drawbridge's: its answer is not known"


def reserved(asked: Question) -> str:
    if asked.reserved:
        return f"reserves {', '.join(asked.reserved)}"
    return "no IP is reserved" if asked.not_reserved_because else ""


def _answer(answer: Answer) -> WebhookAnswer:
    verdict = answer.verdict
    webhook = verdict.webhook
    return WebhookAnswer(webhook.name, webhook.path, verdict.outcome, verdict.by, answer.effect)


class Series(Value, frozen=True):
    count: int = 0
    last_observed_time: datetime | None = None


class Event(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    reason: str = ""
    message: str = ""
    reporting_component: str = ""
    count: int | None = None
    event_time: datetime | None = None
    last_timestamp: datetime | None = None
    series: Series | None = None

    @property
    def at(self) -> datetime | None:
        in_series = self.series.last_observed_time if self.series else None
        return in_series or self.last_timestamp or self.event_time or self.metadata.creation_timestamp


class EventRow(Document, frozen=True):
    at: datetime | None
    type: str
    reason: str
    source: str
    message: str


def events(found: Sequence[Event]) -> Iterator[EventRow]:
    latest = sorted(found, key=lambda each: each.at or datetime.min.replace(tzinfo=UTC), reverse=True)
    for each in latest[:MOST]:
        yield EventRow(each.at, each.type, each.reason, each.reporting_component, each.message)


def event_table(rows: Sequence[EventRow], now: datetime) -> Table:
    return Table(
        ("EVENT", "TYPE", "REASON", "MESSAGE"),
        [(age(each.at, now), each.type, each.reason, " ".join(each.message.split())) for each in rows],
        empty="No Events.",
    )
