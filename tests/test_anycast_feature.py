"""The feature as it runs: threads, sockets and a watch, until its context says stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from api.anycast_ip import TAINT, is_proven_bound, is_tainted
from controllers.anycast_ip import controller
from controllers.anycast_ip.inventory import SPENT
from controllers.workqueue import Stopping
from dev.fake_api import FakeAPI
from dev.lab.cloud import SECRET_ID, SECRET_KEY, Cloud, Knobs, serving
from dev.lab.cloud.tls import AUTHORITY
from dev.lab.waiting import until
from kube.errors import Backoff
from kube.leader_election import LeadershipLost
from kube.types import Node
from settings import CloudSettings
from settings.anycast_ip import NEED_LABEL
from tests.anycast_world import SETTINGS, Lab
from tests.fakes import FakeRecorder
from tests.managed import lead
from tests.misbehaving_server import serving as serving_api

NODES, CONFIG_MAPS = "/api/v1/nodes", "/api/v1/configmaps"
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENCENTCLOUD_SECRET_ID", SECRET_ID)
    monkeypatch.setenv("TENCENTCLOUD_SECRET_KEY", SECRET_KEY)
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)


class Running:
    """The feature on a thread, as the leader runs it."""

    def __init__(self, api: FakeAPI, client: Any, cloud: Cloud, region: str, credentials: str) -> None:
        self.api, self.cloud, self.recorder = api, cloud, FakeRecorder()
        self.stop, self.may_lead = threading.Event(), True
        self.refused = 0
        self.cloud_settings = CloudSettings.model_validate(
            {
                "region": region,
                "endpoint": cloud.endpoint,
                "caFile": str(AUTHORITY),
                "credentials": credentials,
            }
        )
        self._client = client
        self.thread = threading.Thread(target=self._lead, daemon=True)
        self.thread.start()

    def _sections(self) -> dict[str, Any]:
        return {"anycast_ip": SETTINGS, "cloud": self.cloud_settings}

    def _check(self) -> None:
        if not self.may_lead:
            self.refused += 1
            raise LeadershipLost("another process leads")

    def _lead(self) -> None:
        lead(controller, self._client, self._sections, self.recorder, self.stop, self._check)

    def join(self, name: str) -> None:
        metadata = {"name": name, "uid": f"{name}-000000000000", "labels": {NEED_LABEL: "true"}}
        spec = {"providerID": f"qcloud:///1/ins-{name}", "taints": [msgspec.to_builtins(TAINT)]}
        self.api.put(NODES, {"metadata": metadata, "spec": spec})

    def all_open(self) -> bool:
        nodes = [msgspec.convert(each, Node) for each in self.api.list(NODES)]
        return all(is_proven_bound(each) and not is_tainted(each) for each in nodes)

    def claims(self) -> list[str]:
        names = [each["metadata"]["name"] for each in self.api.list(CONFIG_MAPS)]
        return sorted(name for name in names if name.startswith("anycast-ip-"))


@contextmanager
def running(region: str = "ap-singapore", credentials: str = "auto") -> Iterator[Running]:
    times = dict.fromkeys(("allocate_seconds", "bind_seconds", "unbind_seconds", "release_seconds"), 0.1)
    api = FakeAPI()
    for namespace in ("drawbridge", "kube-system"):
        api.ensure_namespace(namespace)
    with serving(Knobs(**times, tag_lag_seconds=0)) as cloud, serving_api(api) as server:  # type: ignore[arg-type]
        world = Running(api, server.client(), cloud, region, credentials)
        try:
            yield world
        finally:
            world.stop.set()
            world.thread.join(20)
            assert not world.thread.is_alive()


def test_without_leadership_nothing_more_is_written() -> None:
    with running() as world:
        until(lambda: bool(world.cloud.world.calls), 60)
        world.may_lead = False
        world.join("n1")
        until(lambda: world.refused >= 2, 60)
        world.stop.set()
        world.thread.join(20)

        assert world.claims() == []


@pytest.mark.parametrize("missing", ["region", "keys"])
def test_what_is_configured_later_needs_no_restart(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "RECONFIGURED", Backoff(base=0.05, cap=0.05))
    if missing == "keys":
        monkeypatch.delenv("TENCENTCLOUD_SECRET_ID")
    with running(region="" if missing == "region" else "ap-singapore", credentials="static") as world:
        world.join("n1")
        world.thread.join(0.5)
        assert not world.all_open()
        world.cloud_settings = world.cloud_settings.model_copy(update={"region": "ap-singapore"})
        monkeypatch.setenv("TENCENTCLOUD_SECRET_ID", SECRET_ID)
        until(world.all_open, 60)


def test_a_wait_that_a_stop_cuts_short_is_a_clean_end() -> None:
    lab = Lab(Knobs(throttled=1.0, faulty_actions=["CreateTags"]))
    lab.join()
    lab.run_for(1)

    def wait(seconds: float) -> None:
        raise Stopping("stop")

    lab.sleep = wait
    lab.start()
    lab.run_for(5)

    assert lab.recorder.events == []


def test_addresses_that_were_given_up_are_remembered_while_a_list_may_have_them() -> None:
    lab = Lab()
    for number in range(20):
        lab.join(f"n{number}")
        lab.run(lab.all_open, 60, "open")
        lab.leave(f"n{number}")
        lab.run(lab.is_clean, 120, "clean")
    inventory = lab.feature.sources.inventory
    assert len(inventory._spent) == 20
    lab.run_for(SPENT + 2 * SETTINGS.resync_period)

    assert inventory._spent == {}
