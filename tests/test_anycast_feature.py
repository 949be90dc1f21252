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
from controllers.anycast_ip.sources import SPENT
from controllers.workqueue import Stopping
from dev.fake_api import FakeAPI
from dev.lab.cloud import SECRET_ID, SECRET_KEY, Knobs, serving
from dev.lab.cloud.tls import AUTHORITY
from dev.lab.waiting import until
from kube.errors import Backoff
from kube.types import Node
from settings import CloudSettings
from settings.anycast_ip import NEED_LABEL
from tests.anycast_world import SETTINGS, Lab
from tests.fakes import FakeRecorder
from tests.managed import lead
from tests.misbehaving_server import serving as serving_api
from tests.sdk import without_proxies

NODES = "/api/v1/nodes"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENCENTCLOUD_SECRET_ID", SECRET_ID)
    monkeypatch.setenv("TENCENTCLOUD_SECRET_KEY", SECRET_KEY)
    without_proxies(monkeypatch)


@contextmanager
def running(cloud: CloudSettings) -> Iterator[tuple[FakeAPI, dict[str, Any]]]:
    """The feature on a thread, as the leader runs it, with its settings, which may change."""
    api, stop = FakeAPI(), threading.Event()
    for namespace in ("drawbridge", "kube-system"):
        api.ensure_namespace(namespace)
    sections = {"anycast_ip": SETTINGS, "cloud": cloud}
    with serving_api(api) as server:
        given = (controller, server.client(), lambda: sections, FakeRecorder(), stop, lambda: None)
        thread = threading.Thread(target=lead, args=given, daemon=True)
        thread.start()
        try:
            yield api, sections
        finally:
            stop.set()
            thread.join(20)
            assert not thread.is_alive()


def join(api: FakeAPI) -> None:
    metadata = {"name": "n1", "uid": "n1-000000000000", "labels": {NEED_LABEL: "true"}}
    spec = {"providerID": "qcloud:///1/ins-n1", "taints": [msgspec.to_builtins(TAINT)]}
    api.put(NODES, {"metadata": metadata, "spec": spec})


def is_open(api: FakeAPI) -> bool:
    node = msgspec.convert(api.get(NODES, "n1"), Node)
    return is_proven_bound(node) and not is_tainted(node)


@pytest.mark.parametrize("missing", ["region", "keys"])
def test_what_is_configured_later_needs_no_restart(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "RECONFIGURED", Backoff(base=0.05, cap=0.05))
    if missing == "keys":
        monkeypatch.delenv("TENCENTCLOUD_SECRET_ID")
    region = "" if missing == "region" else "ap-singapore"
    times = dict.fromkeys(("allocate_seconds", "bind_seconds"), 0.1)
    with serving(Knobs(**times, tag_lag_seconds=0)) as cloud:  # type: ignore[arg-type]
        fields = {"endpoint": cloud.endpoint, "caFile": str(AUTHORITY), "credentials": "static"}
        settings = CloudSettings.model_validate({**fields, "region": region})
        with running(settings) as (api, sections):
            join(api)
            threading.Event().wait(0.5)
            assert not is_open(api)
            sections["cloud"] = settings.model_copy(update={"region": "ap-singapore"})
            monkeypatch.setenv("TENCENTCLOUD_SECRET_ID", SECRET_ID)
            until(lambda: is_open(api), 60)


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
    inventory = lab.sources.inventory
    assert len(inventory._spent) == 20
    lab.run_for(SPENT + 2 * SETTINGS.resync_period)

    assert inventory._spent == {}
