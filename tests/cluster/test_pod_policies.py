"""What the policy of pods lets the controllers do, for each combination of the values that it follows."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import closing
from functools import partial, reduce
from itertools import product
from typing import Any

import pytest
import yaml

from api.ip_reservation import RESERVE, RESERVE_FROM
from api.same_address import IP_ADDRS, SAME_ADDRESS_FROM
from api.standing import RESERVED
from dev.lab import chart
from dev.lab.health_checkers import kubeconfig_of
from dev.lab.install import merged
from dev.lab.kubeconfig import client_of
from dev.lab.session import Lab
from kube.client import Client
from kube.errors import ApiError
from kube.resources import NODES, PODS
from tests.cluster import workloads
from tests.cluster.stolen_token import faults_in_policies

NAMESPACE = NODE = "t-pod-policies"
THEIRS, EGRESS_CHECK = "example.com/theirs", "drawbridge.io/egress-check"
PROMISED = {IP_ADDRS: '["10.0.0.1"]', SAME_ADDRESS_FROM: 'a=["10.0.0.1"]'}
DEFINED: dict[str, dict[str, Any]] = {
    "plain": {"annotations": {THEIRS: "a"}, "labels": {"app": "redis"}},
    "bare": {},
    "marked": {"annotations": {RESERVED: "x"}},
    "promised": {"annotations": PROMISED},
    "asking": {"annotations": {IP_ADDRS: '["10.0.0.1"]'}},
    "running": {},
    "checking": {"labels": {EGRESS_CHECK: "anycast-ip"}},
    "unbound": {},
}
"""Pods by their names, with their metadata. All but one are bound; of all but two, no node has begun to run them."""
ON_THE_WAY = {"checking", "running"}


def annotations(values: dict[str, str | None]) -> dict[str, Any]:
    return {"metadata": {"annotations": values}}


def first(kind: str, image: str) -> list[dict[str, str]]:
    return [{"op": "replace", "path": f"/spec/{kind}/0/image", "value": image}]


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "a"}
OF_ANNOTATIONS: dict[str, tuple[str, Any]] = {
    "mark": ("plain", annotations({RESERVED: "x"})),
    "mark a pod without annotations": ("bare", annotations({RESERVED: "x"})),
    "remove a mark": ("marked", annotations({RESERVED: None})),
    "copy what a workload asks for": ("plain", annotations({RESERVE: "true", RESERVE_FROM: "x"})),
    "end a promised address": ("promised", annotations(dict.fromkeys(PROMISED))),
    "end an address that a user asked for": ("asking", annotations({IP_ADDRS: None})),
    "ask for an address": ("plain", annotations({IP_ADDRS: '["10.0.0.9"]'})),
    "ask for another address": ("promised", annotations({IP_ADDRS: '["10.0.0.9"]'})),
    "promise an address": ("plain", annotations(PROMISED)),
    "remove another annotation": ("plain", annotations({THEIRS: None})),
    "change another annotation": ("plain", annotations({THEIRS: "b"})),
    "add another annotation": ("bare", annotations({THEIRS: "a"})),
}
OF_OTHERS: dict[str, tuple[str, Any]] = {
    "add a toleration": (
        "plain",
        [{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "a", "operator": "Exists"}}],
    ),
    "change an image": ("plain", first("containers", "evil")),
    "change the image of an init container": ("plain", first("initContainers", "evil")),
    "set a deadline": ("plain", {"spec": {"activeDeadlineSeconds": 1}}),
    "change a label": ("plain", {"metadata": {"labels": {"app": "bank"}}}),
    "add an owner": ("plain", {"metadata": {"ownerReferences": [OWNER]}}),
    "add a finalizer": ("plain", {"metadata": {"finalizers": ["example.com/hold"]}}),
}
DELETIONS: dict[str, tuple[str, Any]] = {
    "delete an unbound pod": ("unbound", None),
    "delete a pod that its node has not begun to run": ("plain", None),
    "delete a running pod": ("running", None),
    "delete a pod that checks the egress": ("checking", None),
}
REQUESTS = OF_ANNOTATIONS | OF_OTHERS | DELETIONS
"""By what they do: the pod, and its patch, or None for its deletion."""

OF_IP_RESERVATION: dict[str, tuple[dict[str, Any], Collection[str]]] = {
    "standing": (
        {"standing": {"enabled": True}},
        ("mark", "mark a pod without annotations", "remove a mark"),
    ),
    "workloadOptIn": ({"workloadOptIn": True}, ("copy what a workload asks for",)),
    "sameAddress": ({"sameAddress": {"enabled": True}}, ("end a promised address",)),
}
"""By setting of ip_reservation: its values, and what they permit of what no other setting does."""
NOTHING: dict[str, Any] = {"ipReservation": {"enabled": True, "standing": {"enabled": False}}}
ALL = merged(NOTHING, {"ipReservation": reduce(merged, (values for values, _ in OF_IP_RESERVATION.values()))})
ELASTIC = {"elasticity": {"enabled": True}}
FAILOVER = {"elasticity": {"homeFailover": {"enabled": True}}}
EGRESS = {
    "anycastIP": {
        "enabled": True,
        "clusterID": "cls-1",
        "egressCheck": {"enabled": True, "url": "https://ip.example.com/"},
    },
    "cloud": {"region": "ap-singapore", "existingSecret": "keys"},
}
PLACING = {*OF_ANNOTATIONS, "add a toleration"}


def variants() -> Iterator[tuple[str, dict[str, Any], Collection[str]]]:
    """Each with its values and the names of what they permit. RBAC alone forbids deletions without failover."""
    for chosen in product((False, True), repeat=len(OF_IP_RESERVATION)):
        names = [name for name, is_chosen in zip(OF_IP_RESERVATION, chosen, strict=True) if is_chosen]
        values = reduce(merged, ({"ipReservation": OF_IP_RESERVATION[name][0]} for name in names), NOTHING)
        permitted = {each for name in names for each in OF_IP_RESERVATION[name][1]}
        yield " ".join(names), values, {*permitted, *DELETIONS} if names else {*REQUESTS}
    opening = {"elasticity": {"advanced": {"openGates": "controllers"}}}
    unjudged = {*PLACING, *DELETIONS}
    yield "elasticity", merged(NOTHING, ELASTIC), unjudged
    yield "elasticity and all", merged(ALL, ELASTIC), unjudged
    yield "elasticity and egress", merged(merged(ALL, ELASTIC), EGRESS), unjudged
    yield "open gates", merged(NOTHING, opening), unjudged
    yield "open gates and failover", merged(merged(ALL, opening), FAILOVER), unjudged
    failover = merged(merged(ALL, ELASTIC), FAILOVER)
    deleting = {*PLACING, "delete an unbound pod", "delete a pod that its node has not begun to run"}
    yield "failover", failover, deleting
    checks = "delete a pod that checks the egress"
    yield "failover and egress", merged(failover, EGRESS), {*deleting, checks}


VARIANTS = {name or "neither": (values, permitted) for name, values, permitted in variants()}
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


@pytest.fixture(scope="module")
def lab(bare_lab: Lab) -> Iterator[Lab]:
    """With all policies at once, each for its own ServiceAccount, which RBAC lets do everything."""
    workloads.namespace(bare_lab.client, NAMESPACE)
    objects = [each for number in range(len(VARIANTS)) for each in of_variant(number)]
    text = yaml.safe_dump_all(objects)
    bare_lab.kubectl("apply", "--server-side", "--validate=strict", "--filename=-", stdin=text)
    bare_lab.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    for name, metadata in DEFINED.items():
        create(bare_lab, name, metadata)
    yield bare_lab
    bare_lab.kubectl("delete", "--filename=-", "--ignore-not-found", "--wait=false", stdin=text)
    bare_lab.kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--force")
    bare_lab.client.delete(NODES, NODE)
    bare_lab.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def of_variant(number: int) -> Iterator[dict[str, Any]]:
    """Its policy, if it has one, with the binding; and its ServiceAccount and permissions."""
    name, account = f"variant-{number}", f"variant-{number}-controllers"
    values, _ = list(VARIANTS.values())[number]
    rendered = chart.manifests(json.dumps(values | {"fullnameOverride": name}), "--namespace", NAMESPACE)
    for each in yaml.load_all(rendered, Loader=yaml.CSafeLoader):
        if each and each["kind"] in POLICIES and each["metadata"]["name"] == f"{name}-pods":
            yield each
    rbac = "rbac.authorization.k8s.io"
    yield {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": account, "namespace": NAMESPACE},
    }
    yield {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": account},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
    }


def create(lab: Lab, name: str, metadata: dict[str, Any]) -> None:
    container = {"name": "redis", "image": "redis"}
    where = {"schedulerName": "absent"} if name == "unbound" else {"nodeName": NODE}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {
            "containers": [container],
            "initContainers": [container | {"name": "first"}],
            "tolerations": [{"operator": "Exists"}],
            **where,
        },
    }
    lab.client.create(PODS, pod, NAMESPACE)
    if name in ON_THE_WAY:
        workloads.patch_status(lab, workloads.get_pod(lab, NAMESPACE, name), phase="Running")


def refusal(client: Client, request: str) -> str:
    """By the policy, of what is not stored in any case."""
    pod, patch = REQUESTS[request]
    method = "DELETE" if patch is None else "PATCH"
    try:
        client.request(method, PODS.path(NAMESPACE, pod), body=patch, query={"dryRun": "All"})
    except ApiError as error:
        if "ValidatingAdmissionPolicy" not in str(error):
            raise
        return str(error)
    return ""


def test_the_api_server_finds_no_fault_in_any_policy(lab: Lab) -> None:
    found = {name: faults for name, faults in faults_in_policies(lab).items() if name.startswith("variant-")}

    assert len(found) == sum(len(permitted) < len(REQUESTS) for _, permitted in VARIANTS.values())
    assert not any(found.values())


def test_each_policy_permits_what_its_features_need_and_nothing_else(
    lab: Lab, subtests: pytest.Subtests
) -> None:
    for number, (name, (_, permitted)) in enumerate(VARIANTS.items()):
        kubeconfig = kubeconfig_of(lab, NAMESPACE, f"variant-{number}-controllers")
        refused = sorted(REQUESTS.keys() - {*permitted})
        with subtests.test(name), closing(client_of(kubeconfig, timeout=60)) as client:
            if refused:
                lab.wait(partial(refusal, client, "change an image"), 60, "the policy to be in force")
            assert sorted(each for each in REQUESTS if refusal(client, each)) == refused
