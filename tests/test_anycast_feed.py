"""The allow-list over HTTP: the newest one from each replica, or none rather than a wrong one."""

from __future__ import annotations

import http.client
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import pytest

from api.anycast_ip import ALLOW_LIST_LABEL, IN_USE, JSON, TEXT, Entry, data_of
from controllers.anycast_ip.feed import PAUSE, Feed, Unavailable, matches, representations, serve
from dev.fake_api import FakeAPI
from dev.lab.waiting import until
from kube.errors import Unreachable
from kube.resources import CONFIG_MAPS
from kube.store import Store
from kube.types import ConfigMap
from settings import Settings
from telemetry.server import Request, Response
from tests.anycast_world import metric
from tests.factories import NOW
from tests.fakes import FakeClock
from tests.sockets import free_ports

NAME = "anycast-ips"


def settings_of(**changed: Any) -> Settings:
    (port,) = free_ports(1)
    http = {"enabled": True, "bindAddress": f"127.0.0.1:{port}"}
    given = {
        "enabled": True,
        "clusterID": "cls-abc",
        "allowList": {"enabled": True, "configMap": NAME, "http": http},
    }
    return Settings.model_validate({"anycastIP": given | changed})


def data(*addresses: str) -> dict[str, str]:
    found = (Entry(address=each, id=f"eip-{each}", node="n1", state=IN_USE, since=NOW) for each in addresses)
    return data_of(tuple(found))


ONE, TWO = data("9.0.0.1"), data("9.0.0.1", "2402:4e00::1")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", False),
        ('"a"', True),
        ('"b"', False),
        ('"b", "a"', True),
        ('W/"a"', True),
        ("*", True),
        ("a", False),
    ],
)
def test_which_list_the_client_has(header: str, expected: bool) -> None:
    assert matches(header, '"a"') is expected


def test_plain_text_has_a_cidr_on_each_line_and_json_is_that_of_the_config_map() -> None:
    assert representations(TWO[JSON], TWO[TEXT]) == (b"9.0.0.1/32\n2402:4e00::1/128\n", TWO[JSON].encode())


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        pytest.param({JSON: "", TEXT: ""}, "truncated", id="emptied"),
        pytest.param({JSON: "[]"}, "differs", id="one of both emptied"),
        pytest.param({TEXT: "6.6.6.6\n"}, "differs", id="one of both changed"),
        pytest.param({JSON: "{}"}, "Expected `array`", id="no list"),
        pytest.param({JSON: '[{"x":' + "[" * 2000}, "recursion", id="nested too deeply"),
        pytest.param(data("0.0.0.0/0"), "does not appear to be an IPv4", id="no address"),
    ],
)
def test_a_config_map_that_another_client_has_changed_is_not_answered(
    changed: dict[str, str], why: str
) -> None:
    found = ONE | changed

    with pytest.raises(Unavailable, match=why):
        representations(found[JSON], found[TEXT])


class World:
    """A ConfigMap, and the replicas that serve it."""

    def __init__(self, replicas: int = 1) -> None:
        self.api = FakeAPI()
        self.api.ensure_namespace("drawbridge")
        self.clock = FakeClock()
        self.client = self.api.client()
        read = partial(Store(self.client, "drawbridge", ConfigMap).read, NAME)
        self.feeds = [Feed(read, self.clock, self.clock.advance) for _ in range(replicas)]

    def write(self, data: dict[str, str]) -> None:
        metadata = {"name": NAME, "namespace": "drawbridge", "labels": {ALLOW_LIST_LABEL: "anycast-ip"}}
        self.api.put(CONFIG_MAPS, {"metadata": metadata, "data": data})

    def ask(self, replica: int = 0, path: str = "/cidrs.txt", **headers: str) -> Response:
        self.clock.advance(0.001)
        given = {name.replace("_", "-"): each for name, each in headers.items()}
        return self.feeds[replica].respond(Request(path, headers=given))


def requests(result: str) -> float:
    return metric("allow_list_requests_total", result=result)


def test_before_it_was_written_there_is_no_list_rather_than_an_empty_one() -> None:
    world, before = World(), requests("unavailable")
    answer = world.ask()

    assert answer.status == 503
    assert b"have not written it yet" in answer.body
    assert b"keep the one that you have" in answer.body
    assert answer.headers["Retry-After"] == "10"
    assert requests("unavailable") == before + 1
    world.write(data())
    assert world.ask()[:2] == (200, b""), "when the leader wrote it so"


def test_a_client_that_has_the_list_gets_no_body() -> None:
    world, before = World(replicas=2), requests("unchanged")
    world.write(ONE)
    etag = world.ask().headers["ETag"]
    answer = world.ask(1, if_none_match=etag)
    assert (answer.status, answer.body, answer.headers["ETag"]) == (304, b"", etag)
    assert requests("unchanged") == before + 1
    assert world.ask(1, "/addresses.json", if_none_match=etag).status == 200
    world.write(TWO)
    assert world.ask(1, if_none_match=etag).status == 200


