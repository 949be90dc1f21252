"""What a stolen token of each ServiceAccount cannot do, although RBAC alone would permit it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from dev.lab.bootstrap import running
from dev.lab.health_checkers import kubeconfig_of
from dev.lab.install import NAMESPACE
from dev.lab.kubeconfig import client_of
from dev.lab.session import Lab
from kube.client import Client
from kube.errors import ApiError
from kube.resources import NODES
from kube.transport import STRATEGIC_PATCH, Typed
from tests.cluster.stolen_token import faults_in_policies, refusal
from tests.cluster.workloads import evict_absent

VALUES: dict[str, Any] = {
    "certs": {"mode": "self-managed", "existingSecret": "", "caBundle": ""},
    "ipReservation": {"enabled": True},
    "elasticity": {"enabled": True, "homeFailover": {"enabled": True}, "returnHome": {"enabled": True}},
    "anycastIP": {"enabled": True, "clusterID": "cls-attacks"},
    "cloud": {"region": "ap-singapore"},
    "ingressDaemonSet": {"enabled": True},
    "replicaCount": 1,
    "controllers": {"replicaCount": 1},
}
CONFIGURATIONS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
OWNER = {
    "apiVersion": "ingressdaemonsets.mumoshu.github.io/v1alpha1",
    "kind": "IngressDaemonSet",
    "name": "edge",
    "uid": "00000000-0000-0000-0000-000000000001",
    "controller": True,
}
TEMPLATE = {
    "metadata": {"labels": {"app": "victim"}},
    "spec": {"containers": [{"name": "app", "image": "app:1"}]},
}
EVIL = {"containers": [{"name": "app", "image": "evil:1", "securityContext": {"privileged": True}}]}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running(values=VALUES, calico="both", nodes=2, cloud={}) as up:
        for manifest in VICTIMS:
            up.kubectl("apply", "--filename=-", stdin=json.dumps(manifest))
        yield up


def workload(
    kind: str, name: str, namespace: str = "kube-system", *, owned: bool = False, **template: Any
) -> dict[str, Any]:
    owners = {"ownerReferences": [OWNER]} if owned else {}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, **owners},
        "spec": {
            "selector": {"matchLabels": {"app": "victim"}},
            "template": {**TEMPLATE, **({"spec": template} if template else {})},
        },
    }


def role_binding(role: str, *, owned: bool) -> dict[str, Any]:
    owners = {"ownerReferences": [OWNER]} if owned else {}
    rbac = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "attack", "namespace": "default", **owners},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": f"{NAMESPACE}-{role}"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "kube-system"}],
    }


def reservation(name: str, *cidrs: str) -> dict[str, Any]:
    return {
        "apiVersion": "projectcalico.org/v3",
        "kind": "IPReservation",
        "metadata": {"name": name},
        "spec": {"reservedCIDRs": list(cidrs)},
    }


def node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"zone": "a"}}}


INGRESS = {
    "apiVersion": "ingressdaemonsets.mumoshu.github.io/v1alpha1",
    "kind": "IngressDaemonSet",
    "metadata": {"name": "victim", "namespace": "default"},
    "spec": {"template": TEMPLATE, "nodeSelector": {"no": "where"}},
}
VICTIMS = [
    node("victim"),
    workload("Deployment", "victim"),
    workload("DaemonSet", "victim", nodeSelector={"no": "where"}, **TEMPLATE["spec"]),
    {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": "victim", "namespace": "kube-system"},
        "data": {"spec": {}},
        "revision": 1,
    },
    reservation("operators", "10.9.0.0/24"),
    INGRESS,
]

CREATE = ("create", "--filename=-")
APPLY = ("apply", "--server-side", "--force-conflicts", "--filename=-")
PATCH = {"spec": {"template": {"spec": EVIL}}}


def merge(what: str, patch: object, *more: str) -> tuple[str, ...]:
    return ("patch", *what.split(), "--type=merge", f"--patch={json.dumps(patch)}", *more)


NOT_OF_AN_INGRESS = "only Deployments, DaemonSets and ControllerRevisions of an IngressDaemonSet"
IN_KUBE_SYSTEM = "--namespace=kube-system"


@dataclass(frozen=True)
class Attack:
    """A kubectl by the token of *account*, and what its refusal says."""

    refusal: str
    command: tuple[str, ...]
    manifest: object = None
    account: str = "controllers"


ATTACKS = {
    "delete a node": Attack("super nodes only", ("delete", "node", "victim")),
    "create a node": Attack("super nodes only", CREATE, node("evil")),
    "relabel a node": Attack(
        "nothing but annotations and taints of a node",
        merge("node victim", {"metadata": {"labels": {"zone": "b"}}}),
    ),
    "make a node a super node, and then delete it": Attack(
        "nothing but annotations and taints of a node",
        merge("node victim", {"metadata": {"labels": {"node.kubernetes.io/instance-type": "eklet"}}}),
    ),
    # In a namespace of IngressDaemonSets: of two policies that refuse, the API server names either.
    "start privileged pods under any ServiceAccount": Attack(
        NOT_OF_AN_INGRESS,
        CREATE,
        workload("Deployment", "evil", "default", serviceAccountName="default", **EVIL),
    ),
    "start pods in kube-system by a forged owner": Attack(
        "list it in ingressDaemonSet.namespaces", CREATE, workload("Deployment", "evil", owned=True, **EVIL)
    ),
    "delete any Deployment": Attack(NOT_OF_AN_INGRESS, ("delete", "deployment", "victim", IN_KUBE_SYSTEM)),
    "take over any Deployment": Attack(
        NOT_OF_AN_INGRESS,
        merge("deployment victim", {"metadata": {"ownerReferences": [OWNER]}}, IN_KUBE_SYSTEM),
    ),
    "run any image by a DaemonSet": Attack(
        NOT_OF_AN_INGRESS, merge("daemonset victim", PATCH, IN_KUBE_SYSTEM)
    ),
    "delete the history of any StatefulSet": Attack(
        NOT_OF_AN_INGRESS, ("delete", "controllerrevision", "victim", IN_KUBE_SYSTEM)
    ),
    "grant its own permissions to others": Attack(
        "nothing but the permissions of health checkers", CREATE, role_binding("controllers", owned=True)
    ),
    "grant permissions without an IngressDaemonSet": Attack(
        "only RoleBindings of an IngressDaemonSet", CREATE, role_binding("health-checker", owned=False)
    ),
    "change the template of an IngressDaemonSet": Attack(
        "may not change the spec of an IngressDaemonSet", merge("ingressdaemonset victim", PATCH)
    ),
    "take a whole pool out of circulation": Attack(
        "single addresses only", CREATE, reservation("drawbridge-evil", "10.0.0.0/8"), "webhook"
    ),
    "take many addresses out of circulation at once": Attack(
        "addresses in one IPReservation",
        CREATE,
        reservation("drawbridge-evil", *(f"10.0.{i // 250}.{i % 250}/32" for i in range(1000))),
        "webhook",
    ),
    "release addresses that an operator reserved": Attack(
        "only IPReservations that it created", ("delete", "ipreservations.projectcalico.org", "operators")
    ),
    # By apply, which does not read it before, as `kubectl patch` does.
    "change what an operator reserved": Attack(
        "only IPReservations that it created", APPLY, reservation("operators"), "webhook"
    ),
    "get the token of another ServiceAccount by a Secret": Attack(
        "no Secret but its certificate",
        CREATE,
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": "drawbridge-webhook-tls",
                "namespace": NAMESPACE,
                "annotations": {"kubernetes.io/service-account.name": "drawbridge-webhook"},
            },
            "type": "kubernetes.io/service-account-token",
        },
    ),
    "change Drawbridge's settings": Attack(
        "only ConfigMaps with address claims",
        ("delete", "configmap", f"{NAMESPACE}-config", f"--namespace={NAMESPACE}"),
    ),
    "write ConfigMaps of kube-system": Attack(
        "only ConfigMaps with address claims", ("create", "configmap", "evil", IN_KUBE_SYSTEM)
    ),
}


def test_a_stolen_token_cannot(lab: Lab, subtests: pytest.Subtests) -> None:
    for name, attack in ATTACKS.items():
        with subtests.test(name):
            said = refusal(lab, attack.account, *attack.command, manifest=attack.manifest)
            assert attack.refusal in said


READ = {"uid": "00000000-0000-0000-0000-000000000001", "resourceVersion": "1"}
NOT_EVICTED = "evict a pod only as the version of it that it has read, and within its grace period"
EVICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "as it was read": ({"preconditions": READ}, "not found"),
    "whatever it is": ({}, NOT_EVICTED),
    "in any version": ({"preconditions": {"uid": READ["uid"]}}, NOT_EVICTED),
    "at once": ({"preconditions": READ, "gracePeriodSeconds": 0}, NOT_EVICTED),
}


def test_the_controllers_may_evict_a_pod_as_they_have_read_it_and_not_otherwise(
    controllers: Client, subtests: pytest.Subtests
) -> None:
    for how, (options, expected) in EVICTIONS.items():
        with subtests.test(how), pytest.raises(ApiError, match=expected):
            evict_absent(controllers, "default", deleteOptions=options)


OURS = {"type": "AnycastIPReady", "status": "True"}
STATUS_OF_A_NODE: dict[str, tuple[dict[str, Any], str]] = {
    "their condition": ({"status": {"conditions": [OURS]}}, ""),
    "a condition of the kubelet": (
        {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        "no condition of a node but AnycastIPReady",
    ),
    "the capacity": (
        {"status": {"capacity": {"cpu": "1000"}}},
        "nothing but a condition in the status of a node",
    ),
    "labels": ({"metadata": {"labels": {"zone": "b"}}}, "nothing but a condition in the status of a node"),
}


def test_of_the_status_of_a_node_the_controllers_may_write_their_condition_alone(
    controllers: Client, subtests: pytest.Subtests
) -> None:
    """By the token itself: kubectl reads the status before it writes it, which they may not."""
    path = NODES.sub("status").path(name="victim")
    for part, (change, expected) in STATUS_OF_A_NODE.items():
        with subtests.test(part), pytest.raises(ApiError, match=expected) if expected else nullcontext():
            controllers.request("PATCH", path, body=Typed(STRATEGIC_PATCH, change), query={"dryRun": "All"})


@pytest.fixture
def controllers(lab: Lab) -> Iterator[Client]:
    """With their token."""
    client = client_of(kubeconfig_of(lab, NAMESPACE, "drawbridge-controllers"))
    yield client
    client.close()


def renewed(webhook: dict[str, Any]) -> str:
    return base64.b64encode(base64.b64decode(webhook["clientConfig"]["caBundle"]) * 2).decode()


CHANGES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "a foreign URL": lambda _: {"clientConfig": {"url": "https://198.51.100.7/"}},
    "Secrets, too": lambda webhook: {
        "rules": [{**webhook["rules"][0], "resources": [*webhook["rules"][0]["resources"], "secrets"]}]
    },
    "everywhere": lambda _: {"namespaceSelector": {}, "matchConditions": []},
    "another failure policy": lambda webhook: {
        "failurePolicy": "Ignore" if webhook["failurePolicy"] == "Fail" else "Fail"
    },
    "another name": lambda _: {"name": "added.example.com"},
}


def test_of_webhook_configurations_the_controllers_may_change_ca_bundles_alone(
    lab: Lab, subtests: pytest.Subtests
) -> None:
    for kind in CONFIGURATIONS:
        found: dict[str, Any] = json.loads(lab.kubectl("get", kind, "drawbridge", "--output=json").stdout)
        first, *others = found["webhooks"]

        def said(webhook: dict[str, Any]) -> str:
            changed = {**found, "webhooks": [webhook, *others]}  # noqa: B023
            return refusal(lab, "controllers", "replace", "--filename=-", manifest=changed)

        for name, change in CHANGES.items():
            with subtests.test(name, of=kind):
                assert "nothing but caBundle" in said({**first, **change(first)})
        assert said({**first, "clientConfig": {**first["clientConfig"], "caBundle": renewed(first)}}) == ""


def test_the_controllers_may_issue_a_certificate_again(lab: Lab) -> None:
    """Also when it was emptied, of the type that the chart gives it."""
    place = ("secret", "drawbridge-webhook-tls", f"--namespace={NAMESPACE}")
    for verb, *arguments in (("patch", "--patch", '{"data": null}'), ("delete",)):
        lab.kubectl(verb, *place, *arguments)

        def issued() -> str:
            return lab.kubectl("get", *place, "--output=jsonpath={.data.tls\\.crt}", check=False).stdout

        lab.wait(lambda: issued() != "", 60, f"another certificate after {verb}")


EDITOR = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: ingress-editor, namespace: default}
rules:
  - {apiGroups: [ingressdaemonsets.mumoshu.github.io], resources: [ingressdaemonsets], verbs: ["*"]}
"""


