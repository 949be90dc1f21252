"""The copy is never older than our own writes, and ends where the API server is."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kube.informer import Informer, identity_of
from kube.types import Pod

Change = tuple[tuple[str, int] | None, tuple[str, int] | None]
"""(old, new) as a handler gets them, each as (uid, version)."""


class Source:
    """A ListWatch that the test moves on by hand."""

    kind, stopped = "pods", False

    def attach(self, sink: object) -> None:
        pass


def raw(uid: str, version: int, name: str = "a") -> msgspec.Raw:
    metadata = {"name": name, "namespace": "shop", "uid": uid, "resourceVersion": str(version)}
    return msgspec.Raw(msgspec.json.encode({"metadata": metadata}))


def brief(pod: Pod | None) -> tuple[str, int] | None:
    return (pod.metadata.uid, int(pod.metadata.resource_version)) if pod else None


class Copy:
    """An informer of one name and what its handler has seen."""

    def __init__(self, *listed: msgspec.Raw, version: int = 10) -> None:
        source: Any = Source()
        self.informer = Informer(source, msgspec.json.Decoder(Pod).decode)
        self.seen: list[Change] = []
        self.informer.on_change(lambda old, new: self.seen.append((brief(old), brief(new))))
        self.list(*listed, version=version)

    def list(self, *items: msgspec.Raw, version: int) -> None:
        self.informer.begin()
        for item in items:
            self.informer.add(identity_of(item), item)
        self.informer.end(version)

    def apply(self, verb: str, item: msgspec.Raw) -> None:
        self.informer.apply(verb, identity_of(item), item)

    def wrote(self, uid: str, version: int) -> tuple[str, int] | None:
        return brief(self.informer.wrote(raw(uid, version)))

    @property
    def held(self) -> tuple[str, int] | None:
        return brief(self.informer.get("shop/a"))


def test_an_answer_is_in_the_copy_at_once_and_no_handler_is_called_for_it() -> None:
    copy = Copy(raw("u", 5))
    assert copy.wrote("u", 11) == copy.held == ("u", 11)
    copy.apply("MODIFIED", raw("u", 11))
    copy.apply("MODIFIED", raw("u", 12))
    assert copy.held == ("u", 12)
    assert copy.seen == [(None, ("u", 5)), (("u", 11), ("u", 12))]


def test_the_deletion_of_a_predecessor_is_reported_and_leaves_the_object_that_was_created_since() -> None:
    copy = Copy(raw("old", 5))
    copy.wrote("new", 12)
    copy.apply("DELETED", raw("old", 11))
    copy.apply("ADDED", raw("new", 12))
    assert copy.held == ("new", 12)
    assert copy.seen == [(None, ("old", 5)), (("old", 11), None)]


def test_a_list_of_a_restored_etcd_wins_over_what_was_written_before_it() -> None:
    copy = Copy(raw("u", 90), version=100)
    copy.wrote("u", 101)
    copy.list(raw("u", 50), version=60)
    assert copy.held == ("u", 50)
    assert copy.wrote("u", 61) == ("u", 61)
    copy.apply("MODIFIED", raw("u", 62))
    assert copy.held == ("u", 62)


def test_answers_of_a_server_whose_versions_are_opaque_are_dropped() -> None:
    copy = Copy(version=0)
    opaque = msgspec.Raw(
        b'{"metadata": {"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "x1"}}'
    )
    assert copy.informer.wrote(opaque) is None


def test_a_late_handler_is_called_for_what_was_written() -> None:
    copy, late = Copy(), []
    copy.wrote("u", 11)
    copy.informer.on_change(lambda old, new: late.append((brief(old), brief(new))))
    assert late == [(None, ("u", 11))]


def test_an_object_that_changes_is_there_all_the_while() -> None:
    copy, seen = Copy(raw("u", 5)), list[object]()
    copy.informer.add_index("reads meanwhile", lambda pod: [str(seen.append(copy.held))])
    copy.apply("MODIFIED", raw("u", 11))
    assert seen
    assert None not in seen


NAMES = ("a", "b")


class World(RuleBasedStateMachine):
    """An API server, a watch that lags, LISTs that take their time, and answers that are late."""

    def __init__(self) -> None:
        super().__init__()
        self.version, self.uids = 10, 0
        self.now: dict[str, tuple[str, int]] = {}
        self.history: dict[str, list[tuple[int, tuple[str, int] | None]]] = {
            name: [(0, None)] for name in NAMES
        }
        self.events: list[tuple[str, str, str, int]] = []
        self.delivered = 0
        self.listing: tuple[int, int, dict[str, tuple[str, int]]] | None = None
        self.answers: list[tuple[str, str, int]] = []
        self.at_least = dict.fromkeys(NAMES, 10)
        self.copy = Copy()

    def write(self, name: str, state: str | None) -> int:
        self.version += 1
        before = self.now.get(name)
        if state is None:
            assert before
            del self.now[name]
            self.events.append(("DELETED", name, before[0], self.version))
        else:
            self.now[name] = (state, self.version)
            self.events.append(("MODIFIED" if before else "ADDED", name, state, self.version))
        self.history[name].append((self.version, self.now.get(name)))
        return self.version

    def put(self, name: str) -> tuple[str, str, int]:
        if name not in self.now:
            self.uids += 1
        uid = self.now[name][0] if name in self.now else f"u{self.uids}"
        return name, uid, self.write(name, uid)

    @rule(name=st.sampled_from(NAMES))
    def another_writes(self, name: str) -> None:
        self.put(name)

    @rule(name=st.sampled_from(NAMES))
    def another_deletes(self, name: str) -> None:
        if name in self.now:
            self.write(name, None)

    @rule(name=st.sampled_from(NAMES))
    def we_write(self, name: str) -> None:
        self.answers.append(self.put(name))

    @rule(name=st.sampled_from(NAMES))
    def we_learn_that_it_is_gone(self, name: str) -> None:
        if name in self.now:
            uid, _ = self.now[name]
            self.write(name, None)
            self.copy.informer.forget(f"shop/{name}", uid)

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def an_answer_arrives(self, data: st.DataObject) -> None:
        name, uid, version = self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1)))
        self.copy.informer.wrote(raw(uid, version, name))
        self.at_least[name] = max(self.at_least[name], version)

    @precondition(lambda self: self.listing is None and self.delivered < len(self.events))
    @rule()
    def the_watch_delivers(self) -> None:
        verb, name, uid, version = self.events[self.delivered]
        self.delivered += 1
        self.copy.apply(verb, raw(uid, version, name))
        self.at_least[name] = max(self.at_least[name], version)

    @precondition(lambda self: self.listing is None)
    @rule()
    def a_list_begins(self) -> None:
        self.copy.informer.begin()
        self.listing = (self.version, len(self.events), dict(self.now))

    @precondition(lambda self: self.listing is not None)
    @rule()
    def a_list_ends(self) -> None:
        assert self.listing
        version, self.delivered, found = self.listing
        for name, (uid, changed) in found.items():
            item = raw(uid, changed, name)
            self.copy.informer.add(identity_of(item), item)
        self.copy.informer.end(version)
        self.listing = None
        self.at_least = {name: max(at, version) for name, at in self.at_least.items()}

    @invariant()
    def the_copy_is_no_older_than_what_was_taken_in(self) -> None:
        for name, at in self.at_least.items():
            states = self.history[name]
            last = max(version for version, _ in states if version <= at)
            possible = [state for version, state in states if version >= last]
            assert brief(self.copy.informer.get(f"shop/{name}")) in possible

    def teardown(self) -> None:
        if self.listing:
            self.a_list_ends()
        while self.delivered < len(self.events):
            self.the_watch_delivers()
        for name in NAMES:
            assert brief(self.copy.informer.get(f"shop/{name}")) == self.now.get(name)
        assert self.copy.informer._gone == {}


World.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
test_any_order_of_answers_events_and_lists = World.TestCase
