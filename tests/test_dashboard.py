"""The page: to one browser only, readable without JavaScript, and live."""

from __future__ import annotations

import copy
import io
import re
from datetime import timedelta
from functools import partial
from html import escape, unescape
from threading import Event
from typing import Any

import pytest
from jinja2 import DictLoader
from rich.text import Text

from calico.segment import LEVEL, MANAGED_BY, MANAGER, body
from cli.output import bad, title, warning
from controllers.ingress_daemonset.desired import revision_of, revision_of_template
from controllers.ingress_daemonset.revisions import CONTROLLER_REVISIONS, plan_revisions
from dashboard.app import LONGEST_FORM, create_app, fragment
from dashboard.explanations import Run, line_of
from dashboard.feed import INTERVAL, SHARE, Feed
from dashboard.guard import Guard
from dashboard.pages import Page as Served
from dashboard.streams import Streams
from dev.fake_api import FakeAPI, refusal
from tests import cli
from tests.calico_pools import BLOCKS, KINDS, POOLS, block, pool
from tests.dashboard import BASE, PORT, ROLLOUTS, Page, mirror
from tests.factories import NOW, raw_pod, record
from tests.ingress_daemonset_world import World, raw_resource
from tests.test_ingress_daemonset_rollout import begun, detaching
from webhook.ingress_daemonset import PROMOTE
from webhook.ingress_daemonset.types import resource

FEATURES = ("anycastIP", "elasticity", "ingressDaemonSet")
PATHS = ("/", "/reservations", "/addresses", "/elasticity", "/rollouts")
NEED = {"tke.cloud.tencent.com/need-aia-ip": "true"}
TAINT = {"key": "tke.cloud.tencent.com/no-aia-ip", "value": "true", "effect": "NoSchedule"}


@pytest.fixture
def api() -> FakeAPI:
    return cli.installed(*FEATURES)


@pytest.fixture
def page(api: FakeAPI) -> Page:
    return Page(api)


@pytest.fixture
def world(api: FakeAPI) -> World:
    world = begun(updateStrategy={"rollingUpdate": detaching(limit=2)})
    mirror(world, api)
    return world


@pytest.mark.parametrize("path", [*PATHS, "/live/overview", "/static/style.css"])
def test_nothing_is_shown_without_the_token(api: FakeAPI, path: str) -> None:
    answer = Page(api, enter=False).open(path)

    assert answer.status_code == 403
    assert "open the address that drawbridge dashboard printed" in answer.text


def test_a_wrong_token_is_refused(api: FakeAPI) -> None:
    page = Page(api, enter=False)

    assert page.open("/?token=guessed").status_code == 403
    page.browser.set_cookie(page.guard.cookie, "guessed", domain="127.0.0.1")
    assert page.open("/").status_code == 403


def test_the_printed_address_makes_the_browser_known_to_this_page_alone(api: FakeAPI) -> None:
    page = Page(api, enter=False)
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
def test_another_name_of_this_machine_is_refused(page: Page, host: str) -> None:
    assert page.open("/", Host=host).status_code == 421
    assert page.open(f"/?token={page.guard.token}", Host=host).status_code == 421


def test_localhost_is_the_same_machine(api: FakeAPI) -> None:
    page = Page(api, enter=False)

    assert page.open(f"/?token={page.guard.token}", Host=f"localhost:{PORT}").status_code == 200


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
    assert re.findall('accesskey="(.)"', text) == ["1", "2", "3", "4", "5"]
    assert text.count("<table>") == text.count("<caption>")
    assert not re.search(r"<th[ >](?!scope|ead)", text.replace("<thead>", ""))


def test_the_overview_shows_problems_first(api: FakeAPI, page: Page) -> None:
    assert "Nothing is wrong" in page.text("/")

    api.edit(cli.DEPLOYMENTS, "drawbridge-webhook", {"status": {"readyReplicas": 1}}, "drawbridge")
    text = Page(api).text("/")
    assert "1 problem" in text
    assert "1 of 3 webhook pods are ready" in text
    assert text.index("What needs attention") < text.index("Features") < text.index("Programs")


