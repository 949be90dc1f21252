"""What holds a rollout up beside its budget: waves, the window, and a suspension.

The nodes of one wave are updated, and a pause passes, before those of the next one begin. A wave is the nodes that have
one value of a label now, in the order of the values; nodes without it are the last one. Which nodes are done is
observed. Which wave it is, and since when it is complete, is in the status, and counts from when it is stored. All of
it is void for another template or another label.

A suspension attaches all nodes and begins nothing, because nothing would attach them once the feature or the release is
gone: as `spec.paused`, and drains end, too. The spec, which a GitOps tool may have written, stays; the annotation
expires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from msgspec.structs import replace

from api.ingress_daemonset import PAUSED_UNTIL, UPDATE_NOW
from api.ingress_daemonset import types as spec
from api.ingress_daemonset.status import Phase, WavesStatus
from api.ingress_daemonset.types import IngressDaemonSet, Window, time_of
from controllers.ingress_daemonset.children import applied_digest, is_current, template_digest
from controllers.ingress_daemonset.drift import Drift
from controllers.ingress_daemonset.nodes import NodeRollout
from kube.types import rfc3339
from settings.windows import closes_at, opens_at, zone_of

UNFINISHED = (Phase.OUTDATED, Phase.DETACHING, Phase.UPDATING, Phase.ATTACHING)
SHOWN = 10
"""Waves that a status names at most."""
UNLABELLED = ""
"""Stands for the last wave."""


@dataclass(frozen=True)
class Waves:
    """*groups* are the nodes by the value of the label, in their order; *stored* is the field of the status."""

    wanted: spec.Waves
    digest: str
    groups: Mapping[str, tuple[NodeRollout, ...]]
    stored: WavesStatus

    @cached_property
    def unfinished(self) -> tuple[str, ...]:
        """The waves with nodes that are to be updated, or under way.

        A NotReady node that has not begun holds up no wave: it is updated when it is Ready, or after all others.
        """
        return self._with(_is_unfinished) or self._with(lambda each: each.phase in UNFINISHED)

    def _with(self, is_one: Callable[[NodeRollout], bool]) -> tuple[str, ...]:
        return tuple(value for value, nodes in self.groups.items() if any(map(is_one, nodes)))

    @property
    def current(self) -> str | None:
        """None before it is stored."""
        return self.stored.current

    @property
    def begins(self) -> tuple[NodeRollout, ...]:
        """Those that may begin."""
        if self.current not in self.unfinished or self.stored.completed_at:
            return ()
        others = bool(self._with(_is_unfinished))
        return tuple(each for each in self.groups[self.current] if each.node.ready or not others)

    def has_come(self, rollout: NodeRollout) -> bool:
        """Whether its wave is the current one, or over."""
        value = value_of(rollout, self.wanted.by_label)
        return value == self.current or (self.current is not None and value not in self.unfinished)

    @property
    def withheld(self) -> set[NodeRollout]:
        """Those of other waves that are detached, though their pods are untouched."""
        others = (nodes for value, nodes in self.groups.items() if value != self.current)
        return {each for nodes in others for each in nodes if each.untouched}

    @property
    def pause(self) -> timedelta:
        return timedelta(seconds=self.wanted.pause.duration_seconds)

    @property
    def pause_ends_at(self) -> datetime | None:
        """None while no wave is complete before another one."""
        completed = self.stored.completed_at
        return completed + self.pause if completed and self.unfinished else None

    @property
    def number(self) -> int:
        """Of the current one, from 1."""
        ranks = {value: rank for rank, value in enumerate(self.groups, start=1)}
        return ranks.get(self.current or UNLABELLED, 1)

    def in_order(self, rollouts: Iterable[NodeRollout]) -> list[NodeRollout]:
        """The current wave first, then the others."""
        others = (each for each in self.groups if each not in self.unfinished)
        ranks = {value: rank for rank, value in enumerate((*self._ahead, *others))}
        return sorted(rollouts, key=lambda each: ranks[value_of(each, self.wanted.by_label)])

    def paused_for(self, now: datetime) -> timedelta:
        """How long the rollout has waited between waves."""
        completed = self.stored.completed_at
        running = now - completed if completed else timedelta()
        return timedelta(seconds=self.stored.paused_seconds) + running

    def still_paused(self, now: datetime) -> timedelta:
        """How long it will wait."""
        ends_at = self.pause_ends_at
        ahead = len([each for each in self._ahead if each != self.current])
        if ends_at is None:
            return ahead * self.pause
        return max(timedelta(), ends_at - now) + max(0, ahead - 1) * self.pause

    def left(self) -> list[list[NodeRollout]]:
        """Of each wave that is not over, what is to be updated, or under way."""
        waves = [[each for each in self.groups[value] if each.phase in UNFINISHED] for value in self._ahead]
        return [each for each in waves if each]

    def status(self, now: datetime) -> WavesStatus:
        """The field of the status; empty before there is something to update."""
        if not self.unfinished:
            return self.stored
        if self.current is None:
            return self._at(self.unfinished[0], WavesStatus(self.digest, self.wanted.by_label))
        if self.current in self.unfinished:
            return self._at(self.current, self.stored)
        ends_at = self.pause_ends_at or (now if not self.pause else None)
        if ends_at and ends_at <= now:
            paused = replace(self.stored, paused_seconds=round(self.paused_for(now).total_seconds()))
            return self._at(self.unfinished[0], paused)
        completed = self.stored.completed_at or now.replace(microsecond=0)
        return replace(self._at(self.current, self.stored), completed_at=completed)

    def _at(self, current: str, stored: WavesStatus) -> WavesStatus:
        following = [value for value in self.unfinished if value != current]
        return replace(stored, current=current, next=tuple(following[:SHOWN]), completed_at=None)

    def standstill(self, now: datetime) -> str | None:
        """What is waited for in a pause; None outside."""
        if self.current is None or self.pause_ends_at is None or self.pause_ends_at <= now:
            return None
        following = f"{self._name(self._ahead[0])} begins at {rfc3339(self.pause_ends_at)}"
        return f"{self._name(self.current)} is complete; {following}"

    @property
    def _ahead(self) -> list[str]:
        """The unfinished waves, the current one first."""
        return sorted(self.unfinished, key=lambda each: each != self.current)

    def _name(self, value: str) -> str:
        if value == UNLABELLED:
            return f"the wave of the nodes without {self.wanted.by_label}"
        return f"wave {value}"


def waves_of(resource: IngressDaemonSet, rollouts: Sequence[NodeRollout]) -> Waves | None:
    """None when nodes follow each other without waves, as they do back to the template that all of them had."""
    wanted = resource.spec.update_strategy.rolling_update.waves
    if wanted is None or is_current(resource):
        return None
    groups: dict[str, list[NodeRollout]] = {}
    for each in rollouts:
        groups.setdefault(value_of(each, wanted.by_label), []).append(each)
    ordered = sorted(groups, key=lambda value: (value == UNLABELLED, value))
    stored, digest = resource.stored.waves or WavesStatus(), template_digest(resource)
    if (stored.digest, stored.label) != (digest, wanted.by_label):
        stored = WavesStatus()
    return Waves(wanted, digest, {value: tuple(groups[value]) for value in ordered}, stored)


def value_of(rollout: NodeRollout, label: str) -> str:
    return rollout.node.metadata.labels.get(label, UNLABELLED)


def _is_unfinished(rollout: NodeRollout) -> bool:
    if rollout.phase is Phase.OUTDATED:
        return rollout.node.ready
    return rollout.phase in UNFINISHED


@dataclass(frozen=True)
class ClosedWindow:
    """*opens_at* is None for one that never opens."""

    window: Window
    returns: bool
    opens_at: datetime | None

    def withholds(self, rollout: NodeRollout) -> bool:
        """Whether its update may not begin. The way back to the template that all nodes had waits for no window.

        A node that was detached while it was closed, as to be drained, has not begun.
        """
        if self.returns and rollout.drift is Drift.OUTDATED:
            return False
        if rollout.untouched:
            return closes_at(self.window, rollout.marked_at) is None
        return rollout.phase is Phase.OUTDATED

    def standstill(self, rollouts: Sequence[NodeRollout]) -> str | None:
        """What is waited for; None while nodes are under way, or none is to be updated."""
        under_way = any(each.in_flight and not each.draining for each in rollouts)
        if under_way or not any(map(self.withholds, rollouts)):
            return None
        if self.opens_at:
            return f"the window opens at {rfc3339(self.opens_at)}"
        known = (
            f"its time zone {self.window.time_zone} is not known"
            if zone_of(self.window) is None
            else "see window"
        )
        return f"the window never opens: {known}"


def window_of(resource: IngressDaemonSet) -> Window | None:
    """The one in force; None where updates may begin at any time, or must not wait for this template."""
    window = resource.spec.update_strategy.rolling_update.window
    urgent = resource.metadata.annotations.get(UPDATE_NOW) if window else None
    return None if urgent and urgent == applied_digest(resource) else window


def closed_window_of(resource: IngressDaemonSet, now: datetime) -> ClosedWindow | None:
    """None while updates may begin."""
    window = window_of(resource)
    if window is None or closes_at(window, now):
        return None
    return ClosedWindow(window, is_current(resource), opens_at(window, now))


def suspended_until(resource: IngressDaemonSet, now: datetime) -> datetime | None:
    """None while it is not."""
    until = time_of(resource.metadata.annotations.get(PAUSED_UNTIL, ""))
    return until if until and until > now else None


def suspended(resource: IngressDaemonSet) -> IngressDaemonSet:
    """*resource* as it is reconciled then."""
    return replace(resource, spec=replace(resource.spec, paused=True, drain_timeout_seconds=0))
