"""Former templates are kept as ControllerRevisions, the current one with the highest number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from api.ingress_daemonset import INGRESS_DAEMONSETS, REVISION_OF
from api.ingress_daemonset.types import IngressDaemonSet, resource
from controllers.ingress_daemonset.children import version_of
from controllers.ingress_daemonset.revisions import (
    CONTROLLER_REVISIONS,
    Revision,
    RevisionReconciler,
    of,
    plan_revisions,
)
from dev.fake_api import FakeAPI, Reply, Request
from kube.errors import AlreadyExists
from kube.resources import Selection
from tests.fakes import FakeRecorder
from tests.ingress_daemonset_world import UID, raw_resource
from tests.managed import context_of

IMAGES = ("proxy:1", "proxy:2", "proxy:3", "proxy:4")
KEY = "edge/web"


def raw_with(image: str, **spec: Any) -> dict[str, Any]:
    return raw_resource({"containers": [{"name": "proxy", "image": image}]}, **spec)


def with_image(image: str, **spec: Any) -> IngressDaemonSet:
    return resource(raw_with(image, **spec))


FOREIGN = {"uid": "another", "controller": True}


def revision(image: str, number: int, *owners: dict[str, Any]) -> Revision:
    body = plan_revisions(with_image(image), ()).create
    assert body
    body["metadata"] |= {"uid": f"uid-{image}", "resourceVersion": "1"}
    if owners:
        body["metadata"]["ownerReferences"] = owners
    return msgspec.convert(body | {"revision": number}, Revision)


def image_of(each: Revision) -> str:
    image: str = each.template["spec"]["containers"][0]["image"]
    return image


@pytest.mark.parametrize(
    ("held", "image", "spec", "created", "renumbered", "deleted"),
    [
        ([], "proxy:1", {}, 1, None, []),
        ([("proxy:1", 1)], "proxy:1", {}, None, None, []),
        ([("proxy:1", 1)], "proxy:2", {}, 2, None, []),
        ([("proxy:1", 1), ("proxy:2", 2)], "proxy:1", {}, None, ("proxy:1", 3), []),
        ([("proxy:2", 7), ("proxy:1", 4)], "proxy:3", {}, 8, None, []),
        ([("proxy:1", 1), ("proxy:2", 2)], "proxy:2", {"revisionHistoryLimit": 0}, None, None, ["proxy:1"]),
        (
            [("proxy:1", 1), ("proxy:2", 2), ("proxy:3", 3)],
            "proxy:4",
            {"revisionHistoryLimit": 1},
            4,
            None,
            ["proxy:1", "proxy:2"],
        ),
        ([("proxy:1", 5, FOREIGN)], "proxy:1", {"revisionHistoryLimit": 0}, 1, None, []),
    ],
    ids=[
        "the first",
        "nothing to do",
        "a new template",
        "an old template again",
        "the order is that of the numbers",
        "none is kept",
        "the oldest are deleted",
        "those of another owner are left alone",
    ],
)
def test_the_plan(
    held: list[Any],
    image: str,
    spec: dict[str, int],
    created: int | None,
    renumbered: tuple[str, int] | None,
    deleted: list[str],
) -> None:
    planned = plan_revisions(with_image(image, **spec), [revision(*each) for each in held])

    assert (planned.create["revision"] if planned.create else None) == created
    assert ((image_of(planned.renumber), planned.number) if planned.renumber else None) == renumbered
    assert [image_of(each) for each in planned.surplus] == deleted


def test_of_an_object_that_is_deleted_nothing_is_written() -> None:
    raw = raw_with("proxy:2")
    raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    planned = plan_revisions(resource(raw), [revision("proxy:1", 1)])

    assert (planned.create, planned.renumber, planned.surplus) == (None, None, ())


def test_names_are_valid_labels_and_distinct_for_long_names() -> None:
    names = set()
    for image in IMAGES:
        raw = raw_with(image)
        raw["metadata"]["name"] = "w" * 63
        body = plan_revisions(resource(raw), ()).create
        assert body
        names.add(body["metadata"]["name"])
        assert len(body["metadata"]["labels"][REVISION_OF]) <= 63

    assert len(names) == len(IMAGES)
    assert all(len(name) <= 63 for name in names)


@contextmanager
def leader(api: FakeAPI) -> Iterator[RevisionReconciler]:
    context = context_of(api.client(), FakeRecorder())
    revisions = context.informers.of(CONTROLLER_REVISIONS, Revision, Selection(label_selector=REVISION_OF))
    try:
        assert context.wait_synced(revisions)
        yield RevisionReconciler(context, revisions, lambda _: _read(api))
    finally:
        context.informers.stop()


def _read(api: FakeAPI) -> IngressDaemonSet | None:
    found = api.list(INGRESS_DAEMONSETS)
    return resource(found[0]) if found else None


def kept(api: FakeAPI) -> list[tuple[int, str]]:
    held = [msgspec.convert(each, Revision) for each in api.list(CONTROLLER_REVISIONS)]
    return [(each.revision, image_of(each)) for each in of(UID, held)]


def test_each_template_is_recorded_once_and_an_old_one_becomes_the_latest() -> None:
    api = FakeAPI()
    with leader(api) as reconciler:
        for image in ("proxy:1", "proxy:2", "proxy:1"):
            api.put(INGRESS_DAEMONSETS, raw_with(image))
            for _ in range(2):
                reconciler.reconcile(KEY)

        assert kept(api) == [(2, "proxy:2"), (3, "proxy:1")]


def test_a_leader_that_is_killed_between_two_writes_leaves_the_rest_to_the_next() -> None:
    api = FakeAPI()
    with leader(api) as reconciler:
        for image in ("proxy:1", "proxy:2"):
            api.put(INGRESS_DAEMONSETS, raw_with(image))
            reconciler.reconcile(KEY)
        api.put(INGRESS_DAEMONSETS, raw_with("proxy:3", revisionHistoryLimit=0))
        api.fault = lambda call: _broken(call) if call.method == "DELETE" else None
        with pytest.raises(Exception, match="broken"):
            reconciler.reconcile(KEY)
        api.fault = lambda call: None

    with leader(api) as successor:
        successor.reconcile(KEY)

    assert kept(api) == [(3, "proxy:3")]


def test_a_write_whose_answer_is_lost_is_found_by_the_next_reconcile() -> None:
    api = FakeAPI()
    api.put(INGRESS_DAEMONSETS, raw_with("proxy:1"))
    with leader(api) as reconciler:
        api.after = lambda call, _reply: _broken(call) if call.method == "POST" else None
        with pytest.raises(Exception, match="broken"):
            reconciler.reconcile(KEY)
        api.after = lambda _call, _reply: None

    with leader(api) as successor:
        successor.reconcile(KEY)

    assert kept(api) == [(1, "proxy:1")]


def test_an_object_of_another_that_has_the_name_is_not_taken_over() -> None:
    api = FakeAPI()
    body = plan_revisions(with_image("proxy:1"), ()).create
    assert body
    body["metadata"] |= {"ownerReferences": [], "labels": {}}
    api.put(CONTROLLER_REVISIONS, body)
    api.put(INGRESS_DAEMONSETS, raw_with("proxy:1"))
    with leader(api) as reconciler, pytest.raises(AlreadyExists):
        reconciler.reconcile(KEY)

    assert kept(api) == []


def _broken(_call: Request) -> Reply:
    raise ConnectionResetError("broken")


def test_the_last_template_that_all_nodes_had_is_kept_whatever_the_limit() -> None:
    """An abort returns to it, also one of several templates in a row."""
    raw = raw_with("proxy:4", revisionHistoryLimit=1)
    raw["status"] = {"currentRevision": version_of(with_image("proxy:1")).revision}
    held = [revision(image, number) for number, image in enumerate(IMAGES, start=1)]

    assert [image_of(each) for each in plan_revisions(resource(raw), held).surplus] == ["proxy:2"]