def test_the_overview_says_which_features_are_off() -> None:
    assert Page(cli.installed()).text("/").count("</span> off</span>") == 3


def test_what_the_user_may_not_read_is_named_with_the_way_out(api: FakeAPI, page: Page) -> None:
    message = 'nodes is forbidden: User "u" cannot list resource "nodes" in API group "" at the cluster scope'
    api.fault = lambda call: refusal(403, "Forbidden", message) if call.path == "/api/v1/nodes" else None

    assert "have an administrator allow you to list nodes in the whole cluster" in page.text("/addresses")
    assert "nodes: not readable by you" in page.text("/")


def test_a_cluster_without_drawbridge_says_so() -> None:
    assert "Drawbridge is not installed in this cluster" in Page(FakeAPI()).text("/")


def test_reserved_ips_are_shown_by_workload_with_their_releases(api: FakeAPI, page: Page) -> None:
    records = [
        record(
            "10.0.0.1/32",
            uid="a",
            owner="StatefulSet/redis",
            reason="evicted",
            ended=NOW - timedelta(minutes=30),
        ),
        record("10.0.0.2/32", uid="b", owner="StatefulSet/redis", reason="deleted", ended=NOW),
        record("10.0.0.3/32", uid="c", owner="StatefulSet/kafka", reason="deleted"),
    ]
    raw = body(records)
    raw["metadata"] |= {"name": "segment", "labels": {MANAGED_BY: MANAGER, LEVEL: "0"}}
    api.put(cli.resource("IPReservation"), raw)

    text = page.text("/reservations")
    assert "<strong>3</strong> reserved; <strong>2</strong> of at most" in text
    assert re.search(
        r"StatefulSet/redis</th><td class=\"number\">2</td><td class=\"number\">0</td><td>1 (evicted|deleted)",
        text,
    )
    assert text.index(">10.0.0.1</a></code>") < text.index(">10.0.0.2</a></code>")
    assert ">10.0.0.3<" not in text
    assert text.count('<rect class="part" x="0"') == 12


def test_pools_are_shown_with_what_is_assigned_reserved_and_free() -> None:
    api = cli.installed(kinds=KINDS)
    api.put(POOLS, pool("10.0.0.0/28"))
    api.put(BLOCKS, block("10.0.0.0/30", "10.0.0.1"))
    raw = body([record("10.0.0.2/32", uid="a")])
    raw["metadata"] |= {"name": "segment", "labels": {MANAGED_BY: MANAGER, LEVEL: "0"}}
    api.put(cli.resource("IPReservation"), raw)

    text = Page(api).text("/reservations")

    assert 'aria-label="1 assigned, 1 reserved, 14 free"' in text


def test_pools_that_cannot_be_read_are_no_trouble(page: Page) -> None:
    text = page.text("/reservations")

    assert "Calico's pools are not known: neither of" in unescape(text)
    assert "<caption>By workload</caption>" in text


def test_nodes_are_shown_by_state_with_their_address(api: FakeAPI, page: Page) -> None:
    proof = {
        "drawbridge.io/anycast-ip-bound": "a/eip-1",
        "tke.cloud.tencent.com/anycast-ip-address": "1.2.3.4",
    }
    proof["tke.cloud.tencent.com/anycast-ip-id"] = "eip-1"
    proof["drawbridge.io/anycast-ip-history"] = (
        '[{"at":"2026-01-02T03:04:05Z","to":"open","address":"eip-1"}]'
    )
    nodes = cli.resource("Node")
    opened = {"name": "open", "uid": "a", "labels": NEED, "creationTimestamp": "2026-01-02T03:03:55Z"}
    api.put(nodes, {"metadata": opened | {"annotations": proof}})
    api.put(nodes, {"metadata": {"name": "new", "uid": "b", "labels": NEED}, "spec": {"taints": [TAINT]}})

    text = page.text("/addresses")
    assert "1 open" in text
    assert "1 tainted" in text
    assert "open</a></th><td><code>1.2.3.4</code>" in text
    assert 'open <time datetime="2026-01-02T03:04:05+00:00"' in text
    assert "<td>10s</td>" in text
    assert "Nodes opened in 10s, the slowest in 10s" in text
    assert "Waits since" in text


