"""An IngressDaemonSet as it is stored: with one spelling of each field, and all defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from webhook.ingress_daemonset import TO_BE_UPDATED
from webhook.ingress_daemonset.int_or_percent import is_some

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


def defaulted(raw: Raw, old: Raw | None = None) -> dict[str, Any]:
    """*raw*, which was *old* until now, with one spelling and all defaults; idempotent."""
    spec, before = raw.get("spec", {}), old.get("spec", {}) if old else {}
    strategy = {"type": "RollingUpdate"} | spec.get("updateStrategy", {})
    strategy["rollingUpdate"] = _rolling(rolling_update(raw), rolling_update(old or {}))
    spec = {"podsPerNode": 1} | spec | _selector(spec, before) | {"updateStrategy": strategy}
    return {**raw, "spec": spec}


def overridden(raw: Raw, old: Raw | None = None) -> Iterator[str]:
    """Warnings of fields of *raw* that are stored with another value."""
    rolling, before = rolling_update(raw), rolling_update(old or {})
    given = _back_from_detaching(_one_spelling(rolling, before), before)
    stored = rolling_update(defaulted(raw, old))
    for name, value in DETACHING.items():
        if _detaches(rolling) and given.get(name, value) != value:
            yield f"{name} is {value}, not {given[name]}: maxUnavailableNodes is 1 or more, nodes are detached whole"
        elif not _detaches(rolling) and name not in given and name in rolling:
            yield f"{name} is {stored[name]} again, since nodes are no longer detached: maxUnavailableNodes is 0"


def rolling_update(raw: Raw) -> dict[str, Any]:
    found: dict[str, Any] = raw.get("spec", {}).get("updateStrategy", {}).get("rollingUpdate", {})
    return found


def _rolling(given: Raw, before: Raw) -> dict[str, Any]:
    rolling = _back_from_detaching(_one_spelling(given, before), before)
    rolling = NOT_DETACHING | rolling | (DETACHING if _detaches(given) else {})
    parts = {name: value | rolling[name] for name, value in PARTS.items() if rolling.get(name) is not None}
    return rolling | parts


def _one_spelling(given: Raw, before: Raw) -> dict[str, Any]:
    """Replace other spellings by the usual one, unless they disagree, which the rules deny.

    If the usual one is only what was stored *before*, the other one has been written now.
    """
    written = [given[spelling] for spelling in OTHER_SPELLINGS if spelling in given]
    if not written or written[0] != written[-1]:
        return dict(given)
    if given.get(PODS) not in (None, before.get(PODS), written[0]):
        return dict(given)
    return {name: value for name, value in given.items() if name not in OTHER_SPELLINGS} | {PODS: written[0]}


def _back_from_detaching(given: dict[str, Any], before: Raw) -> dict[str, Any]:
    """Without the values that the former `maxUnavailableNodes` implied."""
    if not _detaches(before) or _detaches(given):
        return given
    return {name: value for name, value in given.items() if name not in DETACHING or value != DETACHING[name]}


def _detaches(rolling: Raw) -> bool:
    return is_some(rolling.get("maxUnavailableNodes", 0))


def _selector(spec: Raw, before: Raw) -> dict[str, Any]:
    """An absent selector is that of *before*: it can never change."""
    if "selector" in spec or "selector" in before:
        return {"selector": spec.get("selector", before.get("selector"))}
    # A manifest may have null for an absent part.
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    return {"selector": {"matchLabels": labels}} if labels else {}