@pytest.mark.parametrize("then", ["the API server is away", "the ConfigMap is deleted", "it is changed"])
def test_what_was_read_once_is_no_answer_later(then: str) -> None:
    world = World()
    world.write(ONE)
    assert world.ask().status == 200
    if then == "the ConfigMap is deleted":
        world.client.delete(CONFIG_MAPS, NAME, "drawbridge")
    elif then == "it is changed":
        world.write(ONE | {TEXT: ""})
    else:
        world.api.fault = fail

    assert world.ask().status == 503
    world.api.fault = lambda call: None
    world.write(ONE)
    assert world.ask().status == 200


def fail(_call: object) -> None:
    raise Unreachable("connection refused")


def test_another_path_is_not_found_and_costs_no_read() -> None:
    world = World()

    assert world.ask(path="/metrics").status == 404
    assert world.api.calls == []


def test_however_many_ask_one_after_the_other_the_api_server_is_asked_twenty_times_a_second() -> None:
    world = World()
    world.write(ONE)
    began, asked = world.clock(), len(world.api.calls)
    for _ in range(50):
        world.ask()

    passed = world.clock() - began
    assert len(world.api.calls) - asked <= passed / PAUSE + 1


def test_those_who_wait_for_a_read_share_the_next_one() -> None:
    begun, go, reads = threading.Semaphore(0), threading.Event(), []
    found = ConfigMap(data=ONE)

    def read() -> ConfigMap:
        reads.append(found)
        begun.release()
        assert go.wait(30)
        return reads[-1]

    ticks, asked = itertools.count(), set[int]()

    def clock() -> float:
        asked.add(threading.get_ident())
        return float(next(ticks))

    feed = Feed(read, clock, lambda seconds: None)
    answers: list[Response] = []

    def ask() -> None:
        answers.append(feed.respond(Request("/cidrs.txt")))

    first = threading.Thread(target=ask)
    first.start()
    assert begun.acquire(timeout=30)
    waiting = [threading.Thread(target=ask) for _ in range(3)]
    for each in waiting:
        each.start()
    until(lambda: len(asked) == 4, what="all to have asked")
    found = ConfigMap(data=TWO)
    go.set()
    for each in (first, *waiting):
        each.join(30)

    assert sorted(len(each.body.splitlines()) for each in answers) == [1, 2, 2, 2]
    assert len(reads) == 2


@contextmanager
def served(world: World, settings: Callable[[], Settings] = settings_of) -> Iterator[int]:
    """The port of a replica."""
    server = serve(world.client, settings)
    assert server
    with closing(server):
        yield server.server_address[1]


def sent(
    port: int, method: str, path: str = "/cidrs.txt", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request(
            method, path, headers={key.replace("_", "-"): each for key, each in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


def test_each_replica_serves_it_over_http() -> None:
    world = World()
    with served(world) as port:
        assert sent(port, "GET")[0] == 503
        world.write(ONE)
        status, headers, body = sent(port, "GET")
        assert (status, body) == (200, b"9.0.0.1/32\n")
        assert headers["Cache-Control"] == "no-cache"
        head = sent(port, "HEAD")
        assert (head[0], head[1]["ETag"], head[1]["Content-Length"], head[2]) == (
            200,
            headers["ETag"],
            "11",
            b"",
        )
        status, unchanged, body = sent(port, "GET", If_None_Match=headers["ETag"])
        assert (status, unchanged["ETag"], body) == (304, headers["ETag"], b"")
        assert "Content-Length" not in unchanged
        assert sent(port, "GET", "/addresses.json")[2].decode() == ONE[JSON]
        assert sent(port, "POST")[0] == 405


def test_a_config_map_of_another_owner_is_not_served() -> None:
    world = World()
    theirs = {"metadata": {"name": NAME, "namespace": "drawbridge"}, "data": ONE | {"password": "secret"}}
    world.api.put(CONFIG_MAPS, theirs)
    with served(world) as port:
        status, _, body = sent(port, "GET")

    assert status == 503
    assert b"has no label" in body
    assert b"secret" not in body


def test_it_listens_only_when_it_is_on() -> None:
    off = settings_of(allowList={"enabled": True, "configMap": NAME})
    without_a_list = settings_of(allowList={"http": {"enabled": True}})

    assert serve(World().client, lambda: off) is None
    assert serve(World().client, lambda: without_a_list) is None


def test_a_list_that_is_switched_off_is_served_no_more() -> None:
    world, settings = World(), settings_of()
    world.write(ONE)
    with served(world, lambda: settings) as port:
        settings = settings_of(allowList={"enabled": False, "configMap": NAME})

        assert sent(port, "GET")[0] == 503
