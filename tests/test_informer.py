"""The copy follows the API server through everything a server and a network can do."""

from __future__ import annotations

import itertools
import json
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from dev.lab.informing import informer_of
from dev.lab.waiting import stretch, until
from kube.errors import Backoff
from kube.informer import Indexer, Informer
from kube.resources import PODS, Selection
from kube.types import ObjectMeta, Pod, PodSpec
from tests.factories import BEYOND_ALL_TIMES
from tests.metrics import sample
from tests.misbehaving_server import (
    Answer,
    Asked,
    Server,
    answers,
    ends,
    hangs,
    in_turn,
    lists_and_watches,
    refuses,
    resets,
    serving,
    streams,
)

SILENT = streams([])
SOON = Backoff(base=0.01, cap=0.02)


def raw(name: str, version: int = 1, *, uid: str = "", node: object = "n") -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": "shop",
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
    }
    return {"metadata": metadata, "spec": {"nodeName": node}}


def listed(*pods: dict[str, Any], version: object = 10) -> Answer:
    return answers({"metadata": {"resourceVersion": str(version)}, "items": list(pods)})


def event(type: str, pod: dict[str, Any]) -> dict[str, Any]:  # noqa: A002
    return {"type": type, "object": pod}


def bookmark(version: int) -> dict[str, Any]:
    return event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}})


def error(code: int, reason: str) -> dict[str, Any]:
    return {"type": "ERROR", "object": {"kind": "Status", "code": code, "reason": reason, "message": reason}}


