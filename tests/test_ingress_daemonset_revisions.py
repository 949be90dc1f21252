"""Former templates are kept as ControllerRevisions, the current one with the highest number."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from api.ingress_daemonset import REVISION_OF
from api.ingress_daemonset.types import IngressDaemonSet, resource
from controllers.ingress_daemonset.children import Change, Create, Delete, version_of
from controllers.ingress_daemonset.revisions import (
    CONTROLLER_REVISIONS,
    Revision,
    body_of,
    of,
    plan_revisions,
)
from tests.ingress_daemonset_leader import Leader, with_nodes
from tests.ingress_daemonset_world import UID, raw_resource
from tests.tables import table

IMAGES = ("proxy:1", "proxy:2", "proxy:3", "proxy:4")


def raw_with(image: str, **spec: Any) -> dict[str, Any]:
    return raw_resource({"containers": [{"name": "proxy", "image": image}]}, **spec)


def with_image(image: str, **spec: Any) -> IngressDaemonSet:
    return resource(raw_with(image, **spec))


FOREIGN = {"uid": "another", "controller": True}


def revision(image: str, number: int, *owners: dict[str, Any]) -> Revision:
    body = body_of(with_image(image), number)
    body["metadata"] |= {"uid": f"uid-{image}", "resourceVersion": "1"}
    if owners:
        body["metadata"]["ownerReferences"] = owners
    return msgspec.convert(body, Revision)


def image_of(each: Revision) -> str:
    image: str = each.template["spec"]["containers"][0]["image"]
    return image


@table(
    "held, image, limit, created, renumbered, deleted",
    {
        "the first": ([], 1, 9, 1, None, []),
        "nothing to do": ([(1, 1)], 1, 9, None, None, []),
        "a new template": ([(1, 1)], 2, 9, 2, None, []),
        "an old template again": ([(1, 1), (2, 2)], 1, 9, None, (1, 3), []),
        "the order is that of the numbers": ([(2, 7), (1, 4)], 3, 9, 8, None, []),
        "none is kept": ([(1, 1), (2, 2)], 2, 0, None, None, [1]),
        "the oldest are deleted": ([(1, 1), (2, 2), (3, 3)], 4, 1, 4, None, [1, 2]),
        "those of another owner are left alone": ([(1, 5, FOREIGN)], 1, 0, None, None, []),
    },
)
def test_the_plan(
    held: list[Any],
    image: int,
    limit: int,
    created: int | None,
    renumbered: tuple[int, int] | None,
    deleted: list[int],
) -> None:
    """An image is the one with that number."""
    known = [revision(f"proxy:{number}", *parts) for number, *parts in held]
    planned = plan_revisions(with_image(f"proxy:{image}", revisionHistoryLimit=limit), known)
    writes = [each.body["revision"] for each in planned if isinstance(each, Create)]
    changes = [
        (each.body["metadata"]["uid"], each.body["revision"]) for each in planned if isinstance(each, Change)
    ]

    assert writes == ([created] if created else [])
    assert changes == ([(f"uid-proxy:{renumbered[0]}", renumbered[1])] if renumbered else [])
    gone = [each.uid for each in planned if isinstance(each, Delete)]
    assert gone == [f"uid-proxy:{each}" for each in deleted]


def test_of_an_object_that_is_deleted_nothing_is_written() -> None:
    raw = raw_with("proxy:2")
    raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert plan_revisions(resource(raw), [revision("proxy:1", 1)]) == []


def test_names_are_valid_labels_and_distinct_for_long_names() -> None:
    names = set()
    for image in IMAGES:
        raw = raw_with(image)
        raw["metadata"]["name"] = "w" * 63
        body = body_of(resource(raw))
        names.add(body["metadata"]["name"])
        assert len(body["metadata"]["labels"][REVISION_OF]) <= 63

    assert len(names) == len(IMAGES)
    assert all(len(name) <= 63 for name in names)


def kept(here: Leader) -> list[tuple[int, str]]:
    held = [msgspec.convert(each, Revision) for each in here.api.fake.list(CONTROLLER_REVISIONS)]
    return [(each.revision, image_of(each)) for each in of(UID, held)]


def looks(here: Leader, fault: str = "", faulty: str = "") -> None:
    """While *faulty* calls for revisions meet a *fault*."""
    with here.fault(lambda verb, kind, _: fault if (verb, kind) == (faulty, "ControllerRevision") else ""):
        here.looks(5)


def test_each_template_is_recorded_once_and_an_old_one_becomes_the_latest() -> None:
    here = Leader(with_nodes())
    for image in ("proxy:1", "proxy:2", "proxy:1"):
        here.retemplate(image)
        looks(here)

    assert kept(here) == [(2, "proxy:2"), (3, "proxy:1")]


@pytest.mark.parametrize(("fault", "faulty"), [("timed out", "delete"), ("lost", "create")])
def test_what_a_leader_that_is_killed_has_not_done_or_not_heard_of_is_found_by_the_next(
    fault: str, faulty: str
) -> None:
    here = Leader(with_nodes(revisionHistoryLimit=0))
    looks(here)
    here.retemplate("proxy:2")
    looks(here, fault, faulty)
    other = Leader(here.api, before=here)
    here.api.deliver()
    looks(other)

    assert kept(here) == [(2, "proxy:2")]


@pytest.mark.parametrize("labels", [{}, {REVISION_OF: "web"}])
def test_an_object_of_another_that_has_the_name_is_not_taken_over(labels: dict[str, str]) -> None:
    body = body_of(with_image("proxy:1"))
    body["metadata"] |= {"ownerReferences": [], "labels": labels}
    api = with_nodes()
    api.put("ControllerRevision", body)
    api.deliver()
    here = Leader(api)
    assert here.looks(600) <= 100

    assert kept(here) == []
    assert not [each for each in api.writes if "ControllerRevision" in each]


def test_the_last_template_that_all_nodes_had_is_kept_whatever_the_limit() -> None:
    """An abort returns to it, also one of several templates in a row."""
    raw = raw_with("proxy:4", revisionHistoryLimit=1)
    raw["status"] = {"currentRevision": version_of(with_image("proxy:1")).revision}
    held = [revision(image, number) for number, image in enumerate(IMAGES, start=1)]

    assert [each.target.name for each in plan_revisions(resource(raw), held)] == [held[1].metadata.name]
