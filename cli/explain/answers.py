"""A look ahead as it is shown: what each webhook makes of a request, and what is reserved for it."""

from __future__ import annotations

from collections.abc import Iterator

from cli.explain.budgets import UNREADABLE
from cli.explain.foresight import Answer, Foresight
from cli.explain.matching import Outcome
from cli.explain.reservations import ip_of
from cli.explain.webhook_configurations import ApiRequest
from cli.output import Cell, Document, bad, faint, good, warning

UNREGISTERED = "no webhook configuration has the webhook that reserves IPs"


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


def question(action: str, foreseen: Foresight) -> Question:
    """Without the webhooks whose rules are for other requests."""
    relevant = [each for each in foreseen.answers if each.verdict.by != "rules"]
    return Question(
        action=action,
        allowed=foreseen.allowed,
        reserved=tuple(dict.fromkeys(ip_of(each.cidr) for each in foreseen.records)),
        not_reserved_because="" if foreseen.records else why_not_reserved(foreseen),
        webhooks=tuple(_answer(each) for each in relevant),
        others=tuple(each.webhook.name for each in foreseen.others),
        budget=foreseen.budget,
    )


def why_not_reserved(foreseen: Foresight) -> str:
    """Of the webhooks that reserve addresses: one that is called decides; nothing for other requests."""
    if not foreseen.reserving and _removes_a_pod(foreseen.request):
        return UNREGISTERED
    concerned = [each for each in foreseen.reserving if each.verdict.by != "rules"]
    called = [each for each in concerned if each.decision]
    return next((each.effect for each in (*called, *concerned)), "")


def _removes_a_pod(request: ApiRequest) -> bool:
    asked = request.operation, request.resource.plural, request.resource.subresource
    return asked in (("DELETE", "pods", ""), ("CREATE", "pods", "eviction"))


def rows(asked: Question) -> Iterator[tuple[Cell, ...]]:
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
