"""Webhooks of other programs that see what Drawbridge writes: functions of their configurations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from api.ingress_daemonset import GROUP as INGRESS_DAEMONSETS
from cli.doctor.types import Finding, Verdict
from cli.installed.types import Configuration, Webhook

CHECK = "webhooks of other programs"
CALICO = ("projectcalico.org", "crd.projectcalico.org")
UNTOUCHED = (
    *((group, "ipreservations") for group in CALICO),
    (INGRESS_DAEMONSETS, "ingressdaemonsets"),
    ("coordination.k8s.io", "leases"),
)
"""What no other program has a reason to alter."""
SHARED = (("", "pods"), ("", "nodes"), ("apps", "deployments"), ("apps", "daemonsets"))
"""What policies do alter: Drawbridge takes what the API server stores for its baseline."""


def of_others(mutating: Sequence[Configuration], validating: Sequence[Configuration]) -> Iterator[Finding]:
    found = [*_altering(mutating), *_blocking(validating)]
    yield from found
    if not found:
        yield Finding(CHECK, Verdict.OK, "none alters or blocks what Drawbridge writes")


def _altering(configurations: Sequence[Configuration]) -> Iterator[Finding]:
    for configuration, webhook in _unmanaged(configurations):
        name = f"{webhook.name} ({configuration.metadata.name})"
        if seen := _seen(webhook, UNTOUCHED):
            yield Finding(
                CHECK,
                Verdict.WARNING,
                f"mutating webhook {name} may alter {seen}",
                "exclude them in its rules: an altered object is written again and again",
            )
        elif seen := _seen(webhook, SHARED):
            yield Finding(CHECK, Verdict.OK, f"mutating webhook {name} may alter {seen}")


def _blocking(configurations: Sequence[Configuration]) -> Iterator[Finding]:
    for configuration, webhook in _unmanaged(configurations):
        seen = _seen(webhook, UNTOUCHED)
        if seen and webhook.failure_policy == "Fail":
            yield Finding(
                CHECK,
                Verdict.WARNING,
                f"validating webhook {webhook.name} ({configuration.metadata.name}) may refuse {seen}, and blocks"
                " them while it is down",
                "exclude them in its rules",
            )


def _unmanaged(configurations: Sequence[Configuration]) -> Iterator[tuple[Configuration, Webhook]]:
    for each in configurations:
        yield from ((each, webhook) for webhook in each.webhooks if not webhook.is_ours)


def _seen(webhook: Webhook, kinds: Sequence[tuple[str, str]]) -> str:
    seen = {plural for group, plural in kinds if any(_covers(rule, group, plural) for rule in webhook.rules)}
    return ", ".join(sorted(seen))


def _covers(rule: dict[str, Any], group: str, plural: str) -> bool:
    writes = {"*", "CREATE", "UPDATE"} & {*rule.get("operations", ())}
    groups, resources = rule.get("apiGroups", ()), rule.get("resources", ())
    return bool(writes and {"*", group} & {*groups} and {"*", "*/*", plural} & {*resources})
