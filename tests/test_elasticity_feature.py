"""The feature as it runs: threads, sockets and watches, until its context says stop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from api.elasticity import BURST, PLACEMENT, RETURN_HOME, SWITCH
from controllers.elasticity import controller
from dev.fake_api import FakeAPI
from dev.lab.waiting import until
from kube.leader_election import LeadershipLost
from kube.types import INSTANCE_TYPE, SUPER_NODE
from settings import ElasticitySettings
from tests.elasticity_world import AWAY, HOME, STUCK, is_gated, raw_pod
from tests.fakes import FakeRecorder
from tests.managed import lead
from tests.misbehaving_server import serving

STATEFUL_SETS = "/apis/apps/v1/statefulsets"
PODS, NODES, CONFIG_MAPS = "/api/v1/pods", "/api/v1/nodes", "/api/v1/configmaps"
SUPER = {
    "metadata": {"name": AWAY, "uid": "n1", "labels": {INSTANCE_TYPE: SUPER_NODE}},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


class Running:
    """The feature on a thread, as the leader runs it."""

    def __init__(self, api: FakeAPI, server: Any, settings: ElasticitySettings) -> None:
        self.api, self.server, self.recorder = api, server, FakeRecorder()
        self.stop, self.may_lead = threading.Event(), True
        self.raised: BaseException | None = None
        self.settings = settings
        self.thread = threading.Thread(target=self._lead, daemon=True)

    def _check(self) -> None:
        if not self.may_lead:
            raise LeadershipLost("another process leads")

    def _lead(self) -> None:
        try:
            client = self.server.client()
            lead(
                controller,
                client,
                lambda: {"elasticity": self.settings},
                self.recorder,
                self.stop,
                self._check,
            )
        except BaseException as error:
            self.raised = error

    def create(self, *names: str, **parts: Any) -> None:
        for name in names:
            self.api.put(PODS, raw_pod(name, **parts))

    def edit(self, name: str, **parts: Any) -> None:
        self.api.put(PODS, self.named(name) | parts)

    def pods(self) -> list[dict[str, Any]]:
        return self.api.list(PODS)

    def named(self, name: str) -> dict[str, Any]:
        return next(each for each in self.pods() if each["metadata"]["name"] == name)

    def annotations(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.named(name)["metadata"]["annotations"]
        return found

    def gated(self) -> set[str]:
        return {each["metadata"]["name"] for each in self.pods() if is_gated(each)}

    def placements(self) -> list[str]:
        return sorted(each["metadata"]["annotations"].get(PLACEMENT, "") for each in self.pods())

    def set_switch(self, said: str) -> None:
        metadata = {"name": "eks-config", "namespace": "kube-system"}
        self.api.put(CONFIG_MAPS, {"metadata": metadata, "data": {SWITCH: said}})


@contextmanager
def world(**fields: Any) -> Iterator[Running]:
    """With one super node; the leader has not begun."""
    api = FakeAPI()
    api.put(NODES, SUPER)
    with serving(api) as server:
        running = Running(api, server, ElasticitySettings.model_validate({"enabled": True, **fields}))
        try:
            yield running
        finally:
            running.stop.set()
            if running.thread.ident:
                running.thread.join(30)
                assert not running.thread.is_alive()


def test_the_switch_is_followed() -> None:
    with world() as lab:
        lab.set_switch("false")
        lab.thread.start()
        lab.create("web-1", gated=False, n=None)
        lab.edit("web-1", status={"conditions": [{**STUCK, "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
        until(lambda: "KeptLocal" in lab.recorder.reasons, 60)
        lab.set_switch("perhaps")
        until(lambda: bool(lab.pods()[0]["spec"].get("tolerations")), 60)
        until(lambda: "SentToSuperNode" in lab.recorder.reasons, 60)

        assert lab.recorder.reasons.count("BadSwitch") == 1


def test_the_first_ordinal_of_a_stateful_set_is_followed() -> None:
    with world() as lab:
        metadata = {"name": "db", "namespace": "shop", "uid": "owner-db"}
        lab.api.put(STATEFUL_SETS, {"metadata": metadata, "spec": {"ordinals": {"start": 5}}})
        lab.create("db-5", "db-6", "db-7", key="db", kind="StatefulSet")
        lab.thread.start()
        until(lambda: "" not in lab.placements(), 60)

        found = {each["metadata"]["name"]: each["metadata"]["annotations"][PLACEMENT] for each in lab.pods()}
        assert found == {"db-5": "local", "db-6": "local", "db-7": "super"}


def test_workloads_are_watched_only_while_percentages_are_on() -> None:
    with world() as lab:
        for made in (replica_set("web"), replica_set("api")):
            lab.api.put(REPLICA_SETS, {**made, "spec": {**made["spec"], "replicas": 3}})
        lab.thread.start()
        lab.create("web-1", n="2")
        until(lambda: lab.annotations("web-1").get(PLACEMENT), 60)
        assert watched(lab) == set()

        lab.settings = ElasticitySettings(enabled=True, percentages=True)
        until(lambda: watched(lab) == {REPLICA_SETS, JOBS}, 60)
        for number in range(3):
            lab.create(f"api-{number}", key="api", n="50%")
        until(lambda: len(placed(lab, "api")) == 3, 60)
        assert sorted(placed(lab, "api")) == ["local", "local", "super"]


def placed(lab: Running, key: str) -> list[str]:
    annotations = [
        each["metadata"]["annotations"]
        for each in lab.pods()
        if each["metadata"]["name"].startswith(f"{key}-")
    ]
    return [each[PLACEMENT] for each in annotations if PLACEMENT in each]


def watched(lab: Running) -> set[str]:
    return {asked.path for asked in lab.server.asked} & {REPLICA_SETS, JOBS}


JOBS = "/apis/batch/v1/jobs"
REPLICA_SETS = "/apis/apps/v1/replicasets"


def replica_set(name: str) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": f"owner-{name}", "generation": 1},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": []}},
        },
        "status": {"replicas": 1, "availableReplicas": 1, "observedGeneration": 1},
    }


def test_pods_return_once_that_is_switched_on() -> None:
    with world() as lab:
        home = {"metadata": {"name": HOME, "uid": "n2"}, "status": {"allocatable": {"pods": "9"}}}
        lab.api.put(NODES, home)
        lab.api.put(REPLICA_SETS, replica_set("web"))
        lab.create("web-1", gated=False, n=None, annotations={BURST: "allowed", RETURN_HOME: "true"})
        bound = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        containers = [{"name": "app", "image": "app"}]
        lab.edit("web-1", spec={"nodeName": AWAY, "containers": containers}, status=bound)
        lab.thread.start()
        lab.create("web-2", n="2")
        until(lambda: lab.annotations("web-2").get(PLACEMENT), 60)
        lab.api.remove(PODS, "web-2", "shop")

        lab.settings = ElasticitySettings.model_validate(
            {"enabled": True, "returnHome": {"enabled": True, "after": "1s"}}
        )
        until(lambda: "ReturnsHome" in lab.recorder.reasons, 60)
