"""What the API server makes of the conditions by which a pod whose addresses are reserved costs no call."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

import pytest
import yaml

from api.standing import CONDITION, RESERVED, expression_of
from dev.lab import chart
from dev.lab.session import Lab
from kube.errors import ServerError
from kube.resources import PODS, VALIDATING_WEBHOOKS
from kube.types import Pod
from tests.cluster import workloads

EPOCH, OTHER = "0123456789abcdef", "fedcba9876543210"


@pytest.fixture(scope="module")
def namespace(bare_lab: Lab) -> Iterator[str]:
    """In which each deletion that is sent to a webhook is refused: its server does not answer."""
    name = workloads.reserved_namespace(bare_lab.client, f"standing-{secrets.token_hex(3)}")
    rendered = yaml.safe_load_all(chart.manifests("{}"))
    [configuration] = [each for each in rendered if each and each["kind"] == "ValidatingWebhookConfiguration"]
    webhook = configuration["webhooks"][0]
    conditions = [*webhook["matchConditions"], {"name": CONDITION, "expression": expression_of(EPOCH)}]
    selector = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    nowhere = {"url": "https://127.0.0.1:1/"}
    changed = webhook | {
        "clientConfig": nowhere,
        "matchConditions": conditions,
        "namespaceSelector": selector,
    }
    body = configuration | {"metadata": {"name": name}, "webhooks": [changed]}
    bare_lab.client.create(VALIDATING_WEBHOOKS, body)
    bare_lab.wait(
        lambda: is_called(bare_lab, created(bare_lab, name, ["10.9.0.1"], "")), 60, "the webhook to be called"
    )
    yield name
    bare_lab.client.delete(VALIDATING_WEBHOOKS, name)


def created(lab: Lab, namespace: str, ips: Sequence[str], reserved: str) -> Pod:
    """A pod that no kubelet knows; *reserved* has the place of its uid in braces."""
    name = f"a-{secrets.token_hex(4)}"
    workloads.create_pod(lab, namespace, name, nodeName="nowhere", tolerations=[{"operator": "Exists"}])
    uid = workloads.get_pod(lab, namespace, name).metadata.uid
    if reserved:
        annotation = {RESERVED: reserved.format(uid=uid)}
        lab.client.patch(PODS, name, {"metadata": {"annotations": annotation}}, namespace)
    found = [{"ip": each} for each in ips]
    pod = workloads.get_pod(lab, namespace, name)
    return workloads.patch_status(lab, pod, phase="Running", podIP=ips[0], podIPs=found)


def is_called(lab: Lab, pod: Pod, *, evicted: bool = False) -> bool:
    try:
        if evicted:
            workloads.evict(lab, pod)
        else:
            lab.client.delete(PODS, pod.metadata.name, pod.metadata.namespace)
    except ServerError as error:
        return "failed calling webhook" in error.message
    return False


@pytest.mark.parametrize(
    ("ips", "reserved", "called"),
    [
        pytest.param(["10.9.0.1"], EPOCH + "/{uid}/10.9.0.1", False, id="reserved"),
        pytest.param(
            ["10.9.0.1", "2001:db8::1"],
            EPOCH + "/{uid}/10.9.0.1,2001:db8::1",
            False,
            id="both of its addresses",
        ),
        pytest.param(["10.9.0.1"], "", True, id="no annotation"),
        pytest.param(["10.9.0.1", "2001:db8::1"], EPOCH + "/{uid}/10.9.0.1", True, id="one of its addresses"),
        pytest.param(["10.9.0.2"], EPOCH + "/{uid}/10.9.0.1", True, id="another address"),
        pytest.param(["10.9.0.1"], EPOCH + "/x/10.9.0.1", True, id="another pod"),
        pytest.param(["10.9.0.1"], OTHER + "/{uid}/10.9.0.1", True, id="another epoch"),
    ],
)
def test_a_pod_whose_addresses_are_reserved_costs_no_call(
    bare_lab: Lab, namespace: str, ips: list[str], reserved: str, called: bool
) -> None:
    pod = created(bare_lab, namespace, ips, reserved)

    assert is_called(bare_lab, pod, evicted=True)
    assert is_called(bare_lab, pod) is called
