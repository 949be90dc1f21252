"""The page: to one browser only, readable without JavaScript, and live."""

from __future__ import annotations

import io
import re
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from rich.text import Text

from cli.output import bad, title, warning
from dashboard.app import LONGEST_FORM, Guard, create_read_only_app
from dashboard.pages import INTERVAL, MOST, SHARE, Feed, Run, line_of, matching, words
from dev.fake_api import FakeAPI
from tests import cli
from tests.dashboard import BASE, NODES, PORT, ROLLOUTS, Page, mirror
from tests.ingress_daemonset_world import World
from tests.test_ingress_daemonset_rollout import begun, detaching

PATHS = ("/", "/reservations", "/addresses", "/elasticity", "/rollouts")


@pytest.fixture
def api() -> FakeAPI:
    return cli.installed(*cli.FEATURES)


@pytest.fixture
def page(api: FakeAPI) -> Page:
    return Page(cli.cluster_of(api))


@pytest.fixture
def world(api: FakeAPI) -> World:
    world = begun(updateStrategy={"rollingUpdate": detaching(limit=2)})
    mirror(world, api)
    return world


@pytest.mark.parametrize("path", [*PATHS, "/live/overview", "/static/style.css", "/explain/pod/shop/redis-0"])
def test_nothing_is_shown_without_the_token(api: FakeAPI, path: str) -> None:
    answer = Page(cli.cluster_of(api), enter=False).open(path)

    assert answer.status_code == 403
    assert "open the address that drawbridge dashboard printed" in answer.text


def test_a_wrong_token_is_refused(api: FakeAPI) -> None:
    page = Page(cli.cluster_of(api), enter=False)

    assert page.open("/?token=guessed").status_code == 403
    page.browser.set_cookie(page.guard.cookie, "guessed", domain="127.0.0.1")
    assert page.open("/").status_code == 403


