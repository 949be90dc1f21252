"""The feature as it runs: threads, sockets and watches, until its context says stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from api.elasticity import PLACEMENT, SWITCH
from controllers.elasticity import controller
from dev.fake_api import FakeAPI
from dev.lab.waiting import until
from kube.types import INSTANCE_TYPE, SUPER_NODE
from settings import ElasticitySettings
from tests.elasticity_world import AWAY, STUCK, is_gated, raw_pod
from tests.fakes import FakeRecorder
from tests.managed import lead
from tests.misbehaving_server import serving
from tests.tables import table

STATEFUL_SETS = "/apis/apps/v1/statefulsets"
PODS, NODES, CONFIG_MAPS = "/api/v1/pods", "/api/v1/nodes", "/api/v1/configmaps"
SUPER = {
    "metadata": {"name": AWAY, "uid": "n1", "labels": {INSTANCE_TYPE: SUPER_NODE}},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


class Running:
    """The feature on a thread, as the leader runs it."""

    def __init__(self, api: FakeAPI, server: Any, settings: dict[str, Any]) -> None:
        self.api, self.server, self.recorder, self.stop = api, server, FakeRecorder(), threading.Event()
        sections = {"elasticity": ElasticitySettings.model_validate({"enabled": True, **settings})}
        given = (controller, server.client(), lambda: sections, self.recorder, self.stop, lambda: None)
        self.thread = threading.Thread(target=lead, args=given, daemon=True)

    def create(self, *names: str, **parts: Any) -> None:
        for name in names:
            self.api.put(PODS, raw_pod(name, **parts))

    def edit(self, name: str, **parts: Any) -> None:
        self.api.put(PODS, self.named(name) | parts)

    def pods(self) -> list[dict[str, Any]]:
        return self.api.list(PODS)

    def named(self, name: str) -> dict[str, Any]:
        return next(each for each in self.pods() if each["metadata"]["name"] == name)

    def gated(self) -> set[str]:
        return {each["metadata"]["name"] for each in self.pods() if is_gated(each)}

    def annotations(self) -> dict[str, dict[str, str]]:
        return {each["metadata"]["name"]: each["metadata"]["annotations"] for each in self.pods()}


@contextmanager
def world(**fields: Any) -> Iterator[Running]:
    """With one super node; the leader has not begun."""
    api = FakeAPI()
    api.put(NODES, SUPER)
    with serving(api) as server:
        running = Running(api, server, fields)
        try:
            yield running
        finally:
            running.stop.set()
            if running.thread.ident:
                running.thread.join(30)
                assert not running.thread.is_alive()


OFF = {"switch": {"default": False}}


@table(
    "settings, before, after, problems",
    {
        "it is followed, and a word that is none counts as not set": ({}, {SWITCH: "false"}, "perhaps", 1),
        "without a key it is what is configured, which the key outweighs": (OFF, {}, "true", 0),
    },
)
def test_the_switch(settings: dict[str, Any], before: dict[str, str], after: str, problems: int) -> None:
    """The ConfigMap has what else the provider keeps there, and is never written."""
    metadata = {"name": "eks-config", "namespace": "kube-system"}

    def switch(data: dict[str, str]) -> None:
        lab.api.put(CONFIG_MAPS, {"metadata": metadata, "data": {"pod.annotations": "{}", **data}})

    with world(**settings) as lab:
        switch(before)
        lab.thread.start()
        lab.create("web-1", gated=False, n=None)
        lab.edit("web-1", status={"conditions": [{**STUCK, "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
        until(lambda: "KeptLocal" in lab.recorder.reasons, 60)
        switch({SWITCH: after})
        until(lambda: bool(lab.pods()[0]["spec"].get("tolerations")), 60)
        until(lambda: "SentToSuperNode" in lab.recorder.reasons, 60)

        assert lab.recorder.reasons.count("BadSwitch") == problems
        assert not [each for each in lab.api.calls if each.method != "GET" and "configmaps" in each.path]


def test_the_first_ordinal_of_a_stateful_set_is_followed() -> None:
    with world() as lab:
        metadata = {"name": "db", "namespace": "shop", "uid": "owner-db"}
        lab.api.put(STATEFUL_SETS, {"metadata": metadata, "spec": {"ordinals": {"start": 5}}})
        lab.create("db-5", "db-6", "db-7", key="db", kind="StatefulSet")
        lab.thread.start()
        until(lambda: all(PLACEMENT in each for each in lab.annotations().values()), 60)

        found = {name: each[PLACEMENT] for name, each in lab.annotations().items()}
        assert found == {"db-5": "local", "db-6": "local", "db-7": "super"}