def test_workloads_are_shown_with_why_each_pod_is_where_it_is(api: FakeAPI, page: Page) -> None:
    labels = {"node.kubernetes.io/instance-type": "eklet"}
    api.put(cli.resource("Node"), {"metadata": {"name": "super", "labels": labels}})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "w", "controller": True}
    for name, node, reason in (
        ("a", "node-1", "1 of 1 local replicas"),
        ("b", "super", "local replicas are <full>"),
    ):
        annotations = {"drawbridge.io/placement": "local", "drawbridge.io/placement-reason": reason}
        metadata = {"annotations": annotations, "ownerReferences": [owner]}
        api.put(
            cli.resource("Pod"),
            raw_pod(name, namespace="default", spec={"nodeName": node}, metadata=metadata),
        )

    text = page.text("/elasticity")
    assert (
        'ReplicaSet/web</a></th><td class="number">1</td><td class="number">1</td><td class="number">0</td>'
        in text
    )
    assert 'aria-label="1 local, 1 on super nodes, 0 waiting"' in text
    assert "local replicas are &lt;full&gt;" in text


def test_the_nodes_of_a_rollout_are_shown_in_their_phase(page: Page, world: World) -> None:
    text = page.text("/rollouts")

    assert "edge/web</a></h2>" in text
    assert "Budget: 2 of 2 nodes unavailable; nodes are detached from the load balancer" in text
    cells = re.findall(r'<span class="name">(n\d)</span><span class="hidden">: ([a-z ]+)</span>', text)
    assert dict(cells) == {
        "n1": "detached",
        "n2": "detached",
        "n3": "waiting",
        "n4": "waiting",
        "n5": "waiting",
    }
    assert "the load balancer has until" in text


def test_the_plan_of_a_rollout_and_the_last_ones_are_shown(api: FakeAPI, page: Page, world: World) -> None:
    plan = {"nodes": 5, "nodesLeft": 4, "atATime": 2, "wave": 1, "waves": 3, "nextNodes": ["n3", "n4"]}
    ended = {"endedAt": "2026-01-01T00:00:00Z", "result": "Halted", "nodes": 2, "seconds": 61}
    revisions = {"fromRevision": "aaaaaaaaaa", "toRevision": "bbbbbbbbbb"}
    status = {"rollout": plan | {"estimatedEnd": "2099-01-01T00:00:00Z"}, "history": [ended | revisions]}
    api.edit(ROLLOUTS, "web", {"status": status}, "edge")

    text = page.text("/rollouts")

    assert "Wave 1 of 3, 4 nodes left; expected to end <time" in text
    assert "Next: n3, n4." in text
    assert "<td>Halted</td><td>2</td><td>61</td><td>aaaaaaaaaa → bbbbbbbbbb</td>" in text


def test_a_rollout_whose_template_cannot_be_read_is_shown_without_nodes(api: FakeAPI, page: Page) -> None:
    raw = raw_resource()
    raw["spec"]["podsPerNode"] = "many"
    api.put(ROLLOUTS, raw)

    assert "Its nodes cannot be shown: " in page.text("/rollouts")


def test_of_a_template_that_failed_the_reason_is_shown(api: FakeAPI, page: Page, world: World) -> None:
    raw = api.get(ROLLOUTS, "web", "edge")
    raw["spec"]["updateStrategy"]["rollingUpdate"]["autoRollback"] = True
    failed = {
        "revision": revision_of(resource(raw)),
        "toRevision": "aaaaaaaaaa",
        "reason": "pods on n1 crash",
    }
    raw["status"] = raw.get("status", {}) | {"rollback": failed}
    api.put(ROLLOUTS, raw)

    assert "pods on n1 crash: they return to the former template" in page.text("/rollouts")


