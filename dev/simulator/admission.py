"""The API server's side of admission: who is called for a request, by the registered rules, selectors and conditions.

A webhook answers on a task of its own server, so that a server can be slow, away, or die while it answers; the caller
waits for its timeout and then goes by the failure policy, as kube-apiserver does.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec

from cli.explain.matching import ApiRequest, Outcome, applies, judge
from cli.installation import (
    CONFIGURATIONS,
    POLICIES,
    MutatingPolicy,
    RegisteredWebhook,
    WebhookConfiguration,
)
from dev.fake_api import FakeAPI
from dev.fake_api.patches import JSON_PATCH, patched
from dev.fake_api.server import NAMESPACES, Denied, Review, Unavailable
from dev.simulator.core.kernel import Kernel
from dev.simulator.policies import Policies, check, operations

Raw = dict[str, Any]
OURS = "drawbridge-"
"""The prefix of our clients' names."""
Ask = Callable[[str, bytes, float], bytes]
"""The answer to a review, sent to a path with a timeout in seconds; raises Away when none comes in time."""
KINDS = {
    "pods": "Pod",
    "nodes": "Node",
    "daemonsets": "DaemonSet",
    "ingressdaemonsets": "IngressDaemonSet",
    "pods/eviction": "Eviction",
    "pods/binding": "Binding",
}
MUTATES = "MutatingAdmissionPolicy"


class Away(Exception):
    """No server answered."""


class Admission:
    """What FakeAPI asks; *users* gives the name of a user for that of a client."""

    def __init__(self, api: FakeAPI, kernel: Kernel, ask: Ask, users: Callable[[str], str]) -> None:
        self._api, self._kernel, self._ask, self._users = api, kernel, ask, users
        self._registered: dict[str, list[RegisteredWebhook]] = {}
        self._for: dict[tuple[object, ...], list[RegisteredWebhook]] = {}
        """Those of which a rule is for a kind of request."""
        self._seen = -1
        self.policies = Policies()
        self.on_open: Callable[[str], None] = lambda name: None
        """Called with the name of an object that is admitted without an answer, or with a warning."""

    def mutate(self, review: Review) -> Raw | None:
        new = review.new
        for policy in self._called(MUTATES, review):
            stored = self._api.peek_at(POLICIES[MUTATES], policy.name) or {}
            for mutation in stored["spec"]["mutations"]:
                patch = operations(mutation, self._variables(replace(review, new=new)))
                new = patched(new, patch, JSON_PATCH)
        for webhook in self._called("MutatingWebhookConfiguration", review):
            response = self._answer(webhook, replace(review, new=new))
            if response is not None and response.get("patch"):
                patch = msgspec.json.decode(base64.b64decode(response["patch"]))
                new = patched(new, patch, JSON_PATCH)
        return new if new is not review.new else None

    def validate(self, review: Review) -> None:
        if review.manager.startswith(OURS):
            self._check_policies(review)
        for webhook in self._called("ValidatingWebhookConfiguration", review):
            self._answer(webhook, review)

    def _check_policies(self, review: Review) -> None:
        names = filter(None, (review.resource.plural, review.subresource))
        policies = self.policies.of(review.resource.group, "/".join(names), review.operation)
        if policies:
            about = self._variables(review)
            for each in policies:
                check(each, about)

    def _variables(self, review: Review) -> dict[str, Any]:
        request = self._request(review)
        return {"object": request.object, "oldObject": request.old_object, "request": request.admission}

    def _called(self, kind: str, review: Review) -> Iterator[RegisteredWebhook]:
        if review.subresource == "status" or not (registered := self._webhooks(kind, review)):
            return
        request = self._request(review)
        namespace = self._api.peek_at(NAMESPACES, request.namespace) if request.namespace else None
        labels = ((namespace or {}).get("metadata") or {}).get("labels") or {}
        for each in registered:
            verdict = judge(each, request, labels)
            if verdict.outcome is Outcome.REFUSED:
                raise Denied(f"{each.name}: {verdict.why}")
            if verdict.outcome is Outcome.CALLED:
                yield each

    def _webhooks(self, kind: str, review: Review) -> list[RegisteredWebhook]:
        version = self._api.version_of(*CONFIGURATIONS.values(), POLICIES[MUTATES])
        if version != self._seen:
            self._registered = {
                kind: [
                    webhook
                    for raw in self._api.list(resource)
                    for webhook in msgspec.convert(raw, WebhookConfiguration).webhooks
                ]
                for kind, resource in CONFIGURATIONS.items()
            }
            policies = self._api.list(POLICIES[MUTATES])
            self._registered[MUTATES] = [msgspec.convert(raw, MutatingPolicy).as_webhook for raw in policies]
            self._for.clear()
            self._seen = version
        about = review.new or review.old or {}
        key = kind, review.operation, review.resource, review.subresource, "namespace" in about["metadata"]
        if key not in self._for:
            request = self._request(review)
            self._for[key] = [
                each for each in self._registered[kind] if any(applies(rule, request) for rule in each.rules)
            ]
        return self._for[key]

    def _request(self, review: Review) -> ApiRequest:
        resource = review.resource.sub(review.subresource) if review.subresource else review.resource
        about = (review.new or review.old or {})["metadata"]
        return ApiRequest(
            review.operation,  # type: ignore[arg-type]
            resource,
            about.get("name", ""),
            about.get("namespace", ""),
            object=self._typed(review, review.new),
            old_object=self._typed(review, review.old),
            username=self._users(review.manager),
            dry_run=review.dry_run,
        )

    def _typed(self, review: Review, raw: Raw | None) -> Raw | None:
        if raw is None:
            return None
        name = "/".join(filter(None, (review.resource.plural, review.subresource)))
        kind = KINDS.get(name, KINDS.get(review.resource.plural, ""))
        return {"apiVersion": review.resource.api_version, "kind": kind, **raw}

    def _answer(self, webhook: RegisteredWebhook, review: Review) -> Raw | None:
        """The response; None when the failure policy lets the request through."""
        uid = f"review-{self._kernel.turns}"
        request, about = self._request(review), (review.new or review.old or {})["metadata"]
        try:
            content = self._ask(webhook.path, request.review(uid), webhook.timeout_seconds)
        except Away as error:
            if webhook.failure_policy == "Ignore":
                self.on_open(about.get("generateName") or about["name"])
                return None
            raise Unavailable(str(error)) from None
        response: Raw = msgspec.json.decode(content)["response"]
        if not response["allowed"]:
            status = response.get("status") or {}
            raise Denied(str(status.get("message", "")), status.get("code", 403), status.get("reason", ""))
        if response.get("warnings"):
            self.on_open(about.get("generateName") or about["name"])
        return response
