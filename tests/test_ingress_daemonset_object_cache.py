"""What is known of an object: the newest of what informers and the API server's answers say, labelled or not."""

from __future__ import annotations

from typing import Any

import pytest

from api.ingress_daemonset import NODE_LABEL
from controllers.ingress_daemonset.children import Target
from controllers.ingress_daemonset.object_cache import RESOURCES, ObjectCache
from kube.errors import KubeError
from tests.fakes import FakeClock
from tests.ingress_daemonset_leader import Api

WEB = Target("Deployment", "edge", "web")
LABELLED = {NODE_LABEL: "n1"}


class Case:
    def __init__(self, **labels: str) -> None:
        """A Deployment with these labels, which was read once."""
        self.api, self.clock = Api(), FakeClock()
        self.cache = ObjectCache(self.api, self.api.informers, self.clock)
        self.put(**labels)
        self.cache.read(WEB)

    def put(self, **labels: str) -> None:
        metadata = {"name": "web", "namespace": "edge", "uid": "u", "labels": labels}
        self.api.put("Deployment", {"metadata": metadata, "spec": {}})

    @property
    def version(self) -> str:
        known = self.cache.get(WEB)
        return known.metadata.resource_version if known else "gone"

    @property
    def stored(self) -> str:
        found: Any = self.api.fake.get(RESOURCES["Deployment"], "web", "edge")
        return str(found["metadata"]["resourceVersion"])


def test_an_object_that_no_informer_follows_is_known_as_it_was_read() -> None:
    here = Case()
    assert here.version == here.stored
    assert [each.metadata.name for each in here.cache.in_namespace("Deployment", "edge")] == ["web"]
    read_at = here.clock()
    here.clock.advance(9)
    here.api.fault = lambda verb, kind, name: "timed out"
    with pytest.raises(KubeError):
        here.cache.read(WEB)
    assert [at for _, at in here.cache.unlabelled().values()] == [read_at + 9]

    here.put(**LABELLED)
    here.api.deliver()
    assert here.cache.unlabelled() == {}
    assert here.version == here.stored
    assert len(here.cache.in_namespace("Deployment", "edge")) == 1


@pytest.mark.parametrize("labels", [LABELLED, {}], ids=["followed", "not followed"])
def test_an_object_that_is_gone_by_the_api_server_is_forgotten(labels: dict[str, str]) -> None:
    here = Case(**labels)
    here.api.remove("Deployment", "edge/web")
    here.cache.read(WEB)
    assert here.version == "gone"
    here.api.deliver()
    assert here.version == "gone"


def test_only_the_object_that_was_deleted_is_forgotten() -> None:
    here = Case(**LABELLED)
    here.cache.forget(WEB, "the one before")
    assert here.version == here.stored
    metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"], "labels": LABELLED}
    whole = {"name": "web", "namespace": "edge", "uid": "u"} | metadata
    here.api.put("Deployment", {"metadata": whole, "spec": {}})
    here.api.deliver()
    here.cache.forget(WEB, "u")  # it is terminating: the watch delivers its end
    assert here.version == here.stored