class Changes:
    """The changes that a handler received, as (verb, name, resourceVersion)."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str, str]] = []

    def __call__(self, old: Pod | None, new: Pod | None) -> None:
        verb = "came" if old is None else "gone" if new is None else "changed"
        seen = new or old
        assert seen is not None
        self.changes.append((verb, seen.metadata.name, seen.metadata.resource_version))


@contextmanager
def following(server: Server, **options: Any) -> Iterator[tuple[Informer[Pod], Changes]]:
    informer = informer_of(server.client(), PODS, Pod, **{"pauses": SOON, "read_timeout": 5.0} | options)
    story = Changes()
    informer.on_change(story)
    informer.source.start()
    try:
        yield informer, story
    finally:
        informer.stop()


@contextmanager
def informing(
    lists: Answer | list[Answer], *watches: Answer, **options: Any
) -> Iterator[tuple[Server, Informer[Pod], Changes]]:
    listing = in_turn(*lists) if isinstance(lists, list) else in_turn(lists)
    with (
        serving(lists_and_watches(listing, in_turn(*watches))) as server,
        following(server, **options) as (informer, story),
    ):
        yield server, informer, story


def counted(name: str, **labels: str) -> float:
    return sample(f"drawbridge_informer_{name}", kind="pods", **labels)


def test_the_copy_is_the_list_and_then_follows_the_watch() -> None:
    watch = streams(
        [event("ADDED", raw("b", 11)), event("MODIFIED", raw("a", 12)), event("DELETED", raw("b", 13))]
    )
    with informing(listed(raw("a")), watch) as (server, informer, story):
        until(lambda: len(story.changes) == 4)
        assert story.changes == [
            ("came", "a", "1"),
            ("came", "b", "11"),
            ("changed", "a", "12"),
            ("gone", "b", "13"),
        ]
        assert [pod.metadata.resource_version for pod in informer.list()] == ["12"]
        assert (informer.get("shop/a"), informer.get("shop/b")) == (informer.list()[0], None)
    asked = server.watches[0].query
    assert (asked["resourceVersion"], asked["allowWatchBookmarks"]) == ("10", "true")
    assert 300 <= int(asked["timeoutSeconds"]) <= 600
    assert server.lists[0].query["limit"] == "500"


def test_its_version_rises_with_events_and_bookmarks_once_the_handlers_have_run() -> None:
    at_change: list[int] = []
    watches = [
        streams([event("ADDED", raw("a", 11)), bookmark(15), error(410, "Expired")]),
        streams([bookmark(21)]),
    ]
    lists = [listed(), listed(raw("a", 11), version=20)]
    with serving(lists_and_watches(in_turn(*lists), in_turn(*watches))) as server:
        informer = informer_of(server.client(), PODS, Pod, pauses=SOON)
        informer.on_change(lambda old, new: at_change.append(informer.version))
        informer.source.start()
        until(lambda: informer.version == 21)
        assert informer.lists == 2
        informer.stop()
    assert at_change == [10]


def test_only_what_is_selected_is_asked_for() -> None:
    with informing(listed(), SILENT, selection=Selection("shop", "a=b", "c=d")) as (server, _, _):
        until(lambda: server.watches)
    for asked in server.asked:
        assert asked.path == "/api/v1/namespaces/shop/pods"
        assert (asked.query["labelSelector"], asked.query["fieldSelector"]) == ("a=b", "c=d")


def test_it_is_synced_once_the_list_is_in_the_copy_and_not_before() -> None:
    with informing([refuses(500, "InternalError"), listed(raw("a"))], SILENT) as (_, informer, story):
        assert informer.wait_synced(60)
        assert counted("synced") == 1.0
        assert story.changes == [("came", "a", "1")]
        assert time.time() - counted("last_event_timestamp_seconds") < 5
    with informing(hangs, SILENT) as (server, informer, _):
        until(lambda: server.asked)
        assert not informer.wait_synced(0)
        assert counted("synced") == 0.0


def test_repeated_events_reach_handlers_once() -> None:
    once = [event("ADDED", raw("b", 11)), event("DELETED", raw("a", 12))]
    watch = streams([*once, *once, event("ADDED", raw("c", 13))])
    with informing(listed(raw("a")), watch) as (_, _, story):
        until(lambda: ("came", "c", "13") in story.changes)
        assert story.changes == [
            ("came", "a", "1"),
            ("came", "b", "11"),
            ("gone", "a", "12"),
            ("came", "c", "13"),
        ]


@pytest.mark.parametrize(
    "interruption",
    [
        pytest.param(resets, id="reset"),
        pytest.param(ends, id="end"),
        pytest.param(streams([b'{"type": "ADD'], ends), id="line cut short"),
        pytest.param(lambda handler: handler.wfile.write(b"zz\r\n"), id="bad chunk"),
    ],
)
def test_an_interrupted_watch_goes_on_where_it_was(interruption: Answer) -> None:
    first = streams([event("ADDED", raw("b", 11)), bookmark(20)], interruption)
    with informing(listed(), first, streams([event("ADDED", raw("c", 21))])) as (server, _, story):
        until(lambda: len(story.changes) == 2)
        assert [asked.query["resourceVersion"] for asked in server.watches] == ["10", "20"]
        assert len(server.lists) == 1


EXPIRED = [
    pytest.param(refuses(410, "Expired"), id="as status"),
    pytest.param(streams([error(410, "Expired")], ends), id="as event"),
]


@pytest.mark.parametrize("expired", EXPIRED)
def test_a_forgotten_version_leads_to_a_new_list(expired: Answer) -> None:
    before = counted("relists_total", reason="expired")
    lists = [
        listed(raw("same"), raw("changes"), raw("goes"), raw("swapped", uid="old")),
        listed(raw("same"), raw("changes", 2), raw("comes"), raw("swapped", 7, uid="new"), version=30),
    ]
    with informing(lists, expired, SILENT) as (server, informer, story):
        until(lambda: len(server.watches) == 2)
        assert sorted(story.changes[4:]) == [
            ("came", "comes", "1"),
            ("came", "swapped", "7"),
            ("changed", "changes", "2"),
            ("gone", "goes", "1"),
            ("gone", "swapped", "1"),
        ]
        assert server.watches[1].query["resourceVersion"] == "30"
        assert len(informer.list()) == 4
    assert counted("relists_total", reason="expired") == before + 1


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(streams([error(500, "InternalError")], ends), id="error event"),
        pytest.param(streams([b"not json\n"], ends), id="bad JSON"),
        pytest.param(refuses(403, "Forbidden"), id="refused"),
        pytest.param(streams([], ends), id="ends at once"),
        pytest.param(resets, id="reset"),
    ],
)
def test_a_failing_watch_is_paused_longer_each_time_and_its_version_given_up_in_the_end(
    failure: Answer,
) -> None:
    pauses = Backoff(base=0.02, cap=0.08)
    with informing(listed(), *[failure] * 5, SILENT, pauses=pauses) as (server, _, _):
        until(lambda: len(server.watches) == 6)
        times = [asked.at for asked in server.watches]
    gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert all(gap >= pause for gap, pause in zip(gaps, [0.02, 0.04, 0.08, 0.08, 0.08], strict=True))
    assert len(server.lists) == 2


def test_a_watch_that_the_server_ends_soon_after_an_event_is_opened_again_without_a_pause() -> None:
    pauses = Backoff(base=1000.0, cap=1000.0)
    watches = [streams([event("ADDED", raw("b", version))], ends) for version in (11, 12, 13)]
    with capture_logs() as logs, informing(listed(), *watches, SILENT, pauses=pauses) as (server, _, _):
        until(lambda: len(server.watches) == 4)
        assert [asked.query["resourceVersion"] for asked in server.watches] == ["10", "11", "12", "13"]
    assert {each["log_level"] for each in logs} == {"debug"}


def test_where_no_bookmarks_are_sent_a_silent_watch_is_opened_again_without_pause_list_or_warning() -> None:
    slower = stretch()
    options = {"pauses": Backoff(base=10 * slower, cap=10 * slower), "read_timeout": 0.1 * slower}
    with capture_logs() as logs, informing(listed(), SILENT, **options) as (server, informer, _):
        until(lambda: len(server.watches) == 8, 10 * slower)
        assert informer.silence < 0.5 * slower
        assert len(server.lists) == 1
    assert {each["log_level"] for each in logs} == {"debug"}


def test_where_bookmarks_are_due_silent_watches_cast_doubt_on_their_version() -> None:
    pauses = Backoff(base=0.05, cap=0.2)
    first = streams([bookmark(11)], resets)
    with informing(listed(), first, SILENT, pauses=pauses, read_timeout=0.1) as (server, _, _):
        until(lambda: len(server.lists) == 2)
        assert [asked.watches for asked in server.asked[:5]] == [False, True, True, True, False]


def test_a_server_that_never_answers_a_watch_is_retried_with_pauses_and_counts_as_silent() -> None:
    pauses = Backoff(base=0.2, cap=0.2)
    with informing(listed(), hangs, pauses=pauses, read_timeout=0.1) as (server, informer, _):
        until(lambda: len(server.watches) == 3)
        assert informer.silence >= 0.5
    gaps = [later.at - sooner.at for sooner, later in itertools.pairwise(server.watches)]
    assert min(gaps) >= 0.25  # arrivals at the server: each comes a little late


def test_a_list_is_decoded_page_by_page_and_what_cannot_be_decoded_is_left_out_and_counted() -> None:
    """It is never held as it came."""
    size, count = 1 << 20, 24
    decoded_before: list[float] = []

    def page(asked: Asked) -> Answer:
        number = int(asked.query.get("continue", "0"))
        decoded_before.append(counted("undecodable_objects_total"))
        pod = raw(f"pod-{number}") | {"ignored": "x" * size}
        more = str(number + 1) if number + 1 < count else ""
        metadata = {"resourceVersion": "10", "continue": more}
        return answers({"metadata": metadata, "items": [pod, raw("bad", node=7)]})

    tracemalloc.start()
    try:
        with serving(lists_and_watches(page, in_turn(SILENT))) as server, following(server) as (informer, _):
            assert informer.wait_synced(60)
            assert len(informer.list()) == count
        assert tracemalloc.get_traced_memory()[1] < count / 2 * size
    finally:
        tracemalloc.stop()
    assert [each - decoded_before[0] for each in decoded_before] == list(range(count))


def test_a_list_whose_pages_expire_is_read_at_once_and_holds_nothing_of_the_pages() -> None:
    def answer(asked: Asked) -> Answer:
        if "continue" in asked.query:
            return refuses(410, "Expired")
        metadata = {"resourceVersion": "10", "continue": "1"}
        first = answers({"metadata": metadata, "items": [raw("a"), raw("gone-since")]})
        return first if "limit" in asked.query else listed(raw("a"), raw("b"), version=12)

    with (
        serving(lists_and_watches(answer, in_turn(SILENT))) as server,
        following(server, pauses=Backoff(base=30, cap=30)) as (informer, _),
    ):
        until(lambda: server.watches)
        assert [pod.metadata.name for pod in informer.list()] == ["a", "b"]
        assert server.watches[0].query["resourceVersion"] == "12"


DEEP = b'"fieldsV1":%s{}%s' % (b'{"f:a":' * 9_000, b"}" * 9_000)


def test_an_object_however_deep_hides_no_other() -> None:
    lists = {"metadata": {"resourceVersion": "10"}, "items": [raw("deep"), raw("a")]}
    deep = json.dumps(lists).encode().replace(b'"deep"', b'"deep", ' + DEEP)
    added = json.dumps(event("ADDED", raw("b", 11))).encode().replace(b'"b"', b'"b", ' + DEEP, 1) + b"\n"
    with informing(answers(deep), streams([added, event("ADDED", raw("c", 12))])) as (_, informer, story):
        until(lambda: len(story.changes) == 4)
        assert sorted(pod.metadata.name for pod in informer.list()) == ["a", "b", "c", "deep"]


def test_an_object_with_times_beyond_all_years_is_known() -> None:
    early = {"status": {"conditions": BEYOND_ALL_TIMES}}
    added = event("ADDED", raw("b", 11) | early)
    with informing(listed(raw("a") | early), streams([added])) as (_, informer, story):
        until(lambda: len(story.changes) == 2)
        assert sorted(pod.metadata.name for pod in informer.list()) == ["a", "b"]
        assert [len(pod.status.conditions) for pod in informer.list()] == [3, 3]


def test_an_event_that_cannot_be_decoded_is_passed_over_and_the_version_moves_on() -> None:
    events = [event("ADDED", raw("bad", 11, node=7)), event("ADDED", {"metadata": 7}), event("ADDED", None)]  # type: ignore[arg-type]
    with informing(listed(), streams(events, resets), streams([event("ADDED", raw("b", 12))])) as (
        server,
        _,
        story,
    ):
        until(lambda: story.changes == [("came", "b", "12")])
        assert [asked.query["resourceVersion"] for asked in server.watches] == ["10", "11"]


def test_an_object_that_becomes_undecodable_keeps_its_last_state_until_it_is_deleted() -> None:
    lists = [listed(raw("a")), listed(raw("a", 20, node=7), version=30)]
    deleted = streams([event("ADDED", raw("b", 31)), event("DELETED", raw("a", 32, node=7))])
    with informing(lists, refuses(410, "Expired"), deleted) as (_, informer, story):
        until(lambda: len(story.changes) == 3)
        assert story.changes == [("came", "a", "1"), ("came", "b", "31"), ("gone", "a", "1")]
        assert informer.get("shop/a") is None


def test_stop_interrupts_a_hanging_watch() -> None:
    watch = streams([event("ADDED", raw("a", 11))], hangs)
    with informing(listed(), watch, read_timeout=30.0) as (_, informer, _):
        until(lambda: informer.get("shop/a"))
        began = time.monotonic()
        informer.stop()
        assert time.monotonic() - began < 0.5 * stretch()


def test_indexes_follow_the_objects() -> None:
    watch = streams(
        [
            event("MODIFIED", raw("a", 11, node="m")),
            event("DELETED", raw("b", 12)),
            event("ADDED", raw("c", 13)),
        ]
    )
    with informing(listed(raw("a"), raw("b")), watch) as (_, informer, story):
        informer.add_index("node", lambda pod: [pod.spec.node_name])
        until(lambda: ("came", "c", "13") in story.changes)
        assert [pod.metadata.name for pod in informer.by_index("node", "m")] == ["a"]
        assert [pod.metadata.name for pod in informer.by_index("node", "n")] == ["c"]
        assert informer.by_index("node", "nowhere") == []


def on_node(name: str, node: str) -> Pod:
    return Pod(ObjectMeta(name=name), PodSpec(node_name=node))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "m", "n"]))))
def test_an_index_has_what_there_is(changes: list[tuple[str, str]]) -> None:
    indexer, there = Indexer[Pod](), dict[str, str]()
    indexer.add_index("node", lambda pod: [pod.spec.node_name])
    for name, node in changes:
        indexer.store(name, on_node(name, node) if node else None)
        there[name] = node
        for each in ("m", "n"):
            found = sorted(pod.metadata.name for pod in indexer.by_index("node", each))
            assert found == sorted(name for name, node in there.items() if node == each)
            others = [ObjectMeta(name="a"), ObjectMeta(name="b", uid="of another one")]
            assert indexer.count("node", each, others) == len([name for name in found if name != "a"])


def test_an_index_of_lone_objects_is_small() -> None:
    """A leader has several, of 150,000 pods."""
    indexer = Indexer[Pod]()
    indexer.replace({str(number): on_node(str(number), f"node-{number}") for number in range(1000)})
    tracemalloc.start()
    indexer.add_index("node", lambda pod: [pod.spec.node_name])
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken / 1000 < 200


@pytest.mark.parametrize(
    ("failures", "expected"),
    [(1, 0.8), (2, 1.6), (6, 25.6), (7, 30.0), (5000, 30.0)],
)
def test_pauses_double_up_to_their_cap(failures: int, expected: float) -> None:
    assert Backoff(base=0.8, cap=30.0).delay(failures) == pytest.approx(expected)
    assert expected <= Backoff(base=0.8, cap=30.0, jitter=1.0).delay(failures) <= 2 * expected
