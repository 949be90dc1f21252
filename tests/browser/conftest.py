"""The page in a real Chromium, of a cluster with things going on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Thread
from typing import Any

import pytest

from api.anycast_ip import OPEN, Quota, with_quotas, with_transition
from api.ingress_daemonset.types import resource
from calico.segment import LEVEL, MANAGED_BY, MANAGER, body
from controllers.ingress_daemonset.revisions import CONTROLLER_REVISIONS, body_of
from dashboard.app import Guard, create_app
from dashboard.command import listen, server_of
from dev.fake_api import FakeAPI
from dev.lab.waiting import stretch
from kube.types import Node
from tests import cli
from tests.calico_pools import BLOCKS, KINDS, POOLS, block, pool
from tests.dashboard import mirror
from tests.factories import NOW, raw_pod, record
from tests.ingress_daemonset_world import World, raw_resource
from tests.test_ingress_daemonset_rollout import detaching

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
NEED = {"tke.cloud.tencent.com/need-aia-ip": "true"}
TAINT = {"key": "tke.cloud.tencent.com/no-aia-ip", "value": "true", "effect": "NoSchedule"}
SUPER = {"node.kubernetes.io/instance-type": "eklet"}
REASONS = {
    "local": "replica {} of the 6 that LOCAL_REPLICAS keeps on local nodes",
    "super": "the workload has its 6 local replicas",
    "gated": "it waits: the limit of pods on super nodes is reached",
}


@dataclass
class Served:
    """The address, the world behind the page, and the lines of the browser's console that are errors."""

    guard: Guard
    api: FakeAPI
    world: World
    tab: Any
    errors: list[str] = field(default_factory=list)

    def open(self, path: str) -> Any:
        self.tab.goto(f"http://127.0.0.1:{self.guard.port}{path}")
        self.tab.wait_for_selector("#connection.good")
        return self.tab

    def turn(self, seconds: float = 60) -> None:
        """The rollout goes on by one step."""
        self.world.later(seconds)
        self.world.run_pods()
        self.world.turn()
        mirror(self.world, self.api)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.fail("no Playwright: make browser installs it")
    assert CHROMIUM, "no Chromium: install one (apt-get install chromium), or name it with CHROMIUM=..."
    with sync_playwright() as playwright:
        # Root, as CI runs the tests, has no sandbox; nothing but our own page is opened.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def served(chromium: Any) -> Iterator[Served]:
    api, world = busy()
    with closing(listen(0)) as listener:
        guard = Guard(listener.getsockname()[1])
        server = server_of(listener, create_app(cli.cluster_of(api), guard))
        thread = Thread(target=server.serve_forever)
        thread.start()
        context = chromium.new_context(viewport={"width": 1280, "height": 800})
        context.set_default_timeout(30_000 * stretch())
        found = Served(guard, api, world, context.new_page())
        found.tab.on("console", lambda line: found.errors.append(line.text) if line.type == "error" else None)
        found.tab.on("pageerror", lambda error: found.errors.append(str(error)))
        found.tab.goto(guard.url)
        found.tab.wait_for_url(f"http://127.0.0.1:{guard.port}/")
        yield found
        context.close()
        server.shutdown()
        thread.join()
        server.server_close()
    assert found.errors == []


def busy() -> tuple[FakeAPI, World]:
    """All features on, and each with something under way."""
    api = cli.installed("anycastIP", "elasticity", "ingressDaemonSet", kinds=KINDS)
    api.put(POOLS, pool("10.0.0.0/23"))
    api.put(BLOCKS, block("10.0.0.0/24", *(f"10.0.0.{number}" for number in range(60, 200))))
    _reserved(api, NOW)
    _addresses(api, NOW)
    _placed(api)
    strategy = {"updateStrategy": {"rollingUpdate": detaching(limit=4)}}
    raw = raw_resource({"nodeSelector": {"role": "edge"}}, **strategy)
    world = World(raw, *(f"edge-{number:02}" for number in range(1, 25)))
    for each in world.nodes.values():
        each["metadata"]["labels"]["role"] = "edge"
    world.settle()
    world.raw["status"] = world.status()
    api.put(CONTROLLER_REVISIONS, body_of(resource(world.raw)))
    world.retemplate("proxy:2")
    world.now = NOW - timedelta(minutes=3)
    world.turn()
    for _ in range(4):
        world.later(20)
        world.run_pods()
        world.turn()
    world.now = NOW
    mirror(world, api)
    return api, world


def _reserved(api: FakeAPI, now: datetime) -> None:
    records = [
        record(
            f"10.0.{workload}.{number}/32",
            uid=f"{workload}-{number}",
            namespace="shop",
            pod=f"{name}-{number}",
            node=f"node-{number}",
            owner=f"StatefulSet/{name}",
            reason=("evicted", "deleted", "preempted")[number % 3],
            ended=None if number == 1 else now - timedelta(minutes=(7 * number + 11 * workload) % 36),
        )
        for workload, name in enumerate(("redis", "kafka", "postgres"))
        for number in range(1, 9 - 2 * workload)
    ]
    raw = body(records)
    raw["metadata"] |= {"name": "segment", "labels": {MANAGED_BY: MANAGER, LEVEL: "0"}}
    api.put(cli.resource("IPReservation"), raw)


def _addresses(api: FakeAPI, now: datetime) -> None:
    quotas = with_quotas([Quota("TOTAL_EIP_QUOTA", 12, 50), Quota("DAILY_EIP_APPLY", 38, 40)], now)
    api.edit(cli.resource("Lease"), "drawbridge", {"metadata": {"annotations": quotas}}, "drawbridge")
    for number in range(1, 5):
        created = now - timedelta(hours=number)
        opened = with_transition(Node(), created + timedelta(seconds=11 + 3 * number), OPEN, f"eip-{number}")
        proof = {
            "drawbridge.io/anycast-ip-bound": f"u{number}/eip-{number}",
            "tke.cloud.tencent.com/anycast-ip-id": f"eip-{number}",
            "tke.cloud.tencent.com/anycast-ip-address": f"203.0.113.{number}",
        }
        metadata = {
            "name": f"gateway-{number}",
            "uid": f"u{number}",
            "labels": NEED,
            "annotations": proof | opened,
            "creationTimestamp": f"{created:%Y-%m-%dT%H:%M:%SZ}",
        }
        api.put(cli.resource("Node"), {"metadata": metadata})
    metadata = {"name": "gateway-5", "uid": "u5", "labels": NEED}
    api.put(cli.resource("Node"), {"metadata": metadata, "spec": {"taints": [TAINT]}})


def _placed(api: FakeAPI) -> None:
    api.put(cli.resource("Node"), {"metadata": {"name": "super-node-a", "uid": "s", "labels": SUPER}})
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web-5d8f",
        "uid": "w",
        "controller": True,
    }
    for number in range(1, 12):
        kind = "local" if number < 7 else "super" if number < 11 else "gated"
        annotations = {"drawbridge.io/placement-reason": REASONS[kind].format(number)}
        spec: dict[str, Any] = {
            "nodeName": {"local": f"node-{number}", "super": "super-node-a"}.get(kind, "")
        }
        if kind == "gated":
            spec = {"nodeName": "", "schedulingGates": [{"name": "drawbridge.io/placement"}]}
        else:
            annotations["drawbridge.io/placement"] = kind
        metadata = {"annotations": annotations, "ownerReferences": [owner]}
        raw = raw_pod(f"web-5d8f-{number:02}", namespace="shop", spec=spec, metadata=metadata)
        api.put(cli.resource("Pod"), raw | {"status": {"phase": "Pending" if kind == "gated" else "Running"}})