def test_the_printed_address_makes_the_browser_known_to_this_page_alone(api: FakeAPI) -> None:
    page = Page(cli.cluster_of(api), enter=False)
    answer = page.open(f"/?token={page.guard.token}")

    [cookie] = answer.headers.getlist("Set-Cookie")
    assert cookie.startswith(f"drawbridge-{PORT}={page.guard.token}; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert page.guard.token not in answer.text
    assert page.guard.url == f"{BASE}/?token={page.guard.token}"
    assert page.open("/").status_code == 200


@pytest.mark.parametrize(
    "host", ["drawbridge.example", f"drawbridge.example:{PORT}", "127.0.0.1", "127.0.0.1:80"]
)
def test_a_name_other_than_localhost_is_refused(page: Page, host: str) -> None:
    assert page.open(f"/?token={page.guard.token}", Host=f"localhost:{PORT}").status_code == 200
    assert page.open("/", Host=host).status_code == 421
    assert page.open(f"/?token={page.guard.token}", Host=host).status_code == 421


@pytest.mark.parametrize("path", [*PATHS, "/unknown", "/static/live.js"])
def test_every_answer_forbids_other_sources_and_frames(page: Page, path: str) -> None:
    headers = page.open(path).headers

    policy = dict(each.strip().split(" ", 1) for each in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"


@pytest.mark.parametrize("path", PATHS)
def test_no_page_names_another_machine_or_has_code_or_style_in_it(
    page: Page, world: World, path: str
) -> None:
    text = page.text(path)

    assert not re.search(r"(?:src|href|action)=\"(?:[a-z]+:)?//", text)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script>", text)


@pytest.mark.parametrize("path", PATHS)
def test_every_page_has_landmarks_and_named_tables(page: Page, world: World, path: str) -> None:
    text = page.text(path)

    assert [text.count(each) for each in ("<main", "<nav", "<h1>", 'aria-current="page"')] == [1, 1, 1, 1]
    assert 'href="#content"' in text
    assert 'data-live="/live/' in text
    assert re.findall('accesskey="(.)"', text) == ["1", "2", "3", "4", "5"]
    assert text.count("<table>") == text.count("<caption>")
    assert not re.search(r"<th[ >](?!scope|ead)", text.replace("<thead>", ""))


def test_a_change_is_shown_at_once(page: Page, world: World) -> None:
    assert "Pause edge/web" in page.text("/rollouts")
    page.change("pause")
    assert "Resume edge/web" in page.text("/rollouts")


@pytest.mark.parametrize(
    ("origin", "form"),
    [
        (BASE, ""),
        (BASE, "guessed"),
        ("http://127.0.0.1:9999", None),
        ("https://drawbridge.example", None),
        ("null", None),
    ],
)
def test_a_form_of_another_page_changes_nothing(
    api: FakeAPI, page: Page, world: World, origin: str, form: str | None
) -> None:
    given = page.guard.form if form is None else form

    assert page.send("/rollouts/edge/web/pause", origin, form=given).status_code == 403
    assert not api.get(ROLLOUTS, "web", "edge")["spec"].get("paused")


def test_reading_writes_nothing(api: FakeAPI, page: Page, world: World) -> None:
    for path in PATHS:
        page.text(path)
    assert page.open("/rollouts/edge/web/pause").status_code == 405
    assert api.writes == []


def test_all_numbers_of_a_rollout_are_of_one_moment_and_one_meaning(
    api: FakeAPI, page: Page, world: World
) -> None:
    """A node with new pods that is still being updated is not up to date, on any page."""
    for _ in range(4):
        world.later(20)
        world.run_pods()
        world.turn()
    mirror(world, api)
    status = api.get(ROLLOUTS, "web", "edge")["status"]
    lines = page.lines("/rollouts")

    assert "2/5 nodes updated and in service" in lines
    assert "[2 of 5 nodes updated and in service]" in lines
    assert "✓ 2 up to date" in lines
    assert any("wave, 3 nodes left" in each for each in lines)
    assert (status["updatedNodes"], status["rollout"]["nodesLeft"]) == (4, 3)
    assert "3 nodes left" in page.text("/")


def test_rollouts_whose_names_differ_by_where_the_namespace_ends_have_forms_of_their_own(
    api: FakeAPI, page: Page
) -> None:
    """A button opens the first form with its id."""
    for namespace, name in (("edge-web", "proxy"), ("edge", "web-proxy")):
        api.ensure_namespace(namespace)
        api.put(ROLLOUTS, {"metadata": {"name": name, "namespace": namespace}})

    found = re.findall(r'\bid="([^"]*)"', page.text("/rollouts"))

    assert sorted(found) == sorted({*found})


@pytest.mark.parametrize("verb", ["pause", "abort", "promote"])
@pytest.mark.parametrize("part", ["template", "canary", "proven"])
def test_a_form_of_what_is_no_longer_so_changes_nothing(
    api: FakeAPI, page: Page, world: World, verb: str, part: str
) -> None:
    """The page may be minutes old: what it showed was decided on, and nothing else."""
    held = api.get(ROLLOUTS, "web", "edge")
    held["status"] |= {"canary": {"id": "a-1", "revision": "a", "nodes": 1}, "currentRevision": "b"}
    api.put(ROLLOUTS, held)
    shown = page.shown()
    match part:
        case "template":
            held["spec"]["template"]["spec"]["containers"][0]["image"] = "proxy:9"
            held["metadata"]["generation"] += 1
        case "canary":
            held["status"]["canary"]["id"] = "a-2"
        case _:
            held["status"]["currentRevision"] = "c"
    api.put(ROLLOUTS, held)
    before = api.get(ROLLOUTS, "web", "edge")

    answer = page.change(verb, shown)
    assert (answer.status_code, "was changed in the meantime" in answer.text) == (409, True)
    assert api.get(ROLLOUTS, "web", "edge") == before


@pytest.mark.parametrize(
    ("name", "kind"),
    [("style.css", "text/css"), ("live.js", "text/javascript"), ("icon.svg", "image/svg+xml")],
)
def test_a_file_is_sent_from_memory_so_that_none_stays_open_when_the_browser_is_gone(
    page: Page, name: str, kind: str
) -> None:
    answer = page.open(f"/static/{name}")

    assert (answer.status_code, answer.mimetype, answer.direct_passthrough) == (200, kind, False)
    assert answer.data


@pytest.mark.parametrize("path", ["/static/", "/static/none.css", "/static/..%2fapp.py", "/static/../app.py"])
def test_no_other_file_is_sent(page: Page, path: str) -> None:
    assert page.open(path).status_code == 404


def test_a_page_is_sent_again_only_when_it_has_changed(api: FakeAPI, page: Page, world: World) -> None:
    def phases(text: str) -> list[str]:
        return re.findall(r'<span class="hidden">: ([a-z ]+)</span>', text)

    first = page.open("/live/rollouts")
    assert "<html" not in first.text
    assert phases(first.text) == ["detached", "detached", "waiting", "waiting", "waiting"]
    assert page.open("/live/rollouts", **{"If-None-Match": first.headers["ETag"]}).status_code == 304

    world.later(10)
    world.turn()
    mirror(world, api)
    page.pages["rollouts"].feed.expire()
    again = page.open("/live/rollouts", **{"If-None-Match": first.headers["ETag"]})
    assert phases(again.text) == ["updating", "updating", "waiting", "waiting", "waiting"]


def test_one_read_serves_all_who_look_and_a_slow_one_is_seldom_repeated() -> None:
    time, reads = [0.0], [0]

    def read() -> int:
        time[0] += 3.0
        reads[0] += 1
        return reads[0]

    feed = Feed(read, clock=lambda: time[0])
    assert [feed.latest(), feed.latest()] == [1, 1]
    time[0] += SHARE * 3.0 - 0.1
    assert INTERVAL < SHARE * 3.0
    assert feed.latest() == 1
    time[0] += 0.1
    assert feed.latest() == 2
    feed.expire()
    assert feed.latest() == 3


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["redis", "kafka"]),
        ("REDIS", ["redis"]),
        ("shop E", ["redis", "kafka"]),
        ("evicted shop", ["redis"]),
        ("redis kafka", []),
    ],
)
def test_a_filter_leaves_rows_with_all_of_its_words(query: str, found: list[str]) -> None:
    rows = [("redis", {"evicted": 2}), ("kafka", Text("deleted"))]

    assert [name for name, _ in matching(rows, query, "shop")] == found


