"""The program that asks a service which address it sees: bounded in time, and never wrong about what it saw."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from controllers.anycast_ip.egress_probe import (
    ANOTHER,
    NO_ANSWER,
    SEEN,
    Seen,
    ask,
    main,
    probe,
    seen_in,
)
from tests.fakes import FakeClock
from tests.misbehaving_server import Handler, answers, serving


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        pytest.param(200, b"1.2.3.4", "1.2.3.4", id="plain"),
        pytest.param(200, b"1.2.3.4\n", "1.2.3.4", id="a line"),
        pytest.param(200, b'{"origin": "1.2.3.4"}', "1.2.3.4", id="JSON"),
        pytest.param(200, b"your address is 1.2.3.4, 1.2.3.4", "1.2.3.4", id="twice the same"),
        pytest.param(200, b"2001:DB8::1", "2001:db8::1", id="IPv6"),
        pytest.param(200, b"1.2.3.4, 10.0.0.1", "", id="two addresses"),
        pytest.param(200, b"", "", id="nothing"),
        pytest.param(200, b"1.2.3.400", "", id="no address"),
        pytest.param(302, b"1.2.3.4", "", id="a redirect"),
        pytest.param(500, b"1.2.3.4", "", id="an error"),
    ],
)
def test_an_answer_counts_when_it_has_one_address(status: int, body: bytes, expected: str) -> None:
    seen = seen_in(status, body)
    assert seen.address == expected
    assert bool(seen.problem) == (not expected)


def test_it_asks_until_the_address_is_seen() -> None:
    clock, answers = FakeClock(), iter([Seen(problem="refused"), Seen("1.1.1.1"), Seen("1.2.3.4")])
    assert probe(lambda: next(answers), "1.2.3.4", 20, clock, clock.advance) == Seen("1.2.3.4")
    assert clock() == 1002


def test_it_ends_in_time_with_what_it_saw_last() -> None:
    clock = FakeClock()
    assert probe(lambda: Seen("1.1.1.1"), "1.2.3.4", 20, clock, clock.advance) == Seen("1.1.1.1")
    assert clock() <= 1020


@contextmanager
def echo(status: int = 200) -> Iterator[str]:
    """The URL of a service that answers with the address of its caller."""

    def say(handler: Handler) -> None:
        answers(handler.client_address[0].encode(), status)(handler)

    with serving(lambda _: say) as server:
        yield f"{server.url}/ip?format=text"


def test_a_service_sees_the_source(capsys: pytest.CaptureFixture[str]) -> None:
    with echo() as url:
        assert main([url, "127.0.0.1", "5"]) == SEEN
        assert main([url, "1.2.3.4", "0"]) == ANOTHER
    assert capsys.readouterr().out.splitlines() == ["seen as 127.0.0.1", "seen as 127.0.0.1"]


def test_a_redirect_is_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with echo(302) as url:
        assert main([url, "127.0.0.1", "0"]) == NO_ANSWER
    assert capsys.readouterr().out == "no answer: it answered 302\n"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_service_that_is_not_there_is_no_answer(scheme: str) -> None:
    with echo() as url:
        port = url.split(":")[2].partition("/")[0]
    assert ask(f"{scheme}://127.0.0.1:{port}/").problem


def test_a_host_that_cannot_be_looked_up_is_no_answer() -> None:
    assert ask("http://a..b/").problem.startswith("UnicodeError")
