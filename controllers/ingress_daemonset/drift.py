"""Whether a live object is still as the API server answered our own write.

The API server prunes, defaults and respells what it is given, and policies add to it. All of that is in its answer to
our write, so the answer is the baseline: what differs from it later was changed by another writer. The baseline is
written along with the write, for the generation that the write makes: while the object has this generation, what is
live *is* the answer, and its digest is recorded as soon as it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any

import msgspec
from msgspec.structs import replace as changed

from controllers.ingress_daemonset.actions import Action, Change, Create, Kind
from controllers.ingress_daemonset.objects import Workload
from kube.types import Value, complete
from webhook.ingress_daemonset import APPLIED_TEMPLATE, TEMPLATE_HASH

REMEMBERED = 5
"""Alterations of an object that were undone; more would be two writers that undo each other's work."""
MOST_ANSWERS = 1000
"""Templates whose answers are known at a time: one for each IngressDaemonSet and rollout."""


class Baseline(Value, frozen=True):
    """*template* and *settings* are hashes of what we asked for, *digest* is of what the API server made of it.

    *shared* is a hash of what of the template is the same for all nodes.
    *generation* is the one that our write made. *undone* are digests of alterations that we have undone.
    """

    template: str = ""
    shared: str = ""
    settings: str = ""
    generation: int = 0
    digest: str = ""
    undone: tuple[str, ...] = ()

    def is_answered_by(self, held: Workload) -> bool:
        """Whether nothing but our own write has changed *held*.

        A write that changed nothing makes no generation, so that the one we have written down is ahead.
        """
        return self.generation >= held.metadata.generation


complete(Baseline)


class Drift(Enum):
    NONE = auto()
    UNRECORDED = auto()
    """As it should be, and the baseline does not say so yet."""
    OUTDATED = auto()
    """Another template is wanted by now."""
    DRIFTED = auto()
    """Changed by another writer."""
    ALTERED = auto()
    """Changed in the same way once more, after that was undone: left as it is."""

    @property
    def calls_for_update(self) -> bool:
        return self in (Drift.OUTDATED, Drift.DRIFTED)

    @property
    def is_accepted(self) -> bool:
        return self in (Drift.NONE, Drift.UNRECORDED)


@dataclass(frozen=True)
class Altered:
    """An object that is left as another writer has made it; *digest* is of what is live."""

    kind: Kind
    name: str
    digest: str


def baseline_of(annotations: Mapping[str, str]) -> Baseline | None:
    """None, too, for one of another template: a release that knows no baselines has written since."""
    try:
        found = msgspec.json.decode(annotations.get(APPLIED_TEMPLATE, "null"), type=Baseline | None)
    except msgspec.MsgspecError:
        return None
    return found if found and found.template == annotations.get(TEMPLATE_HASH) else None


def drift_of(
    held: Workload, wanted: str, digest: str, covered: Callable[[], bool], *, placed: bool = True
) -> Drift:
    """*wanted* is a hash, *digest* is of what is live, and *placed* says whether it is for the right node.

    *covered* is asked where there is no baseline, as in objects of earlier releases: whether it is all live.
    """
    annotations, baseline = held.metadata.annotations, baseline_of(held.metadata.annotations)
    unknown = APPLIED_TEMPLATE not in annotations and TEMPLATE_HASH not in annotations
    if annotations.get(TEMPLATE_HASH) != wanted and not (unknown and covered()):
        return Drift.OUTDATED
    if baseline is not None and baseline.is_answered_by(held):
        # A newer API server that defaults a new field writes nothing, so that the generation stays.
        exact = (baseline.generation, baseline.digest) == (held.metadata.generation, digest)
        return Drift.NONE if exact else Drift.UNRECORDED
    if baseline is None or not baseline.digest:
        return Drift.UNRECORDED if covered() else Drift.DRIFTED
    if placed and digest == baseline.digest:
        return Drift.NONE
    return Drift.ALTERED if digest in baseline.undone else Drift.DRIFTED


def rewritten(asked: Baseline, drift: Drift, old: Baseline, digest: str) -> Baseline:
    """*asked*, when *digest* is overwritten: what is restored will be as it was, and what was undone is remembered."""
    if drift is not Drift.DRIFTED:
        return asked
    return changed(asked, digest=old.digest, undone=(*old.undone, digest)[-REMEMBERED:])


def annotations_of(baseline: Baseline) -> dict[str, str | None]:
    text = msgspec.json.encode(baseline, order="deterministic").decode()
    return {TEMPLATE_HASH: baseline.template, APPLIED_TEMPLATE: text}


@dataclass
class Answers:
    """What the API server made of templates for Deployments, so that the next node needs no second write.

    Safe to use from any thread.
    """

    _digests: dict[str, str] = field(default_factory=dict)

    def learn(self, held: Workload) -> None:
        baseline = baseline_of(held.metadata.annotations)
        if baseline is None or not baseline.shared or baseline.generation != held.metadata.generation:
            return
        if len(self._digests) >= MOST_ANSWERS:
            self._digests.clear()
        self._digests[baseline.shared] = held.template_digest

    def expected(self, action: Action) -> Action:
        """*action*, with the digest that its answer will have, if that is known."""
        if not isinstance(action, Create | Change):
            return action
        metadata = action.body["metadata"]
        annotations: Mapping[str, Any] = metadata.get("annotations") or {}
        baseline = baseline_of(annotations)
        digest = self._digests.get(baseline.shared) if baseline else None
        if baseline is None or baseline.digest or digest is None:
            return action
        filled = {**annotations, **annotations_of(changed(baseline, digest=digest))}
        return replace(action, body={**action.body, "metadata": {**metadata, "annotations": filled}})