def test_the_author_of_a_template_must_be_allowed_to_start_pods(lab: Lab) -> None:
    lab.kubectl("apply", "--filename=-", stdin=EDITOR)
    lab.kubectl(
        "create",
        "rolebinding",
        "ingress-editor",
        "--role=ingress-editor",
        "--user=editor",
        "--namespace=default",
    )
    changed = yaml.safe_dump({**INGRESS, "spec": {**INGRESS["spec"], "template": TEMPLATE | {"spec": EVIL}}})
    created = yaml.safe_dump({**INGRESS, "metadata": {"name": "new", "namespace": "default"}})

    def as_editor(*arguments: str, stdin: str | None = None) -> str:
        done = lab.kubectl(*arguments, "--as=editor", "--dry-run=server", stdin=stdin, check=False)
        return done.stderr if done.returncode else ""

    annotate = ("annotate", "ingressdaemonset", "victim", "a=b")
    lab.wait(lambda: as_editor(*annotate) == "", 30, "the permission of an editor to count")
    assert "user editor may not create Deployments in namespace default" in as_editor(*CREATE, stdin=created)
    assert "user editor may not create Deployments" in as_editor("replace", "--filename=-", stdin=changed)

    lab.kubectl(
        "create", "role", "starter", "--verb=create", "--resource=deployments.apps", "--namespace=default"
    )
    lab.kubectl("create", "rolebinding", "starter", "--role=starter", "--user=editor", "--namespace=default")
    lab.wait(lambda: as_editor(*CREATE, stdin=created) == "", 30, "the permission to count")


def test_the_api_server_finds_no_fault_in_the_policies(lab: Lab) -> None:
    found = faults_in_policies(lab)

    assert len(found) > 8
    assert [name for name, faults in found.items() if faults != {}] == []