def test_a_name_of_the_api_is_shown_as_words() -> None:
    assert [words(each) for each in ("RollingOut", "Complete", "")] == ["Rolling out", "Complete", ""]


def test_every_list_is_filtered_also_without_javascript_and_live(
    api: FakeAPI, page: Page, world: World
) -> None:
    page.text("/rollouts")
    text = page.text("/rollouts?q=edge%2Fweb+detached")

    assert 'value="edge/web detached"' in text
    assert text.count('<li class="phase detached"') == 2
    assert 'class="phase waiting" title' not in text
    assert "<span>1 of 2</span>" in page.text("/?q=controllers")
    assert "None matches “&lt;b&gt;”." in page.text("/?q=<b>")
    assert "No node matches “x”" in page.text("/rollouts?q=x")
    assert "No node matches" in page.open("/live/rollouts?q=x").text


def test_a_long_list_is_cut_and_the_filter_finds_the_rest(api: FakeAPI, page: Page) -> None:
    labels = {"tke.cloud.tencent.com/need-aia-ip": "true"}
    for number in range(MOST + 5):
        metadata = {"name": f"node-{number:03}", "uid": f"u{number}", "labels": labels}
        api.put(NODES, {"metadata": metadata})

    text = page.text("/addresses")
    assert f"The first {MOST} of {MOST + 5}: the filter finds the others." in text
    assert "node-204" not in text
    assert "/explain/node/node-204" in page.text("/addresses?q=node-204")


def test_all_who_look_at_an_object_have_one_page(api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, ...]] = []
    monkeypatch.setattr("dashboard.app.explanation_of", lambda _cluster, *named: made.append(named))
    browser = create_read_only_app(cli.cluster_of(api), {"localhost"}).test_client()
    for path in ("/explain/ip/a", "/live/explain/ip/a", "/explain/ip/a"):
        assert browser.get(path).status_code == 404

    assert made == [("ip", "a")]


@pytest.mark.parametrize(
    "path", ["/explain/secret/shop/a", "/explain/pod/redis-0", "/explain/node/a/b", "/live/explain/pod/a/b/c"]
)
def test_only_objects_that_are_explained_have_a_page(page: Page, path: str) -> None:
    assert page.open(path).status_code == 404


def test_markup_in_an_explanation_is_text() -> None:
    text = title("a ") + warning("<b>") + Text(" c")

    assert line_of(text) == (Run("a ", "title"), Run("<b>", "warning"), Run(" c", "title"))
    assert line_of("") == ()
    assert line_of(bad("x")) == (Run("x", "bad"),)


class Endless(io.RawIOBase):
    """A body that never ends, and how many of its bytes were read."""

    taken = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.taken += len(buffer)
        assert self.taken < 1 << 20
        return len(buffer)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param({"CONTENT_LENGTH": str(200 << 20)}, 413, id="announced"),
        pytest.param(
            {"wsgi.input_terminated": True, "HTTP_TRANSFER_ENCODING": "chunked"}, 403, id="in chunks"
        ),
    ],
)
def test_of_a_form_that_is_too_long_nothing_is_read_or_its_beginning(
    page: Page, world: World, sent: dict[str, Any], status: int
) -> None:
    body = Endless()
    answer = page.browser.post(
        "/rollouts/edge/web/pause",
        base_url=BASE,
        headers={"Origin": BASE},
        content_type="application/x-www-form-urlencoded",
        environ_overrides={"wsgi.input": body, **sent},
    )

    assert answer.status_code == status
    assert body.taken <= (0 if status == 413 else LONGEST_FORM + io.DEFAULT_BUFFER_SIZE)


def test_who_looks_while_another_one_reads_gets_what_was_read_last() -> None:
    """Of few threads, none is left for probes while a slow API server has them all wait."""
    begun, ends, values, time = Event(), Event(), iter(["first", "second"]), [0.0]
    ends.set()

    def read() -> str:
        begun.set()
        assert ends.wait(10)
        return next(values)

    feed = Feed(read, clock=lambda: time[0])
    assert feed.latest() == "first"
    time[0] += INTERVAL
    begun.clear()
    ends.clear()
    with ThreadPoolExecutor() as threads:
        reading = threads.submit(feed.latest)
        assert begun.wait(10)
        assert threads.submit(feed.latest).result(10) == "first"
        ends.set()
        assert reading.result(10) == "second"


def test_a_browser_leaves_out_the_usual_port() -> None:
    assert Guard(80).knows_host("localhost")
    assert Guard(80, form="f").accepts_form("f", "http://127.0.0.1")
    assert not Guard(PORT).knows_host("localhost")
    assert not Guard(80).knows_host("elsewhere")
