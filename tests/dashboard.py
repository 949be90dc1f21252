"""The page on the fake API server, and a browser without JavaScript, which keeps cookies."""

from __future__ import annotations

import re
from html import unescape

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from cli.cluster import Cluster
from dashboard.app import Guard, create_app
from dev.fake_api import FakeAPI
from tests import cli
from tests.ingress_daemonset_world import World

PORT = 8765
BASE = f"http://127.0.0.1:{PORT}"
ROLLOUTS, NODES, DEPLOYMENTS = (cli.resource(each) for each in ("IngressDaemonSet", "Node", "Deployment"))


class Page:
    """The server, and a browser that has opened the printed address, unless *enter* is false."""

    def __init__(self, cluster: Cluster, *, enter: bool = True) -> None:
        self.guard = Guard(PORT)
        self.app = create_app(cluster, self.guard)
        self.pages = {each.name: each for each in self.app.jinja_env.globals["pages"]}
        self.browser: FlaskClient = self.app.test_client()
        if enter:
            self.open(f"/?token={self.guard.token}")

    def open(self, path: str, **headers: str) -> TestResponse:
        return self.browser.get(path, base_url=BASE, headers=headers, buffered=True)

    def text(self, path: str) -> str:
        answer = self.open(path)
        assert answer.status_code == 200, answer.text
        return " ".join(answer.text.split())

    def lines(self, path: str) -> list[str]:
        """What is read on the page itself, with what its pictures say."""
        return _read(self.text(path))

    def press(self, verb: str) -> list[str]:
        """What is read after that button of edge/web; then the status of the answer, and where that leads."""
        answer = self.change(verb)
        leads_to = f" {answer.location}" if answer.location else ""
        return [*_read(answer.text), f"[{answer.status_code}{leads_to}]"]

    def shown(self) -> str:
        """The stamp of the only rollout, as its forms have it."""
        [stamp] = set(re.findall('name="shown" value="([^"]*)"', self.text("/rollouts")))
        return str(stamp)

    def change(self, verb: str, shown: str | None = None) -> TestResponse:
        """Send the form of edge/web, as the page has it now, or as it had it when the rollout was as *shown*."""
        stamp = self.shown() if shown is None else shown
        return self.send(f"/rollouts/edge/web/{verb}", form=self.guard.form, shown=stamp)

    def send(self, path: str, origin: str = BASE, **form: str) -> TestResponse:
        return self.browser.post(path, base_url=BASE, data=form, headers={"Origin": origin})


def _read(html: str) -> list[str]:
    main = " ".join(html.split()).partition("<main")[2].partition("</main>")[0].partition(">")[2]
    main = re.sub(r'<[^<]*? aria-label="([^"]*)"[^<]*?>', r" [\1] ", main)
    blocks = re.split(r"<(?:/?tr|/?p|/?h\d|/?li|/caption|/summary|/dt|/dd|/button|/text|br)\b.*?>", main)
    texts = (" ".join(unescape(re.sub(r"<[^>]*>", " ", each)).split()) for each in blocks)
    return [each for each in texts if each]


def mirror(world: World, api: FakeAPI) -> None:
    """Show in the API server what the *world* is now, with the status that the leader writes."""
    api.put(ROLLOUTS, {**world.raw, "status": world.status()})
    for each in world.nodes.values():
        api.put(NODES, each)
    for each in world.deployments.values():
        api.put(DEPLOYMENTS, each)
