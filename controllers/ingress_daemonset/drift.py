"""Whether a live object is still what the API server answered to our own write, and who changed it.

The API server prunes, defaults and respells what it stores, and policies add to it. Its answer to our write has all of
that, so the answer is the baseline: a later difference was made by another writer. The baseline is written together
with the object, for the generation that this write makes. While the object has that generation, it *is* the answer,
and its digest is recorded as soon as it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace as changed

from api.ingress_daemonset import APPLIED_TEMPLATE, TEMPLATE_HASH
from controllers.ingress_daemonset.children import Action, Change, Create, Kind, Workload
from kube.types import Moment, Value, amount, as_annotation, read_annotation

REMEMBERED = 5
"""Restored alterations that are remembered per object; with more, two writers would undo each other's work."""
MOST_ANSWERS = 1000
"""Templates whose answers are known at a time: one per IngressDaemonSet and rollout."""
Seconds = Annotated[int, msgspec.Meta(ge=0, le=10**12)]
"""As many as fit between two times, whatever is written by hand."""
QUANTITIES = ("limits", "requests", "sizeLimit", "divisor")


class Baseline(Value, frozen=True):
    """What we applied: hashes of the *template*, the *size* and other *settings*, and the template's *digest* there.

    *shared* is a hash of the part of the template that is the same for all nodes, *generation* the one that our write
    made, *undone* has the digests of alterations that we have restored, *updated* is when the node was last updated:
    *waited* seconds after its graces were over, and *took* seconds before its pods were available. The *size* is empty
    while it waits to be changed.
    """

    template: str = ""
    shared: str = ""
    size: str = ""
    settings: str = ""
    generation: int = 0
    digest: str = ""
    undone: tuple[str, ...] = ()
    updated: Moment | None = None
    waited: Seconds = 0
    took: Seconds | None = None

    def is_answered_by(self, held: Workload) -> bool:
        """Whether only our own write has changed *held*; one without effect made no generation."""
        return self.generation >= held.metadata.generation


class Drift(Enum):
    NONE = auto()
    UNRECORDED = auto()
    """As desired; the baseline does not say so yet."""
    OUTDATED = auto()
    """Another template is desired now."""
    DRIFTED = auto()
    """Changed by another writer."""
    ALTERED = auto()
    """Changed in the same way again after it was restored; left as it is."""

    @property
    def calls_for_update(self) -> bool:
        return self in (Drift.OUTDATED, Drift.DRIFTED)


@dataclass(frozen=True)
class Altered:
    """An object that is left as another writer made it; *digest* is of its live state."""

    kind: Kind
    name: str
    digest: str


def baseline_of(annotations: Mapping[str, str]) -> Baseline | None:
    """None, too, for one that cannot be read, or is of another template: another writer changed it."""
    found = read_annotation(annotations, APPLIED_TEMPLATE, Baseline)
    return found if found and found.template == annotations.get(TEMPLATE_HASH) else None


def drift_of(
    held: Workload, wanted: str, digest: str, covered: Callable[[], bool], *, placed: bool = True
) -> Drift:
    """*wanted* is a hash, *digest* is of the live object, *placed* is whether that is for the right node.

    *covered*, whether all that is desired is live, is asked where another writer removed the baseline.
    """
    baseline = baseline_of(held.metadata.annotations)
    if held.metadata.annotations.get(TEMPLATE_HASH) != wanted:
        return Drift.OUTDATED
    if baseline is not None and baseline.is_answered_by(held):
        # A newer API server that defaults a new field makes no generation.
        exact = (baseline.generation, baseline.digest) == (held.metadata.generation, digest)
        return Drift.NONE if exact else Drift.UNRECORDED
    if baseline is None or not baseline.digest:
        return Drift.UNRECORDED if covered() else Drift.DRIFTED
    if placed and digest == baseline.digest:
        return Drift.NONE
    return Drift.ALTERED if digest in baseline.undone else Drift.DRIFTED


