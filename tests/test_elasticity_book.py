"""The newest that is known of a pod counts, and around the pods of a former leader there is a fence."""

from __future__ import annotations

import pytest

from controllers.elasticity.pod_cache import Book
from controllers.elasticity.pods import Pod, decode
from kube.errors import Forbidden, KubeError, Unreachable
from tests.elasticity_world import HOME, World, raw_of, raw_pod


def pod(version: int, *, bound: bool = False) -> Pod:
    raw = raw_pod("web-1", gated=not bound, spec={"nodeName": HOME} if bound else {})
    raw["metadata"]["resourceVersion"] = str(version)
    return decode(raw_of(raw))


def test_an_event_from_before_our_own_write_changes_nothing() -> None:
    book = Book()
    book.observe(None, pod(9))
    book.wrote(pod(11, bound=True))

    assert not book.observe(pod(9), pod(10))
    assert [each.version for each in book.having(f"node {HOME}")] == [11]
    assert not book.having("gated")


def test_an_answer_from_before_what_was_heard_changes_nothing() -> None:
    book = Book()
    book.observe(None, pod(12, bound=True))
    book.wrote(pod(11))

    assert [each.version for each in book.all()] == [12]


def test_an_answer_about_a_pod_that_is_gone_does_not_bring_it_back() -> None:
    book = Book()
    book.observe(None, pod(9))
    book.observe(pod(9), None)
    book.wrote(pod(10))

    assert not book.all()


def test_after_an_etcd_was_restored_what_it_says_counts() -> None:
    book = Book()
    book.observe(None, pod(99, bound=True))
    book.observe(pod(99, bound=True), pod(7))

    assert [each.version for each in book.having("gated")] == [7]


def test_what_a_kubelet_reports_is_no_news() -> None:
    book = Book()
    assert book.observe(None, pod(1))
    assert book.observe(pod(1), pod(2, bound=True))
    assert not book.observe(pod(2, bound=True), pod(3, bound=True))
    assert book.take_changed() == {"uid-web-1"}
    assert book.take_changed() == set()


@pytest.mark.parametrize(
    ("errors", "calls"),
    [
        pytest.param([Unreachable("reset"), Unreachable("reset")], 3, id="that failed is tried again"),
        pytest.param([Forbidden(403, "Forbidden", "a policy")], 1, id="that is refused is let be"),
    ],
)
def test_a_fence(errors: list[KubeError], calls: int) -> None:
    world = World()
    world.create(1)
    made = []

    def before() -> None:
        made.append("call")
        if errors:
            raise errors.pop(0)

    world.take_over(before)
    assert len(made) == calls
    world.leader.settle()

    assert world.placements() == {"local": 1}


def test_a_pod_that_changes_while_it_is_fenced_is_fenced_as_it_is_then() -> None:
    world = World()
    (name,) = world.create(1)
    left = [{"metadata": {"labels": {"x": "1"}}}]
    world.take_over(lambda: world.cluster.edit(name, left.pop()) if left else None)

    assert world.annotations(name)["drawbridge.io/accountant"] == "somebody"
