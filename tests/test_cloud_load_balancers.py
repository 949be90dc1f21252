"""The verbs for CLB, against the emulated cloud, over a socket and signed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cloud.client import RULES, TARGETS, TARGETS_OF_RULE, LoadBalancers, batches, caller
from cloud.errors import Gone, NotPermitted, Rejected, StateConflict
from cloud.types import Backend
from dev.lab.cloud import SECRET_ID, SECRET_KEY, Cloud, Knobs, serving
from dev.lab.cloud.tls import AUTHORITY
from dev.lab.cloud.values import Target
from settings import CloudSettings
from tests.sdk import without_proxies

NAME = "lb-edge0000"


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    without_proxies(monkeypatch)
    monkeypatch.setenv("TENCENTCLOUD_SECRET_ID", SECRET_ID)
    monkeypatch.setenv("TENCENTCLOUD_SECRET_KEY", SECRET_KEY)
    with serving(Knobs(weight_seconds=0)) as running:
        running.world.put_load_balancer(
            NAME,
            [
                Target(
                    listener="lbl-tcp",
                    instance="ins-1",
                    address="10.0.0.1",
                    port=443,
                    weight=3,
                    healthy=False,
                ),
                Target(listener="lbl-http", location="loc-1", instance="ins-1", port=80, healthy=False),
                Target(listener="lbl-http", location="loc-1", address="10.0.0.9", port=80),
            ],
        )
        yield running


@pytest.fixture
def ours(cloud: Cloud) -> LoadBalancers:
    wanted = CloudSettings(endpoint=cloud.endpoint, ca_file=str(AUTHORITY), region="ap-singapore")
    return LoadBalancers(
        caller(wanted, may_write=lambda: None, writes_within=10.0, sleep=lambda seconds: None)
    )


def test_backends_are_read_with_their_weights_and_by_the_same_keys_their_health(
    ours: LoadBalancers, cloud: Cloud
) -> None:
    weights = {"lbl-tcp//ins-1:443": 3, "lbl-http/loc-1/ins-1:80": 10, "lbl-http/loc-1/10.0.0.9:80": 10}
    assert {each.key: each.weight for each in ours.backends(NAME)} == weights
    healthy = ours.healthy(NAME)
    assert healthy.keys() == weights.keys()
    unhealthy = {key for key, is_healthy in healthy.items() if not is_healthy}
    assert unhealthy == {"lbl-tcp//ins-1:443", "lbl-http/loc-1/ins-1:80"}
    ours.set_weights(NAME, dict.fromkeys(ours.backends(NAME), 0))

    assert {each.weight for each in ours.backends(NAME)} == {0}
    assert cloud.world.count()["BatchModifyTargetWeight"] == {"OK": 1}


def test_a_load_balancer_that_changes_takes_no_weights(ours: LoadBalancers, cloud: Cloud) -> None:
    cloud.world.knobs.weight_seconds = 60.0
    ours.set_weights(NAME, dict.fromkeys(ours.backends(NAME), 0))

    with pytest.raises(StateConflict):
        ours.set_weights(NAME, dict.fromkeys(ours.backends(NAME), 1))


def test_what_is_not_there_or_not_permitted_is_said_so(ours: LoadBalancers, cloud: Cloud) -> None:
    with pytest.raises(Gone):
        ours.backends("lb-nothing0")
    with pytest.raises(Rejected):
        ours.set_weights(NAME, {Backend(listener="lbl-tcp", instance="ins-2", port=443, weight=1): 0})
    cloud.world.knobs.denied_resources = {"BatchModifyTargetWeight": [NAME]}
    with pytest.raises(NotPermitted):
        ours.set_weights(NAME, dict.fromkeys(ours.backends(NAME), 0))


@pytest.mark.parametrize(
    ("listeners", "nodes", "calls"), [(1, 1, 1), (1, 120, 1), (1, 501, 2), (101, 1, 2), (20, 60, 3)]
)
def test_weights_need_as_few_calls_as_the_cloud_allows(listeners: int, nodes: int, calls: int) -> None:
    weights = {
        Backend(listener=f"lbl-{listener}", instance=f"ins-{node}", port=80, weight=1): 0
        for listener in range(listeners)
        for node in range(nodes)
    }
    found = list(batches(weights))

    assert len(found) == calls
    for batch in found:
        counts = [len(rule["Targets"]) for rule in batch]  # type: ignore[arg-type]
        assert len(counts) <= RULES
        assert max(counts) <= TARGETS_OF_RULE
        assert sum(counts) <= TARGETS
    assert sum(len(rule["Targets"]) for batch in found for rule in batch) == len(weights)  # type: ignore[arg-type]
