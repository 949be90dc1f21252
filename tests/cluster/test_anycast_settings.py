"""What is configured otherwise holds, without a restart: on a real control plane, in an emulated cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from controllers.anycast_ip.claim import CLUSTER_ID, CLUSTER_UUID, NODE_INSTANCE, NODE_NAME
from dev.lab.cloud import fixture
from dev.lab.install import merged
from dev.lab.session import Lab
from kube.resources import CONFIG_MAPS
from tests.cluster import anycast
from tests.cluster.anycast import EVENTS, Fleet, is_open
from tests.cluster.scenes import Scene, playing, title

OTHERWISE = {
    "addressType": "HighQualityEIP",
    "releaseOnLabelRemoval": True,
    "resyncPeriod": "1s",
    "addresses": [{"nodeSelector": {"tests/net": "narrow"}, "bandwidth": 7}],
    "reverseReconcile": {"mode": "report", "period": "1s", "grace": "1s"},
}
WITH_RELEASE = merged(OTHERWISE, {"reverseReconcile": {"mode": "release"}})


def the_bandwidth_of_an_address_follows_the_labels_of_its_node(fleet: Fleet) -> None:
    fleet.join("a", labels={"tests/net": "narrow"})
    fleet.join("b")
    fleet.await_open("a", "b")
    assert [fleet.on(name)[0]["bandwidth"] for name in ("a", "b")] == [7, 100]

    fleet.patch("a", metadata={"labels": {"tests/net": None}})
    fleet.wait(lambda: fleet.on("a")[0]["bandwidth"] == 100, "the bandwidth to be changed")
    assert is_open(fleet.node("a"))


def orphans_are_reported_and_are_released_when_that_is_configured(fleet: Fleet) -> None:
    fleet.join("a")
    fleet.await_open("a")
    (living,) = fleet.on("a")
    uuid = fleet.client.get(CONFIG_MAPS, CLUSTER_UUID, "kube-system")["data"][CLUSTER_UUID]
    owner = {NODE_NAME: "gone", NODE_INSTANCE: fleet.instance_of("gone")}
    tags = {CLUSTER_UUID: uuid, CLUSTER_ID: fixture.CLUSTER_ID, **owner}
    orphan = fleet.cloud.add_address(type="HighQualityEIP", tags=tags)
    fleet.wait(lambda: orphan in reported(fleet.lab), "the orphan to be reported")
    assert {each["id"] for each in fleet.addresses()} == {orphan, living["id"]}

    anycast.reconfigure(fleet.lab, **WITH_RELEASE)
    fleet.wait(lambda: [each["id"] for each in fleet.addresses()] == [living["id"]], "the orphan to go")

    assert is_open(fleet.node("a"))
    assert living["id"] not in reported(fleet.lab)


def reported(lab: Lab) -> set[str]:
    selector = f"involvedObject.name={CLUSTER_UUID},reason=OrphanedAnycastIp"
    found = lab.client.list(EVENTS, "kube-system", field_selector=selector).items
    return {event["message"].split()[0] for event in found}


SCENES: tuple[Scene, ...] = (
    the_bandwidth_of_an_address_follows_the_labels_of_its_node,
    orphans_are_reported_and_are_released_when_that_is_configured,
)


@pytest.fixture(scope="module")
def played(cloud_lab: Lab) -> Iterator[Callable[[Scene], None]]:
    with anycast.configured(cloud_lab, **OTHERWISE), playing(cloud_lab, SCENES) as end_of:
        yield end_of


@pytest.mark.parametrize("scene", SCENES, ids=title)
def test_in_the_lab(played: Callable[[Scene], None], scene: Scene) -> None:
    played(scene)
