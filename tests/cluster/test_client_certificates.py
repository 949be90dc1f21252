"""With webhook.clientCA, the API server is answered and a plain client is refused in the handshake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dev.lab import install, webhook_client
from dev.lab.bootstrap import running
from dev.lab.session import Lab
from tests.cluster.workloads import (
    VALUES,
    records,
    reserved_namespace,
    running_pod,
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
