"""A values file of AIA-IP-Controller's chart installs what it installed there."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from lab.install import merged
from settings import AnycastIPSettings
from tests.charts import cloud_keys, helm_needed, mutating, notes, refusal, render, settings_in

pytestmark = helm_needed

ORIGINAL = """
credential: {clusterID: cls-old, appID: "1250000000", secretID: old-id, secretKey: old-secret}
config:
  region: {shortName: hk, longName: ap-hongkong}
  aia: {bandwidth: 200, addressType: HighQualityEIP, anycastZone: "", tags: {team: edge}}
  node: {labels: {tke.cloud.tencent.com/need-aia-ip: "true"}}
controller:
  maxConcurrentReconcile: 1
  kubeApiQps: 20
  kubeApiBurst: 30
  replicaCount: 2
  image: {ref: "", pullPolicy: Always}
  resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 100m, memory: 50Mi}}
"""


def original(**values: Any) -> dict[str, Any]:
    return merged(merged(yaml.safe_load(ORIGINAL), {"anycastIP": {"enabled": True}}), values)


def test_the_values_of_the_original_mean_the_same() -> None:
    objects = render(original())
    settings = settings_in(objects)
    feature = {
        "enabled": True,
        "clusterID": "cls-old",
        "addressType": "HighQualityEIP",
        "bandwidth": 200,
        "tags": {"team": "edge"},
    }
    assert settings.anycast_ip == AnycastIPSettings.model_validate(feature)
    assert settings.cloud.region == "ap-hongkong"
    assert cloud_keys(objects) == {"secretID": "old-id", "secretKey": "old-secret"}


def test_labels_of_the_original_are_added_to_the_default_one_as_there() -> None:
    objects = render({"config": {"node": {"labels": {"example.com/edge": "true"}}}})
    assert settings_in(objects).anycast_ip.node_labels == {
        "tke.cloud.tencent.com/need-aia-ip": "true",
        "example.com/edge": "true",
    }


def test_a_label_of_the_original_may_have_another_value() -> None:
    labels = {"tke.cloud.tencent.com/need-aia-ip": "yes"}
    objects = render(original(config={"node": {"labels": labels}}))
    assert mutating(objects)["objectSelector"]["matchLabels"] == labels


@pytest.mark.parametrize("tags", [pytest.param("", id="empty text"), pytest.param({}, id="no tags")])
def test_no_tags_of_the_original_are_no_tags(tags: object) -> None:
    values = original()
    values["config"]["aia"]["tags"] = tags
    assert settings_in(render(values)).anycast_ip.tags == {}


def test_one_value_under_both_names_is_taken() -> None:
    objects = render(original(cloud={"region": "ap-hongkong"}, anycastIP={"bandwidth": 200}))
    assert settings_in(objects).cloud.region == "ap-hongkong"


@pytest.mark.parametrize(
    ("ours", "others"),
    [
        ({"cloud": {"region": "ap-tokyo"}}, "cloud.region and config.region.longName"),
        ({"cloud": {"secretID": "x"}}, "cloud.secretID and credential.secretID"),
        ({"cloud": {"secretKey": "x-secret"}}, "cloud.secretKey and credential.secretKey"),
        ({"anycastIP": {"clusterID": "cls-x"}}, "anycastIP.clusterID and credential.clusterID"),
        ({"anycastIP": {"nodeLabels": {"a": "b"}}}, "anycastIP.nodeLabels and config.node.labels"),
        ({"anycastIP": {"addressType": "EIP"}}, "anycastIP.addressType and config.aia.addressType"),
        ({"anycastIP": {"bandwidth": 5}}, "anycastIP.bandwidth and config.aia.bandwidth"),
        ({"anycastIP": {"tags": {"a": "b"}}}, "anycastIP.tags and config.aia.tags"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_two_names_of_one_value_must_not_differ(ours: dict[str, Any], others: str) -> None:
    said = refusal(original(**ours))
    assert f"{others} are both set, and differ" in said
    assert "old-secret" not in said
    assert "x-secret" not in said


def test_the_notes_name_what_means_nothing_here() -> None:
    said = notes(original())
    assert "Ignored, without effect here: credential.appID, config.region.shortName, controller." in said
    assert "old-secret" not in said


def test_the_notes_say_that_the_original_alone_gives_no_node_an_address() -> None:
    said = notes(original(anycastIP={"enabled": False}))
    assert "No node gets an address: credential.clusterID is set, but anycastIP.enabled is false." in said