def test_a_canary_is_shown_and_promoted(api: FakeAPI, page: Page, world: World) -> None:
    raw = api.get(ROLLOUTS, "web", "edge")
    canary = {"id": "aaaaaaaaaa-1", "revision": "aaaaaaaaaa", "nodes": 2, "nodesComplete": 1}
    raw["status"] = raw.get("status", {}) | {"canary": canary}
    api.put(ROLLOUTS, raw)

    assert "Canary: 1 of 2 nodes complete" in page.text("/rollouts")
    assert "Promote edge/web" in page.text("/rollouts")
    assert page.change("promote").status_code == 303
    assert api.get(ROLLOUTS, "web", "edge")["metadata"]["annotations"][PROMOTE] == "aaaaaaaaaa-1"


def test_a_metric_waves_and_a_window_are_shown(api: FakeAPI, page: Page, world: World) -> None:
    raw = api.get(ROLLOUTS, "web", "edge")
    metric = {"measuredAt": "2026-01-02T03:04:05Z", "message": "it is 1, above max (0.1) (1 of 3)"}
    canary = {
        "id": "aaaaaaaaaa-1",
        "revision": "aaaaaaaaaa",
        "nodes": 2,
        "nodesComplete": 2,
        "metric": metric,
    }
    waves = {"label": "topology.kubernetes.io/zone", "current": "a", "completedAt": "2026-01-02T03:04:05Z"}
    rollout = {
        "toRevision": "aaaaaaaaaa",
        "nodes": 2,
        "nodesLeft": 1,
        "windowOpensAt": "2999-01-02T03:04:05Z",
    }
    raw["status"] = raw.get("status", {}) | {"canary": canary, "waves": waves, "rollout": rollout}
    api.put(ROLLOUTS, raw)

    shown = page.text("/rollouts")
    assert "Its metric: it is 1, above max (0.1) (1 of 3)." in shown
    assert "Waves by topology.kubernetes.io/zone: a, complete since" in shown
    assert "The window opens" in shown


def test_a_rollout_is_paused_and_resumed(api: FakeAPI, page: Page, world: World) -> None:
    def paused() -> Any:
        return api.get(ROLLOUTS, "web", "edge")["spec"].get("paused", False)

    assert "Pause edge/web" in page.text("/rollouts")
    answer = page.change("pause")
    assert (answer.status_code, answer.location) == (303, "/rollouts")
    assert paused()
    assert "Resume edge/web" in page.text("/rollouts")

    assert page.change("resume").status_code == 303
    assert not paused()


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


def test_reading_writes_nothing_and_asks_once_what_the_user_may_change(
    api: FakeAPI, page: Page, world: World
) -> None:
    for path in PATHS:
        page.text(path)
    assert page.open("/rollouts/edge/web/pause").status_code == 405

    page.pages["rollouts"].feed.expire()
    page.text("/rollouts")
    assert [each.path.rpartition("/")[2] for each in api.writes] == ["selfsubjectaccessreviews"]


def test_only_who_may_change_a_rollout_is_offered_to(api: FakeAPI, world: World) -> None:
    text = Page(api, may_write=False).text("/rollouts")

    assert "<form" not in text
    assert (
        "You may not pause or abort it: that needs permission to patch ingressdaemonsets in namespace edge"
        in text
    )


def test_a_rollout_is_aborted_to_the_template_before_it(api: FakeAPI, page: Page, world: World) -> None:
    held = api.get(ROLLOUTS, "web", "edge")
    before = copy.deepcopy(held["spec"]["template"])
    before["spec"]["containers"][0]["image"] = "proxy:before"
    held["status"]["currentRevision"] = revision_of_template(before)
    api.put(ROLLOUTS, held)
    former = plan_revisions(resource({**world.raw, "spec": {**world.raw["spec"], "template": before}}), ())
    api.put(CONTROLLER_REVISIONS, former.create or {})
    assert "Abort edge/web" in page.text("/rollouts")

    assert page.change("abort").status_code == 303
    assert api.get(ROLLOUTS, "web", "edge")["spec"]["template"] == before


