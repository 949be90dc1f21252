"""The annotations on a Deployment and a Node while they are detached, and the marks that name their owners."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from api.health_checks import SCHEDULED
from api.ingress_daemonset import DETACHED_BY
from api.ingress_daemonset.types import Annotation
from kube.types import Value, complete

Changes = dict[str, str | None]


class Mark(Value, frozen=True):
    """Since when we detach, by the annotation *key*.

    *put* is false for an annotation that was there before and stays; *stale* is the timestamp that was there before.
    With *attached*, it is since when the node is attached, and the load balancer may not send it traffic yet. With
    *leaving*, it is since when the node does not match.
    """

    at: datetime
    key: str = ""
    put: bool = True
    stale: str = ""
    attached: bool = False
    leaving: bool = False


Holders = dict[str, Mark]
complete(Mark)


def on_deployment(annotations: Mapping[str, str]) -> Mark | None:
    try:
        return msgspec.json.decode(annotations[SCHEDULED], type=Mark) if SCHEDULED in annotations else None
    except msgspec.MsgspecError:
        return None


def on_node(annotations: Mapping[str, str]) -> Holders:
    """By the uid of the IngressDaemonSet; none if they are unreadable: then the annotation is another writer's."""
    try:
        return msgspec.json.decode(annotations.get(DETACHED_BY) or "{}", type=Holders)
    except msgspec.MsgspecError:
        return {}


def schedule(
    annotations: Mapping[str, str], wanted: Annotation | None, now: datetime, *, leaving: bool = False
) -> Changes:
    """Detach a Deployment; without *wanted* write only the mark, which health checkers ignore."""
    if wanted is None:
        return {SCHEDULED: _text(Mark(now, put=False, leaving=leaving))}
    old = on_deployment(annotations)
    put = wanted.key not in annotations or (old is not None and old.put and old.key == wanted.key)
    others = {old.key: None} if old and old.put and old.key != wanted.key else {}
    value = wanted.value if put else annotations[wanted.key]
    return {**others, wanted.key: value, SCHEDULED: _text(Mark(now, wanted.key, put, leaving=leaving))}


def unschedule(annotations: Mapping[str, str]) -> Changes:
    mark = on_deployment(annotations)
    if mark is None:
        return {}
    return dict.fromkeys((SCHEDULED, mark.key) if mark.put and mark.key in annotations else (SCHEDULED,))


def settle(annotations: Mapping[str, str], now: datetime) -> Changes:
    """Attach a Deployment, with a mark that still counts against the budget."""
    return unschedule(annotations) | {SCHEDULED: _text(Mark(now, put=False, attached=True))}


def detach(
    annotations: Mapping[str, str], uid: str, wanted: Annotation, timestamp: str, now: datetime
) -> Changes:
    """Detach a Node, which is confirmed under the key *timestamp*.

    If the node is detached already, the timestamp that is there belongs to that same detachment.
    """
    holders = on_node(annotations)
    same = [mark for mark in holders.values() if mark.key == wanted.key]
    if wanted.key not in annotations:
        mark = Mark(now, wanted.key, stale=annotations.get(timestamp, ""))
    else:
        put, stale = any(each.put for each in same), next((each.stale for each in same), "")
        mark = Mark(now, wanted.key, put, stale)
    value = annotations.get(wanted.key, wanted.value)
    return {
        **_released(holders, uid, wanted.key),
        wanted.key: value,
        DETACHED_BY: _text({**holders, uid: mark}),
    }


def attach(annotations: Mapping[str, str], uid: str) -> Changes:
    """Attach a Node; the annotation stays while another IngressDaemonSet needs it."""
    holders = on_node(annotations)
    if uid not in holders:
        return {}
    rest = {each: mark for each, mark in holders.items() if each != uid}
    return {**_released(holders, uid, ""), DETACHED_BY: _text(rest) if rest else None}


def attach_for_all(annotations: Mapping[str, str]) -> Changes:
    """Attach a Node for all IngressDaemonSets at once; annotations that others put there stay."""
    holders = on_node(annotations)
    keys = {mark.key for mark in holders.values() if mark.put}
    return dict.fromkeys((*keys, DETACHED_BY)) if holders else {}


def _released(holders: Holders, uid: str, kept: str) -> Changes:
    mine = holders.get(uid)
    if mine is None or not mine.put or mine.key == kept:
        return {}
    needed = any(mark.key == mine.key for each, mark in holders.items() if each != uid)
    return {} if needed else {mine.key: None}


def _text(value: object) -> str:
    return msgspec.json.encode(value, order="deterministic").decode()
