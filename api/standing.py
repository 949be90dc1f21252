"""The mark of a pod whose addresses are reserved while it lives, and the match condition that trusts it.

A mark names the epoch, the pod and its addresses, so it says nothing of another pod, nor of another address that its
pod gets later. It counts only in the epoch that stands in the match condition: where that is missing, as in a webhook
configuration that was created again, the API server asks for each deletion.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from api.ip_reservation import PATH, cidrs_of, ended_by_itself
from calico.segment import key_of
from kube.resources import VALIDATING_WEBHOOKS
from kube.types import OwnerReference, Pod

RESERVED = "drawbridge.io/reserved"
"""On a pod: `<epoch>/<its uid>/<address>[,<address>]`. Only the leader may set it."""
STANDING = "standing"
"""Reason of a record that was made while its pod lived, before anyone asked for its deletion."""
CONDITION = "not-reserved-already"
"""Name of the match condition. The chart does not render it: an upgrade leaves it as it is."""
KIND = "ValidatingWebhookConfiguration"
_BEGIN = f"request.operation != 'DELETE' || oldObject.metadata.?annotations[?'{RESERVED}'].orValue('') != '"
_END = (
    "/' + oldObject.metadata.uid + '/'"
    " + oldObject.?status.?podIPs.orValue([]).map(each, each.?ip.orValue('')).join(',')"
)
_EXPRESSION = re.compile(f"{re.escape(_BEGIN)}([0-9a-f]{{16}}){re.escape(_END)}")

Raw = dict[str, Any]


def is_markable(pod: Pod) -> bool:
    """Whether all that the match condition compares can be reserved."""
    return 0 < len(pod.status.pod_ips) == len(cidrs_of(pod))


def mark_of(epoch: str, pod: Pod) -> str:
    return f"{epoch}/{_marked(pod)}"


def epoch_of(pod: Pod) -> str | None:
    """Of its mark; None without one, with one of another pod or address, and once the pod has ended by itself."""
    epoch, _, rest = pod.metadata.annotations.get(RESERVED, "").partition("/")
    return epoch if rest == _marked(pod) and not ended_by_itself(pod) else None


def _marked(pod: Pod) -> str:
    return f"{pod.metadata.uid}/{','.join(each.ip for each in pod.status.pod_ips)}"


def keys_of(pod: Pod) -> frozenset[str]:
    """Of the records of its addresses."""
    return frozenset(key_of(cidr, pod.metadata.uid) for cidr in cidrs_of(pod))


def expression_of(epoch: str) -> str:
    return f"{_BEGIN}{epoch}{_END}"


def epoch_in(configuration: Raw) -> str | None:
    """The one that all webhooks for deletions of pods have; None when one has none, or another one."""
    epochs = {
        epoch_among((each["name"], each["expression"]) for each in webhook.get("matchConditions") or ())
        for webhook in configuration.get("webhooks") or ()
        if _is_ours(webhook)
    }
    return epochs.pop() if len(epochs) == 1 else None


def epoch_among(conditions: Iterable[tuple[str, str]]) -> str | None:
    """The first one of match conditions, as names and expressions."""
    found = (_EXPRESSION.fullmatch(expression) for name, expression in conditions if name == CONDITION)
    return next((match[1] for match in found if match), None)


def with_epoch(configuration: Raw, epoch: str | None) -> Raw:
    """With the match condition for *epoch* in each webhook for deletions of pods; None for without."""
    webhooks = [
        webhook | {"matchConditions": _conditions(webhook, epoch)} if _is_ours(webhook) else webhook
        for webhook in configuration.get("webhooks") or ()
    ]
    return configuration | {"webhooks": webhooks}


def owner_of(configuration: Raw) -> OwnerReference:
    """With which segments go that have records of living pods."""
    at = configuration["metadata"]
    return OwnerReference(VALIDATING_WEBHOOKS.api_version, KIND, at["name"], at["uid"])


def _conditions(webhook: Raw, epoch: str | None) -> list[Raw]:
    others = [each for each in webhook.get("matchConditions") or () if each["name"] != CONDITION]
    if epoch is None:
        return others
    return [*others, {"name": CONDITION, "expression": expression_of(epoch)}]


def _is_ours(webhook: Raw) -> bool:
    return bool((webhook["clientConfig"].get("service") or {}).get("path") == PATH)