def test_a_rollout_without_a_former_template_is_not_aborted(api: FakeAPI, page: Page, world: World) -> None:
    answer = page.change("abort")

    assert answer.status_code == 409
    assert "no template has reached all nodes yet" in answer.text
    assert "Abort edge/web" not in page.text("/rollouts")


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


def test_a_refused_write_is_explained(api: FakeAPI, page: Page, world: World) -> None:
    shown = page.shown()
    api.fault = lambda call: refusal(409, "Conflict", "it changed") if call.method == "PATCH" else None

    answer = page.change("pause", shown)
    assert answer.status_code == 409
    assert "was changed in the meantime; nothing was changed by you" in answer.text


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


def test_a_stream_has_the_page_again_only_when_it_has_changed() -> None:
    values = iter(["first", "first", "second"])
    feed = Feed(lambda: next(values), clock=lambda: 0.0)
    app = create_app([], lambda *_: None, Guard(PORT), lambda *_: None)
    app.jinja_env.loader = DictLoader({"numbers.html": "{{ value }}\n{{ layout }}"})
    stop = Event()
    streams = Streams(partial(fragment, app), stop)
    events = streams.events(Served("numbers", "Numbers", "/numbers", feed), interval=0.0)

    assert next(events) == "retry: 2000\nevent: page\ndata: first\ndata: fragment.html\n\n"
    assert next(events) == ":\n\n"
    feed.expire()
    assert next(events) == ":\n\n"
    feed.expire()
    assert "data: second\n" in next(events)
    stop.set()
    assert list(events) == []


def test_a_rollout_is_live(api: FakeAPI, page: Page, world: World) -> None:
    def phases(text: str) -> list[str]:
        return re.findall(r'<span class="hidden">: ([a-z ]+)</span>', text)

    served = page.pages["rollouts"]
    events = Streams(partial(fragment, page.app), Event()).events(served, interval=0.0)
    first = next(events)
    assert "<html" not in first
    assert phases(first) == ["detached", "detached", "waiting", "waiting", "waiting"]

    world.later(10)
    world.turn()
    mirror(world, api)
    served.feed.expire()
    assert phases(next(events)) == ["updating", "updating", "waiting", "waiting", "waiting"]


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


def test_a_pod_is_explained_as_the_command_does(api: FakeAPI, page: Page) -> None:
    api.put(cli.resource("Namespace"), {"metadata": {"name": "shop", "labels": {"ip-reserve": "enabled"}}})
    api.put(cli.resource("Pod"), raw_pod("redis-0", namespace="shop"))

    text = page.text("/explain/pod/shop/redis-0")

    printed = cli.run(api, "explain", "pod", "redis-0", "-n", "shop").output
    first = " ".join(printed.splitlines()[0].split())
    assert escape(first) in re.sub(r"</?(strong|span)[^>]*>", "", text)
    assert "<code>drawbridge explain pod redis-0 -n shop</code>" in text
    assert 'data-live="/live/explain/pod/shop/redis-0"' in text


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/explain/pod/shop/none", "there is no pod shop/none, no reservation for it and no Event about it"),
        ("/explain/ip/10.0.0.999", "&#39;10.0.0.999&#39; is no IP address"),
        ("/explain/node/none", "not found"),
    ],
)
def test_what_cannot_be_explained_is_said(page: Page, path: str, said: str) -> None:
    text = page.text(path)

    assert "This cannot be shown" in text
    assert said in text


@pytest.mark.parametrize(
    "path", ["/explain/secret/shop/a", "/explain/pod/redis-0", "/explain/node/a/b", "/live/explain/pod/a/b/c"]
)
def test_only_objects_that_are_explained_have_a_page(page: Page, path: str) -> None:
    assert page.open(path).status_code == 404


def test_an_explanation_is_not_shown_without_the_token(api: FakeAPI) -> None:
    assert Page(api, enter=False).open("/explain/pod/shop/redis-0").status_code == 403


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
