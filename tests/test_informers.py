"""Informers of one kind share one LIST and WATCH, and each gets every object once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from controllers.informers import Informers
from dev.lab.waiting import until
from kube.informer import RUNNING, Informer
from kube.resources import PODS
from kube.types import ObjectMeta, Pod, Value
from tests.misbehaving_server import Answer, Server, in_turn, lists_and_watches, serving, streams
from tests.test_informer import counted, event, listed, raw


class Name(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


A = listed(raw("a"), version=11)


def added(name: str, version: int) -> dict[str, Any]:
    return event("ADDED", raw(name, version))


@contextmanager
def sharing(
    lists: Answer | tuple[Answer, ...], *watches: Answer, gather: float = 0.0
) -> Iterator[tuple[Server, Informers]]:
    lists = lists if isinstance(lists, tuple) else (lists,)
    with serving(lists_and_watches(in_turn(*lists), in_turn(*watches))) as server:
        informers = Informers(server.client(), gather)
        try:
            yield server, informers
        finally:
            informers.stop()


def follow(informer: Informer[Any]) -> list[str]:
    """The names for which a handler was called."""
    seen: list[str] = []
    informer.on_change(lambda old, new: seen.append((new or old).metadata.name))
    return seen


def relists(reason: str) -> float:
    return counted("relists_total", reason=reason)


def test_informers_that_are_made_together_share_one_list_and_decode_for_themselves() -> None:
    before = relists("start"), relists("attached")
    with sharing(A, streams([added("b", 11)]), gather=0.1) as (server, informers):
        pods, names = informers.of(PODS, Pod), informers.of(PODS, Name)
        seen = follow(pods), follow(names)
        until(lambda: seen == (["a", "b"], ["a", "b"]))
        assert isinstance(pods.get("shop/a"), Pod)
        assert isinstance(names.get("shop/a"), Name)
    assert (len(server.lists), len(server.watches)) == (1, 1)
    assert (relists("start"), relists("attached")) == (before[0] + 1, before[1])


def test_a_late_informer_gets_a_list_and_no_handler_of_the_others_is_called_again() -> None:
    lists = A, listed(raw("a"), raw("b", 11), version=11)
    with sharing(lists, streams([added("b", 11)]), streams([added("c", 12)])) as (server, informers):
        first = follow(informers.of(PODS, Pod))
        until(lambda: first == ["a", "b"])
        second = follow(informers.of(PODS, Name))
        until(lambda: second == ["a", "b", "c"] and first == ["a", "b", "c"])
    assert (len(server.lists), len(server.watches)) == (2, 2)


def test_an_informer_that_is_made_during_a_list_gets_one_to_itself() -> None:
    answer, asked = threading.Event(), threading.Event()

    def slow(handler: Any) -> None:
        asked.set()
        answer.wait(5)
        A(handler)

    with sharing(slow, streams([])) as (server, informers):
        informers.of(PODS, Pod)
        asked.wait(5)
        late = informers.of(PODS, Name)
        answer.set()
        assert late.wait_synced(60)
        assert late.get("shop/a")
        assert len(server.lists) == 2


def test_the_last_informer_that_is_released_stops_the_watch_and_a_later_one_starts_another() -> None:
    with sharing(A, streams([])) as (_, informers):
        one, other = informers.of(PODS, Pod), informers.of(PODS, Pod)
        assert one.wait_synced(60)
        assert other.wait_synced(60)
        informers.release(one)
        assert other.source in RUNNING.list()
        informers.release(other)
        assert other.source.stopped
        assert other.source not in RUNNING.list()
        again = informers.of(PODS, Pod)
        assert again.wait_synced(60)
        informers.release(one)  # a second time: no harm
        assert not again.source.stopped


def test_no_handler_of_a_released_informer_is_called() -> None:
    more = threading.Event()

    def watch(handler: Any) -> None:
        more.wait(5)
        streams([added("b", 12)])(handler)

    with sharing(A, watch, gather=0.1) as (_, informers):
        released, other = informers.of(PODS, Pod), informers.of(PODS, Pod)
        seen, still = follow(released), follow(other)
        until(lambda: seen == ["a"] == still)
        informers.release(released)
        more.set()
        until(lambda: still == ["a", "b"])
        assert seen == ["a"]


def test_a_decoder_that_fails_leaves_the_others_alone() -> None:
    def broken(_item: msgspec.Raw) -> Pod:
        raise ValueError("a bug")

    with sharing(A, streams([added("b", 11)])) as (_, informers):
        failing, other = informers.of(PODS, Pod, decode=broken), informers.of(PODS, Pod)
        seen = follow(other)
        until(lambda: seen == ["a", "b"])
        assert failing.wait_synced(0)
        assert failing.list() == []
