"""Violations of a promise are found in a history, and none in one in which all is as promised."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from lab.history import Observation
from tests.cluster.ingress_daemonset_history import SeenDeployment, SeenNode, SeenPod, SeenReplicaSet, Thing
from tests.cluster.ingress_daemonset_promise import (
    DETACHED_BY,
    SCHEDULED,
    TO_BE_UPDATED,
    Annotated,
    Promise,
    violations,
)

BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DETACHED, CONFIRMED = "lb.example.com/detached", "lb.example.com/since"
SPAN = 10
PROMISE = Promise("edge", "web", "n", 1, deployment=Annotated(grace=SPAN))
BY_NODE = replace(PROMISE, node=Annotated(DETACHED, SPAN))
AWAITED = replace(BY_NODE, timestamp=Annotated(CONFIRMED, SPAN))
DEGRADED = replace(PROMISE, detaches=False, deployment=None)
ON_NODE = {DETACHED: "", DETACHED_BY: json.dumps({"uid-web": {"key": DETACHED}})}
ON_DEPLOYMENT = {TO_BE_UPDATED: "", SCHEDULED: "{}"}


class Story:
    """A history, history one object at a time; what a step leaves out is as it was before."""

    def __init__(self) -> None:
        self.history: list[Observation] = []
        self.now = BEGIN
        self._held: dict[str, dict[str, Any]] = {}

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def node(
        self, name: str = "n1", annotations: dict[str, str] | None = None, *, gone: bool = False
    ) -> None:
        self._record(SeenNode, name, {"metadata": _given(annotations=annotations)}, gone=gone)

    def deployment(
        self,
        node: str = "n1",
        annotations: dict[str, str] | None = None,
        *,
        image: str = "",
        complete: bool | None = None,
        gone: bool = False,
        **parts: Any,
    ) -> None:
        owner = {"kind": "IngressDaemonSet", "name": "web", "uid": "uid-web", "controller": True}
        metadata = _given(annotations=annotations, ownerReferences=[owner], namespace="edge")
        template = {"spec": {"nodeName": node, "containers": [{"image": image}]}} if image else None
        ready = None if complete is None else 2 if complete else 0
        status = _given(replicas=2, updatedReplicas=ready, availableReplicas=ready)
        change = {
            "metadata": metadata | parts,
            "spec": _given(replicas=2, template=template),
            "status": status,
        }
        self._record(SeenDeployment, f"web-{node}", change, gone=gone)

    def replica_set(self, version: int, node: str = "n1") -> None:
        self._record(SeenReplicaSet, f"web-{node}-{version}", {"metadata": _owned(f"web-{node}")})

    def pods(self, version: int, node: str = "n1", *, ready: bool = True, gone: bool = False) -> None:
        for number in (1, 2):
            self.pod(version, number, node, ready=ready, gone=gone)

    def pod(
        self, version: int, number: int, node: str = "n1", *, ready: bool = True, gone: bool = False
    ) -> None:
        conditions = [{"type": "Ready", "status": str(ready)}]
        self._record(
            SeenPod,
            f"web-{node}-{version}-{number}",
            {
                "metadata": _owned(f"web-{node}-{version}"),
                "spec": {"nodeName": node},
                "status": {"conditions": conditions},
            },
            gone=gone,
        )

    def fill(self, *nodes: str) -> None:
        """These nodes have all of their pods."""
        for name in nodes or ("n1",):
            self.node(name, {})
            self.deployment(name, {}, image="proxy:1", complete=False)
            self.replica_set(1, name)
            self.pods(1, name)
            self.deployment(name, complete=True)

    def update(self, node: str = "n1") -> None:
        """The template is written, and its pods come instead of the others."""
        self.deployment(node, image="proxy:2", complete=False)
        self.replica_set(2, node)
        self.pods(1, node, gone=True)
        self.pods(2, node)
        self.deployment(node, complete=True)

    def detach(self, node: str = "n1") -> None:
        self.deployment(node, ON_DEPLOYMENT)
        self.node(node, ON_NODE)

    def attach(self, node: str = "n1") -> None:
        self.deployment(node, {})
        self.node(node, {})

    def _record(self, kind: type[Thing], name: str, change: dict[str, Any], *, gone: bool = False) -> None:
        held = self._held.setdefault(name, {"metadata": {"name": name, "uid": name}})
        for part, fields in change.items():
            held[part] = held.get(part, {}) | fields
        revision = str(len(self.history) + 1)
        held["metadata"] |= {"resourceVersion": revision, "managedFields": [{"time": self.now.isoformat()}]}
        self.history.append(Observation(msgspec.convert(held, kind), gone, self.now))
        if gone:
            del self._held[name]


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _owned(owner: str) -> dict[str, Any]:
    return {"ownerReferences": [{"uid": owner, "controller": True}], "namespace": "edge"}


def rollout(story: Story) -> None:
    """As it should be."""
    story.fill()
    story.detach()
    story.later(SPAN)
    story.update()
    story.attach()


def rollout_that_is_confirmed(story: Story) -> None:
    """The confirmation stays: another writer has written it."""
    story.fill()
    story.detach()
    word = {CONFIRMED: story.now.isoformat()}
    story.node(annotations=ON_NODE | word)
    story.later(SPAN)
    story.update()
    story.deployment(annotations={})
    story.node(annotations=word)


def a_second_node_is_detached(story: Story) -> None:
    story.fill("n1", "n2")
    story.deployment("n1", ON_DEPLOYMENT)
    story.deployment("n2", ON_DEPLOYMENT)


def the_template_comes_with_the_annotation(story: Story) -> None:
    story.fill()
    story.deployment(annotations=ON_DEPLOYMENT, image="proxy:2", complete=False)


def the_template_comes_before_the_grace_is_over(story: Story) -> None:
    story.fill()
    story.detach()
    story.later(SPAN - 3)
    story.update()
    story.attach()


def the_confirmation_is_an_old_one(story: Story) -> None:
    story.fill()
    old = {CONFIRMED: BEGIN.isoformat()}
    story.node(annotations=old)
    story.deployment(annotations=ON_DEPLOYMENT)
    story.node(annotations={**ON_NODE, **old})
    story.later(100)
    story.update()


def a_pod_is_lost_too_early(story: Story) -> None:
    story.fill()
    story.pod(1, 1, gone=True)


def it_is_attached_too_early(story: Story) -> None:
    story.fill()
    story.detach()
    story.later(SPAN)
    story.deployment(image="proxy:2", complete=False)
    story.replica_set(2)
    story.pods(1, gone=True)
    story.pods(2, ready=False)
    story.attach()


def annotations_are_left(story: Story) -> None:
    story.fill()
    story.detach()


def anothers_annotation_is_removed(story: Story) -> None:
    story.fill()
    story.node(annotations={"team": "edge", DETACHED: "by hand"})
    story.node(annotations={"team": "edge", **ON_NODE, DETACHED: "by hand"})
    story.node(annotations={})


def two_nodes_are_short_of_pods(story: Story) -> None:
    story.fill("n1", "n2")
    story.pod(1, 1, "n1", gone=True)
    story.pod(1, 1, "n2", ready=False)


Tale = Callable[[Story], None]


WRONG: list[tuple[Tale, Promise, str]] = [
    (a_second_node_is_detached, PROMISE, "2 nodes were off, not 1: ['n1', 'n2']"),
    (the_template_comes_with_the_annotation, PROMISE, f"its Deployment had no {TO_BE_UPDATED}"),
    (the_template_comes_before_the_grace_is_over, PROMISE, f"7 s after {TO_BE_UPDATED}, not 10 s"),
    (the_confirmation_is_an_old_one, AWAITED, "while its detachment was not confirmed"),
    (a_pod_is_lost_too_early, PROMISE, "n1 lost pod web-n1-1-1 while its Deployment was not annotated"),
    (it_is_attached_too_early, BY_NODE, "n1 was attached with 0 of 2 pods"),
    (annotations_are_left, BY_NODE, "in the end n1 still has"),
    (anothers_annotation_is_removed, BY_NODE, f"{DETACHED} was taken off n1"),
    (two_nodes_are_short_of_pods, DEGRADED, "2 nodes were degraded, not 1: ['n1', 'n2']"),
]


@pytest.mark.parametrize(("tale", "promise", "expected"), WRONG, ids=[each[0].__name__ for each in WRONG])
def test_what_is_done_wrong_is_named(tale: Tale, promise: Promise, expected: str) -> None:
    story = Story()
    tale(story)
    assert expected in "\n".join(violations(story.history, promise))


@pytest.mark.parametrize(("tale", "promise"), [(rollout, BY_NODE), (rollout_that_is_confirmed, AWAITED)])
def test_what_is_done_right_is_accepted(tale: Tale, promise: Promise) -> None:
    story = Story()
    tale(story)
    assert violations(story.history, promise) == []
