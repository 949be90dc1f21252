"""What is known of an object is the newest of what the watch and our own answers say."""

from __future__ import annotations

from typing import Any

import msgspec

from controllers.ingress_daemonset.object_cache import Book
from controllers.ingress_daemonset.objects import Workload
from tests.fakes import FakeClock
from tests.ingress_daemonset_api import Followed


def raw(version: int, uid: str = "u-1", **parts: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", "namespace": "n", "uid": uid, "resourceVersion": str(version)}, **parts}


def answer(version: int, uid: str = "u-1") -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(raw(version, uid)))


def held(version: int, uid: str = "u-1") -> Workload:
    return msgspec.convert(raw(version, uid), Workload)


class Case:
    def __init__(self, *, whole: bool = False) -> None:
        self.followed, self.clock = Followed(), FakeClock()
        self.news: list[Workload | None] = []
        decode = msgspec.json.Decoder(Workload).decode
        self.book: Book[Workload] = Book(self.followed, decode, whole=whole, clock=self.clock)  # type: ignore[arg-type]
        self.book.listen(lambda old, new: self.news.append(new))

    @property
    def version(self) -> str:
        known = self.book.get("n/a")
        return known.metadata.resource_version if known else "gone"


def test_an_older_word_of_the_watch_is_no_news() -> None:
    case = Case()
    case.book.wrote(answer(5))
    case.followed.bring("n/a", held(4))
    case.followed.bring("n/a", held(5))
    assert (case.version, case.news) == ("5", [])

    case.followed.bring("n/a", held(6))
    assert (case.version, case.news) == ("6", [held(6)])


def test_versions_are_numbers() -> None:
    case = Case()
    case.book.wrote(answer(9))
    case.followed.bring("n/a", held(10))
    assert case.version == "10"


def test_an_etcd_that_was_restored_is_believed() -> None:
    case = Case()
    case.followed.bring("n/a", held(9))
    case.followed.bring("n/a", held(3))
    assert case.version == "3"


def test_the_end_of_a_predecessor_is_not_that_of_its_successor() -> None:
    case = Case()
    case.followed.bring("n/a", held(1))
    case.book.wrote(answer(3, "u-2"))
    case.followed.bring("n/a", None)
    assert (case.version, case.news) == ("3", [held(1)])

    case.followed.bring("n/a", held(3, "u-2"))
    case.followed.bring("n/a", None)
    assert case.version == "gone"


def test_a_late_answer_brings_nothing_back_of_a_kind_that_is_followed_whole() -> None:
    case = Case(whole=True)
    case.followed.bring("n/a", held(1))
    case.followed.bring("n/a", None)
    case.book.wrote(answer(2))
    assert case.version == "gone"


def test_what_no_watch_tells_of_is_known_as_a_stranger_with_its_time() -> None:
    case = Case()
    case.book.wrote(answer(1))
    read_at = case.clock()
    assert case.book.strangers() == {"n/a": read_at}

    case.clock.advance(9)
    case.book.looked_at("n/a")
    assert case.book.strangers() == {"n/a": read_at + 9}
    case.followed.bring("n/a", held(1))
    assert case.book.strangers() == {}

    case.book.wrote(answer(2))
    assert case.book.strangers() == {}


def test_a_stranger_that_is_gone_is_forgotten() -> None:
    case = Case()
    case.book.wrote(answer(1))
    case.book.forget("n/a")
    assert (case.version, case.book.strangers()) == ("gone", {})
