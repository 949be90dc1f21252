"""What policies let others, and a stolen token of the controllers, write of what spares a pod its review."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from api.standing import CONDITION, RESERVED, expression_of
from dev.lab.bootstrap import running
from dev.lab.install import NAMESPACE
from dev.lab.session import Lab
from tests.cluster import workloads
from tests.cluster.stolen_token import faults_in_policies, refusal

EPOCH, OTHER = "0123456789abcdef", "fedcba9876543210"
EXPRESSION = expression_of(EPOCH)
NAMES = ("drawbridge", "drawbridge-ingress-daemonset")
VALUES: dict[str, Any] = {
    "replicaCount": 1,
    "controllers": {"replicaCount": 1},
    "ipReservation": {"standing": {"enabled": True}},
    "ingressDaemonSet": {"enabled": True},
}
SELF_MANAGED = {"certs": {"mode": "self-managed", "existingSecret": "", "caBundle": ""}}


@pytest.fixture(scope="module", params=["files", "self-managed"])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Without controllers, which would write the same."""
    own = SELF_MANAGED if request.param == "self-managed" else {}
    with running(values=VALUES | own, nodes=1, kwok_nodes=1) as up:
        up.kubectl("-n", NAMESPACE, "scale", "deployment", "drawbridge-controllers", "--replicas=0")
        workloads.reserved_namespace(up.client, "shop")
        workloads.namespace(up.client, "other")
        for namespace in ("shop", "other"):
            workloads.create_pod(up, namespace, "victim", schedulerName="absent")
        yield up


def test_the_policies_have_the_types_of_what_they_read(lab: Lab) -> None:
    assert not any(faults_in_policies(lab).values())


def configuration(lab: Lab, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        lab.kubectl("get", "validatingwebhookconfiguration", name, "--output=json").stdout
    )
    return found


def with_condition(found: dict[str, Any], expression: str | None, name: str = CONDITION) -> dict[str, Any]:
    """In each webhook; without it when *expression* is None."""
    added = [] if expression is None else [{"name": name, "expression": expression}]
    kept = [
        [each for each in webhook.get("matchConditions", []) if each["name"] != name]
        for webhook in found["webhooks"]
    ]
    webhooks = [
        webhook | {"matchConditions": [*others, *added]}
        for webhook, others in zip(found["webhooks"], kept, strict=True)
    ]
    return found | {"webhooks": webhooks}


def refused(lab: Lab, changed: dict[str, Any]) -> bool:
    said = refusal(lab, "controllers", "replace", "--filename=-", manifest=changed)
    assert not said or CONDITION in said or "cannot update" in said, said
    return bool(said)


BAD: dict[str, str] = {
    "never": "false",
    "never, and what looks like it": f"false && ({EXPRESSION})",
    "never, after it": f"{EXPRESSION} && false",
    "a longer epoch": EXPRESSION.replace(EPOCH, EPOCH * 2),
    "another epoch that ends early": EXPRESSION.replace(EPOCH, "0' && 'a' != '" + EPOCH[:4]),
    "without the uid": EXPRESSION.replace("+ oldObject.metadata.uid ", ""),
    "several lines": EXPRESSION + "\n&& false",
}


def test_the_controllers_may_write_the_one_condition_into_the_one_configuration(
    lab: Lab, subtests: pytest.Subtests
) -> None:
    ours, ingress = (configuration(lab, name) for name in NAMES)

    assert not refused(lab, with_condition(ours, EXPRESSION))
    assert refused(lab, with_condition(ingress, EXPRESSION))
    assert refused(lab, with_condition(ours, EXPRESSION, name="another"))
    assert refused(lab, with_condition(ours, None, name="pod-needs-a-reservation"))
    for name, expression in BAD.items():
        with subtests.test(name):
            assert refused(lab, with_condition(ours, expression))

    lab.kubectl("replace", "--filename=-", stdin=json.dumps(with_condition(ours, EXPRESSION)))
    stored = configuration(lab, NAMES[0])
    assert not refused(lab, with_condition(stored, EXPRESSION.replace(EPOCH, OTHER)))
    assert not refused(lab, with_condition(stored, None))
    assert refused(lab, with_condition(stored, "false"))


def test_only_self_managed_certificates_let_the_controllers_change_the_ca(lab: Lab) -> None:
    """Also in a configuration whose condition another client has altered."""
    found = with_condition(configuration(lab, NAMES[0]), "true")
    lab.kubectl("replace", "--filename=-", stdin=json.dumps(found))
    first, *others = (stored := configuration(lab, NAMES[0]))["webhooks"]
    is_files = lab.kubectl(
        "-n", NAMESPACE, "get", "configmap", "drawbridge-config", "-o", "jsonpath={.data.config\\.yaml}"
    ).stdout.count("mode: files")
    without = {key: value for key, value in first["clientConfig"].items() if key != "caBundle"}

    assert refused(lab, stored | {"webhooks": [first | {"clientConfig": without}, *others]}) is bool(is_files)
    lab.kubectl(
        "replace",
        "--filename=-",
        stdin=json.dumps(with_condition(stored, None) | {"metadata": {"name": NAMES[0]}}),
    )


def patched(lab: Lab, namespace: str, value: str | None, *options: str) -> str:
    """The answer to a user who may do everything."""
    patch = json.dumps({"metadata": {"annotations": {RESERVED: value}}})
    done = lab.kubectl(
        "patch", "pod", "victim", "-n", namespace, "--type=merge", f"--patch={patch}", *options, check=False
    )
    return done.stderr if done.returncode else ""


def test_others_may_only_take_the_annotation_away(lab: Lab) -> None:
    account = f"system:serviceaccount:{NAMESPACE}:drawbridge-controllers"
    assert "only Drawbridge's controllers" in patched(lab, "shop", "x")
    assert patched(lab, "other", "x") == ""

    assert patched(lab, "shop", "x", f"--as={account}") == ""
    assert "only Drawbridge's controllers" in patched(lab, "shop", "y")
    lab.kubectl("label", "pod", "victim", "-n", "shop", "some=label", "--overwrite")
    assert patched(lab, "shop", None) == ""


def test_a_pod_may_be_created_with_it_and_not_be_bound_with_it(lab: Lab) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "copy", "annotations": {RESERVED: "x"}},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "a", "image": "a"}]},
    }
    lab.kubectl("create", "-n", "shop", "--filename=-", stdin=json.dumps(pod))

    for path in ("pods/copy/binding", "bindings"):
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "copy", "annotations": {RESERVED: "y"}},
            "target": {"kind": "Node", "name": "nowhere"},
        }
        done = lab.kubectl(
            "create",
            f"--raw=/api/v1/namespaces/shop/{path}",
            "--filename=-",
            stdin=json.dumps(binding),
            check=False,
        )
        assert "only Drawbridge's controllers" in done.stderr + done.stdout
    binding["metadata"] = {"name": "copy"}
    lab.kubectl(
        "create", "--raw=/api/v1/namespaces/shop/pods/copy/binding", "--filename=-", stdin=json.dumps(binding)
    )
