"""With webhook.clientCA, the API server is answered and a plain client is refused in the handshake."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from certs.issue import new_ca
from dev.lab import install, webhook_client
from dev.lab.bootstrap import running
from dev.lab.session import Lab
from dev.lab.waiting import at_most
from kube.errors import ApiError
from kube.resources import CONFIG_MAPS
from tests.cluster.workloads import (
    SECONDS,
    VALUES,
    evict_absent,
    metrics,
    records,
    reserved_namespace,
    running_pod,
    sample,
)

pytestmark = pytest.mark.nightly

FEATURES: dict[str, Any] = VALUES | {"elasticity": {"enabled": True}, "controllers": {"replicaCount": 1}}
"""One with a validating, one with a mutating webhook: each is called by a plugin with a separate configuration."""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running(chart=False, nodes=2, kwok_nodes=1) as up:
        ca = (up.directory / webhook_client.CA_FILE).read_text()
        install.install_chart(up, FEATURES | {"webhook": {"clientCA": ca}})
        yield up


def test_a_deletion_is_reserved_by_a_server_that_requires_a_certificate(lab: Lab) -> None:
    namespace = reserved_namespace(lab.client, "certified")
    pod = running_pod(lab, namespace, "redis")

    lab.kubectl("-n", namespace, "delete", "pod", "redis", "--wait=false")
    assert pod.metadata.uid in records(lab, "v3")


def test_an_api_server_that_is_refused_says_why_and_the_config_map_is_the_way_back(lab: Lab) -> None:
    namespace = reserved_namespace(lab.client, "locked")
    pod = running_pod(lab, namespace, "redis")
    begin = datetime.now(UTC)
    other = new_ca("others", begin, begin + timedelta(days=1)).certificate.decode()

    require(lab, other)
    lab.kubectl("-n", install.NAMESPACE, "rollout", "restart", "deployment/drawbridge-webhook")
    lab.kubectl("-n", install.NAMESPACE, "rollout", "status", "deployment/drawbridge-webhook", at_most(60))
    # Servers that end still answer on open connections.
    lab.wait(lambda: "tls: unknown certificate authority" in refusal(lab, namespace), SECONDS, "the refusal")

    before = settings_of_servers(lab)
    require(lab, "")
    # As long as one of them requires the other certificate, any request may meet that one.
    lab.wait(lambda: not before & settings_of_servers(lab), SECONDS, "all servers to take the way back")
    lab.wait(lambda: "not found" in refusal(lab, namespace), SECONDS, "the deletion to be admitted")
    lab.kubectl("-n", namespace, "delete", "pod", "redis", "--wait=false")
    assert pod.metadata.uid in records(lab, "v3")


def require(lab: Lab, client_ca: str) -> None:
    """Edit the ConfigMap."""
    found = lab.client.get(CONFIG_MAPS, "drawbridge-config", install.NAMESPACE)
    config = yaml.safe_load(found["data"]["config.yaml"])
    config["webhook"]["clientCA"] = client_ca
    patch = {"data": {"config.yaml": yaml.safe_dump(config)}}
    lab.client.patch(CONFIG_MAPS, "drawbridge-config", patch, install.NAMESPACE)


def settings_of_servers(lab: Lab) -> set[float]:
    """Hashes of the settings that are in force in them."""
    return {sample(each, "drawbridge_config_hash") for each in metrics(lab, "webhook")}


def refusal(lab: Lab, namespace: str) -> str:
    with pytest.raises(ApiError) as refused:
        evict_absent(lab.client, namespace)
    return str(refused.value)
