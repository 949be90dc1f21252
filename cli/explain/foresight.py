"""What the webhooks would answer to a request now: called as the API server calls them, decided as they decide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from api.ip_reservation import PATH as RESERVES
from calico.segment import Record
from cli.explain.budgets import UNREADABLE, refusal
from cli.explain.matching import Outcome, Verdict, judge
from cli.explain.snapshot import Remembered, Snapshot, webhooks_of
from cli.explain.webhook_configurations import ApiRequest
from webhook.admission import Decision, Request, ReviewError, Webhook, parse, unreviewed

UID = "explained"
"""Of the request: some denials name it."""


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
class Foresight:
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


def foresee(request: ApiRequest, snapshot: Snapshot) -> Foresight:
    ledger = Remembered()
    ours, labels = webhooks_of(snapshot, ledger), snapshot.objects.labels_of(request.namespace)
    verdicts = [judge(each, request, labels) for each in snapshot.webhooks]
    parsed = parse(request.review(UID))
    answers = tuple(_answer(each, ours, parsed) for each in verdicts if each.webhook.path in ours)
    others = [each for each in verdicts if each.webhook.path not in ours]
    return Foresight(
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
        done = [f"changed: {', '.join(dict.fromkeys(str(each['path']) for each in decision.patch))}"]
    return "allowed; " + "; ".join((*done, *decision.warnings)) if done or decision.warnings else "allowed"


def _answer(verdict: Verdict, ours: Mapping[str, Webhook], request: Request) -> Answer:
    if verdict.outcome not in (Outcome.CALLED, Outcome.UNKNOWN):
        return Answer(verdict)
    return Answer(verdict, decide(ours[verdict.webhook.path], request))
