"""What a stolen token of each ServiceAccount cannot do, although RBAC alone would permit it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from controllers.anycast_ip.sources import NODES, STRATEGIC
from dev.lab.bootstrap import running
from dev.lab.install import NAMESPACE
from dev.lab.session import Lab
from kube.client import Client, Typed
from kube.errors import ApiError
from kube.resources import PODS
from tests.cluster.stolen_token import faults_in_policies, refusal

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
Webhooks = list[dict[str, Any]]
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


def role_binding(role: dict[str, Any], *, owned: bool) -> dict[str, Any]:
    owners = {"ownerReferences": [OWNER]} if owned else {}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "attack", "namespace": "default", **owners},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", **role},
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


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "victim", "namespace": "default"},
    "spec": {**TEMPLATE["spec"], "nodeName": "victim", "tolerations": [{"operator": "Exists"}]},
}
"""Nothing runs it, and nothing takes it away: its node is there, and it tolerates that this is not ready."""
INGRESS = {
    "apiVersion": "ingressdaemonsets.mumoshu.github.io/v1alpha1",
    "kind": "IngressDaemonSet",
    "metadata": {"name": "victim", "namespace": "default"},
    "spec": {"template": TEMPLATE, "nodeSelector": {"no": "where"}},
}
VICTIMS = [
    POD,
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


ATTACKS: dict[str, tuple[str, tuple[str, ...], object, str]] = {
    "run any image in a running pod": (
        "controllers",
        ("patch", "pod", "victim", '--patch={"spec":{"containers":[{"name":"app","image":"evil:1"}]}}'),
        None,
        "may not change the containers of a pod",
    ),
    "move a pod to another Service by its labels": (
        "controllers",
        merge("pod victim", {"metadata": {"labels": {"app": "bank"}}}),
        None,
        "may not change a pod's deadline, labels, owners or finalizers",
    ),
    "delete a node": ("controllers", ("delete", "node", "victim"), None, "super nodes only"),
    "create a node": ("controllers", CREATE, node("evil"), "super nodes only"),
    "relabel a node": (
        "controllers",
        merge("node victim", {"metadata": {"labels": {"zone": "b"}}}),
        None,
        "nothing but annotations and taints of a node",
    ),
    "make a node a super node, and then delete it": (
        "controllers",
        merge("node victim", {"metadata": {"labels": {"node.kubernetes.io/instance-type": "eklet"}}}),
        None,
        "nothing but annotations and taints of a node",
    ),
    # In a namespace of IngressDaemonSets: of two policies that refuse, the API server names either.
    "start privileged pods under any ServiceAccount": (
        "controllers",
        CREATE,
        workload("Deployment", "evil", "default", serviceAccountName="default", **EVIL),
        "only Deployments, DaemonSets and ControllerRevisions of an IngressDaemonSet",
    ),
    "start pods in kube-system by a forged owner": (
        "controllers",
        CREATE,
        workload("Deployment", "evil", owned=True, **EVIL),
        "list it in ingressDaemonSet.namespaces",
    ),
    "delete any Deployment": (
        "controllers",
        ("delete", "deployment", "victim", "--namespace=kube-system"),
        None,
        "only Deployments, DaemonSets and ControllerRevisions of an IngressDaemonSet",
    ),
    "take over any Deployment": (
        "controllers",
        merge("deployment victim", {"metadata": {"ownerReferences": [OWNER]}}, "--namespace=kube-system"),
        None,
        "only Deployments, DaemonSets and ControllerRevisions of an IngressDaemonSet",
    ),
    "run any image by a DaemonSet": (
        "controllers",
        merge("daemonset victim", PATCH, "--namespace=kube-system"),
        None,
        "only Deployments, DaemonSets and ControllerRevisions of an IngressDaemonSet",
    ),
    "delete the history of any StatefulSet": (
        "controllers",
        ("delete", "controllerrevision", "victim", "--namespace=kube-system"),
        None,
        "only Deployments, DaemonSets and ControllerRevisions of an IngressDaemonSet",
    ),
    "create a Role": (
        "controllers",
        CREATE,
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "evil", "namespace": "kube-system"},
            "rules": [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["create"]}],
        },
        'cannot create resource "roles"',
    ),
    "grant its own permissions to others": (
        "controllers",
        CREATE,
        role_binding({"kind": "ClusterRole", "name": f"{NAMESPACE}-controllers"}, owned=True),
        "nothing but the permissions of health checkers",
    ),
    "grant permissions without an IngressDaemonSet": (
        "controllers",
        CREATE,
        role_binding({"kind": "ClusterRole", "name": f"{NAMESPACE}-health-checker"}, owned=False),
        "only RoleBindings of an IngressDaemonSet",
    ),
    "change the template of an IngressDaemonSet": (
        "controllers",
        merge("ingressdaemonset victim", PATCH),
        None,
        "may not change the spec of an IngressDaemonSet",
    ),
    "take a whole pool out of circulation": (
        "webhook",
        CREATE,
        reservation("drawbridge-evil", "10.0.0.0/8"),
        "single addresses only",
    ),
    "take many addresses out of circulation at once": (
        "webhook",
        CREATE,
        reservation("drawbridge-evil", *(f"10.0.{i // 250}.{i % 250}/32" for i in range(1000))),
        "addresses in one IPReservation",
    ),
    "release addresses that an operator reserved": (
        "controllers",
        ("delete", "ipreservations.projectcalico.org", "operators"),
        None,
        "only IPReservations that it created",
    ),
    "change what an operator reserved": (
        "webhook",
        APPLY,  # which does not read it before, as `kubectl patch` does
        reservation("operators"),
        "only IPReservations that it created",
    ),
    "get the token of another ServiceAccount by a Secret": (
        "controllers",
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
        "no Secret but its certificate",
    ),
    "change Drawbridge's settings": (
        "controllers",
        ("delete", "configmap", f"{NAMESPACE}-config", f"--namespace={NAMESPACE}"),
        None,
        "only ConfigMaps with address claims",
    ),
    "write ConfigMaps of kube-system": (
        "controllers",
        CREATE,
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "evil", "namespace": "kube-system"}},
        "only ConfigMaps with address claims",
    ),
    "delete a running pod": ("controllers", ("delete", "pod", "victim"), None, "only pods that no node runs"),
    "read Secrets with the webhook's token": (
        "webhook",
        ("get", "secrets", "-A"),
        None,
        "cannot list resource",
    ),
    "read Secrets with the controllers' token": (
        "controllers",
        ("get", "secrets", "-A"),
        None,
        "cannot list resource",
    ),
}


def test_a_stolen_token_cannot(lab: Lab, subtests: pytest.Subtests) -> None:
    for attack, (account, arguments, manifest, expected) in ATTACKS.items():
        with subtests.test(attack):
            assert expected in refusal(lab, account, *arguments, manifest=manifest)


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
    """Of a pod that does not exist: admission comes before the look-up of the pod."""
    for how, (options, expected) in EVICTIONS.items():
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "absent", "namespace": "default"},
            "deleteOptions": options,
        }
        with subtests.test(how), pytest.raises(ApiError, match=expected):
            controllers.request("POST", PODS.path("default", "absent", "eviction"), body=body)


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
    path = NODES.path(name="victim", subresource="status")
    for part, (change, expected) in STATUS_OF_A_NODE.items():
        with subtests.test(part), pytest.raises(ApiError, match=expected) if expected else nullcontext():
            controllers.request("PATCH", path, body=Typed(STRATEGIC, change), query={"dryRun": "All"})


@pytest.fixture
def controllers(lab: Lab, tmp_path: Path) -> Iterator[Client]:
    """With their token."""
    token = lab.kubectl("create", "token", "drawbridge-controllers", "-n", NAMESPACE).stdout.strip()
    kubeconfig = yaml.safe_load(lab.kubeconfig.read_text())
    kubeconfig["users"] = [{"name": each["name"], "user": {"token": token}} for each in kubeconfig["users"]]
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    client = Client.from_kubeconfig(path)
    yield client
    client.close()


def foreign_url(webhooks: Webhooks) -> None:
    webhooks[0]["clientConfig"] = {"url": "https://198.51.100.7/"}


def secrets_too(webhooks: Webhooks) -> None:
    webhooks[0]["rules"][0]["resources"].append("secrets")


def everywhere(webhooks: Webhooks) -> None:
    webhooks[0].pop("namespaceSelector", None)
    webhooks[0].pop("matchConditions", None)


def closed(webhooks: Webhooks) -> None:
    webhooks[0]["failurePolicy"] = "Ignore" if webhooks[0]["failurePolicy"] == "Fail" else "Fail"


def added(webhooks: Webhooks) -> None:
    webhooks.append({**webhooks[0], "name": "added.example.com"})


def renewed(webhooks: Webhooks) -> None:
    client = webhooks[0]["clientConfig"]
    client["caBundle"] = base64.b64encode(base64.b64decode(client["caBundle"]) * 2).decode()


CHANGES: list[Callable[[Webhooks], None]] = [foreign_url, secrets_too, everywhere, closed, added, renewed]


def test_of_webhook_configurations_the_controllers_may_change_ca_bundles_alone(
    lab: Lab, subtests: pytest.Subtests
) -> None:
    for kind in CONFIGURATIONS:
        for change in CHANGES:
            configuration = read(lab, kind)
            change(configuration["webhooks"])

            said = refusal(lab, "controllers", "replace", "--filename=-", manifest=configuration)
            with subtests.test(change.__name__, of=kind):
                assert ("nothing but caBundle" in said) if change is not renewed else (said == "")


def test_the_controllers_may_issue_a_certificate_again(lab: Lab) -> None:
    """Also when it was emptied, of the type that the chart gives it."""
    place = ("secret", "drawbridge-webhook-tls", f"--namespace={NAMESPACE}")
    for verb, *arguments in (("patch", "--patch", '{"data": null}'), ("delete",)):
        lab.kubectl(verb, *place, *arguments)

        def issued() -> str:
            return lab.kubectl("get", *place, "--output=jsonpath={.data.tls\\.crt}", check=False).stdout

        lab.wait(lambda: issued() != "", 60, f"another certificate after {verb}")


def read(lab: Lab, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.kubectl("get", kind, "drawbridge", "--output=json").stdout)
    return found


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