def rewritten(asked: Baseline, drift: Drift, old: Baseline, digest: str) -> Baseline:
    """*asked*, when *digest* is overwritten: a restored object will be as it was, and the alteration is remembered."""
    if drift is not Drift.DRIFTED:
        return asked
    return changed(asked, digest=old.digest, undone=(*old.undone, digest)[-REMEMBERED:])


def annotations_of(baseline: Baseline) -> dict[str, str | None]:
    return {TEMPLATE_HASH: baseline.template, APPLIED_TEMPLATE: as_annotation(baseline)}


@dataclass
class Answers:
    """What the API server made of templates, so that the next node needs no second write.

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
        """*action* with the digest that its answer will have, if that is known."""
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


def covers(desired: Any, live: Any, *, quantity: bool = False) -> bool:
    """Whether *live* has all of *desired*; the rest of *live* are defaults."""
    if isinstance(desired, Mapping):
        held = live if isinstance(live, Mapping) else {}
        return all(
            covers(value, held.get(key), quantity=quantity or key in QUANTITIES)
            for key, value in desired.items()
        )
    if isinstance(desired, list | tuple):
        listed = live or []
        return len(desired) == len(listed) and all(map(covers, desired, listed))
    if desired == live or (not desired and not live):
        return True
    try:
        return quantity and live is not None and amount(str(desired)) == amount(str(live))
    except ValueError:
        return False


def overwrite(desired: Any, live: Any) -> Any:
    """The merge patch that turns *live* into exactly *desired*."""
    if not isinstance(desired, Mapping) or not isinstance(live, Mapping):
        return desired
    gone = {key: None for key in live if key not in desired}
    return gone | {key: overwrite(value, live.get(key)) for key, value in desired.items()}


SHOWN = 3
"""Fields that a message names at most."""
SELF = "."


class ManagedFields(Value, frozen=True):
    manager: str = ""
    subresource: str = ""
    fields: dict[str, Any] = msgspec.field(default={}, name="fieldsV1")


class Metadata(Value, frozen=True):
    managed_fields: tuple[ManagedFields, ...] = ()


class Managed(Value, frozen=True):
    metadata: Metadata = Metadata()


@dataclass(frozen=True)
class Alteration:
    """*fields* are paths; without any, a field was removed, which has no manager."""

    manager: str = ""
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.fields:
            return "a field of spec.template was removed"
        more = ", ..." if len(self.fields) > SHOWN else ""
        return f"{', '.join(self.fields[:SHOWN])}{more} by field manager {self.manager or 'unknown'!r}"


def alteration(found: Managed) -> Alteration:
    """By the manager, other than us, that owns most of the template."""
    altered = list[Alteration]()
    for each in found.metadata.managed_fields:
        is_ours = f"f:{APPLIED_TEMPLATE}" in _at(each.fields, ("f:metadata", "f:annotations"))
        if not each.subresource and not is_ours:
            template = _at(each.fields, ("f:spec", "f:template"))
            paths = tuple(_paths(template, "spec.template")) if template else ()
            altered.append(Alteration(each.manager, paths))
    return max(altered, key=lambda each: len(each.fields), default=Alteration())


def _at(fields: Mapping[str, Any], path: Iterable[str]) -> Mapping[str, Any]:
    for key in path:
        fields = fields.get(key) or {}
    return fields


def _paths(fields: Mapping[str, Any], path: str) -> Iterator[str]:
    parts = {key: value for key, value in fields.items() if key != SELF}
    # An item or a map that has a manager itself was added as a whole.
    if not parts or SELF in fields:
        yield path
        return
    for key, value in parts.items():
        yield from _paths(value, f"{path}{_segment(key)}")


def _segment(key: str) -> str:
    """``f:name`` is a field, ``k:{"name":"proxy"}`` or ``v:1`` an item."""
    kind, _, name = key.partition(":")
    return f".{name}" if kind == "f" else f"[{name}]"
