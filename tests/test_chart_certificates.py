"""The chart with cert-manager: certificates whose renewals and successors the servers and API servers know."""

from __future__ import annotations

import pytest

from certs.issue import COMMON_NAME_LENGTH
from controllers.certificates.controller import rules
from tests.charts import NAMESPACE, helm_needed, render, settings_in

pytestmark = helm_needed


@pytest.mark.parametrize("name", ["drawbridge", "drawbridge-of-a-rather-long-name-for-a-release"])
def test_controllers_that_take_over_know_the_ca_of_cert_manager_by_its_name(name: str) -> None:
    objects = render({"fullnameOverride": name, "certs": {"mode": "cert-manager"}})
    ours = rules(settings_in(objects).certs, NAMESPACE).authority_name

    assert objects["Certificate", f"{name}-webhook-ca"]["spec"]["commonName"] == ours[:COMMON_NAME_LENGTH]


def test_a_renewed_ca_verifies_every_certificate_in_use() -> None:
    objects = render({"certs": {"mode": "cert-manager"}})
    ca, leaf = (objects["Certificate", f"drawbridge-{name}"]["spec"] for name in ("webhook-ca", "webhook"))

    assert (ca["privateKey"]["rotationPolicy"], leaf["privateKey"]["rotationPolicy"]) == ("Never", "Always")
    assert ca["renewBefore"] == leaf["duration"]
