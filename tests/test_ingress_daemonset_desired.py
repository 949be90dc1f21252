"""What an IngressDaemonSet wants a node to have."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from api import health_checks
from api.ingress_daemonset import NODE_LABEL, TEMPLATE_HASH
from api.ingress_daemonset.template import PodSpec, template_of, tolerations, where_of
from controllers.ingress_daemonset.children import deployment
from controllers.ingress_daemonset.drift import covers, overwrite
from controllers.ingress_daemonset.health_checks import access, daemon_sets
from kube.selectors import NodeAffinity, NodeSelector, selects
from settings import IngressDaemonSetSettings
from settings.ingress_daemonset import HealthChecker
from tests.ingress_daemonset_world import CHECKER, merge, node, resource
from webhook.ingress_daemonset.validate import warnings

PROBED = {
    "name": "proxy",
    "ports": [{"name": "http", "containerPort": 80, "hostPort": 80}, {"containerPort": 443}],
    "livenessProbe": {"httpGet": {"path": "/", "port": "http"}},
    "readinessProbe": {"tcpSocket": {"port": 443}},
    "lifecycle": {"preStop": {"httpGet": {"port": "http"}}},
}


def pod_of(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = body["spec"]["template"]["spec"]
    return found


def test_a_long_name_of_a_node_makes_names_and_labels_that_are_short_and_differ() -> None:
    first, second = (deployment(resource(), "x" * 80 + end) for end in ("1", "2"))

    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert first["spec"]["selector"] != second["spec"]["selector"]
    for each in (first, second):
        assert len(each["metadata"]["name"]) == len(each["metadata"]["labels"][NODE_LABEL]) == 63


def test_the_hash_differs_for_other_templates_only() -> None:
    def hashed(**parts: Any) -> str:
        found: str = deployment(resource(**parts), "n1")["metadata"]["annotations"][TEMPLATE_HASH]
        return found

    assert hashed() == hashed(podsPerNode=3) == hashed(minReadySeconds=5)
    assert hashed() != hashed(pod={"priority": 1})


@pytest.mark.parametrize(
    ("spec", "strategy"),
    [
        (
            {"rolling": {"maxUnavailablePodsPerNode": 3, "maxSurgedPodsPerNode": 1}},
            {"maxUnavailable": 3, "maxSurge": 1},
        ),
        (
            {"rolling": {"maxUnavailableNodes": 1, "maxSurgedPodsPerNode": 1}},
            {"maxUnavailable": "100%", "maxSurge": 1},
        ),
        ({"rolling": {"maxUnavailablePodsPerNode": 0}}, {"maxUnavailable": 1, "maxSurge": 0}),
    ],
)
def test_the_strategy_is_handed_on(spec: dict[str, Any], strategy: dict[str, Any]) -> None:
    body = deployment(resource(**spec), "n1")
    assert body["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": strategy}


def test_pods_that_share_the_ports_of_a_node_list_none_and_are_still_probed() -> None:
    shared = resource({"hostNetwork": True, "containers": [PROBED], "initContainers": [PROBED]})

    for container in ("containers", "initContainers"):
        (found,) = pod_of(deployment(shared, "n1"))[container]
        assert "ports" not in found
        assert found["livenessProbe"] == {"httpGet": {"path": "/", "port": 80}}
        assert found["readinessProbe"] == {"tcpSocket": {"port": 443}}
        assert found["lifecycle"] == {"preStop": {"httpGet": {"port": 80}}}


def test_a_port_without_a_number_is_left_to_the_api_server_to_refuse() -> None:
    proxy = {**PROBED, "ports": [{"name": "http"}]}
    (found,) = pod_of(deployment(resource({"hostNetwork": True, "containers": [proxy]}), "n1"))["containers"]
    assert found["livenessProbe"] == {"httpGet": {"path": "/", "port": None}}


@pytest.mark.parametrize(("spec", "pod"), [({"podsPerNode": 1}, {"hostNetwork": True}), ({}, {})])
def test_other_pods_keep_their_ports(spec: dict[str, Any], pod: dict[str, Any]) -> None:
    body = deployment(resource({**pod, "containers": [PROBED]}, **spec), "n1")
    assert pod_of(body)["containers"] == [PROBED]


@pytest.mark.parametrize(
    "pod",
    [
        {"hostNetwork": True},
        {"containers": [PROBED]},
        {"initContainers": [{**PROBED, "restartPolicy": "Always"}]},
    ],
)
@pytest.mark.parametrize("rolling", [{}, {"maxUnavailableNodes": 1}])
def test_one_pod_with_the_ports_of_its_node_ends_before_the_next_begins(
    pod: dict[str, Any], rolling: dict[str, Any]
) -> None:
    body = deployment(resource(pod, podsPerNode=1, rolling=rolling), "n1")
    assert body["spec"]["strategy"] == {"type": "Recreate"}


def test_a_health_checker_knows_its_node_its_port_the_annotation_and_how_long_it_may_be_blind() -> None:
    key = {"annotateDeploymentToDetach": {"key": "example.com/soon"}}
    given = {"onApiServerOutage": "fail", "outageToleranceSeconds": 12}
    (body,) = daemon_sets(resource(healthCheckNodePorts=[10080], rolling=key, healthChecker=given), CHECKER)
    spec = pod_of(body)
    (container,) = spec["containers"]
    said = {each["name"]: each.get("value") or each["valueFrom"] for each in container["env"]}

    assert body["metadata"]["name"] == "web-10080"
    assert spec["hostNetwork"] is True
    assert container["image"] == "drawbridge:1"
    assert container["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "health"}
    assert container["securityContext"]["runAsNonRoot"] is True
    assert said == {
        health_checks.INGRESS_DAEMONSET: "web",
        health_checks.PORT: "10080",
        health_checks.ANNOTATION: "example.com/soon",
        health_checks.ON_OUTAGE: "fail",
        health_checks.BOUND: "12",
        health_checks.NODE: {"fieldRef": {"fieldPath": "spec.nodeName"}},
        health_checks.NAMESPACE: {"fieldRef": {"fieldPath": "metadata.namespace"}},
    }


@pytest.mark.parametrize(
    ("rolling", "limit", "seconds"),
    [
        ({"maxUnavailableNodes": 2, "attachGracePeriodSeconds": 30}, 2, 30),
        ({"maxUnavailableNodes": "25%"}, "25%", 10),
        ({"maxDegradedNodes": 3}, 3, 10),
        ({"maxDegradedNodes": 0, "maxUnavailableNodes": 0}, 1, 10),
    ],
)
def test_as_many_health_checkers_are_replaced_at_a_time_as_nodes_may_be_off(
    rolling: dict[str, Any], limit: int | str, seconds: int
) -> None:
    """A node without one is off the load balancer, until that has noticed the next one."""
    (body,) = daemon_sets(resource(healthCheckNodePorts=[10080], rolling=rolling), CHECKER)

    assert body["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": limit}
    assert body["spec"]["minReadySeconds"] == seconds


def test_a_health_checker_with_another_image_and_account_runs_where_the_pods_do() -> None:
    pod = {"nodeSelector": {"edge": "yes"}, "affinity": {"nodeAffinity": {"x": 1}, "podAffinity": {}}}
    given = {"image": "mine:1", "imagePullPolicy": "Always", "serviceAccountName": "checker"}
    own = resource(pod, healthCheckNodePorts=[1], healthChecker=given, nodeSelector={"zone": "a"})
    spec = pod_of(daemon_sets(own, CHECKER)[0])

    assert spec["nodeSelector"] == {"edge": "yes", "zone": "a"}
    assert spec["affinity"].keys() == {"nodeAffinity"}
    assert spec["affinity"]["nodeAffinity"]["x"] == 1
    assert spec["serviceAccountName"] == "checker"
    assert (spec["containers"][0]["image"], spec["containers"][0]["imagePullPolicy"]) == ("mine:1", "Always")


@pytest.mark.parametrize(
    "image",
    [
        "mumoshu/ingress-daemonset-controller:latest",
        "mumoshu/ingress-daemonset-node-healthcheck-server",
        "docker.example/mumoshu/ingress-daemonset-controller@sha256:00",
    ],
)
def test_the_image_that_manifests_of_the_original_name_is_not_run(image: str) -> None:
    given = {"image": image, "imagePullPolicy": "Always"}
    own = resource(healthCheckNodePorts=[1], healthChecker=given)
    settings = HealthChecker(image="drawbridge:1", resources={"limits": {"memory": "64Mi"}})
    (container,) = pod_of(daemon_sets(own, settings)[0])["containers"]

    assert (container["image"], container["imagePullPolicy"]) == ("drawbridge:1", "IfNotPresent")
    assert container["resources"] == {"limits": {"memory": "64Mi"}}
    assert any("another program" in each for each in warnings(own, IngressDaemonSetSettings()))


def test_a_health_checker_of_a_starved_node_is_not_restarted_for_a_slow_answer() -> None:
    """The node would be off the load balancer meanwhile; kubelets wait one second where nothing is said."""
    own = resource({}, healthCheckNodePorts=[1])
    (checker,) = pod_of(daemon_sets(own, CHECKER)[0])["containers"]
    assert checker["livenessProbe"]["timeoutSeconds"] == 3


def test_health_checkers_get_the_permissions_of_one_cluster_role_in_their_namespace() -> None:
    checked = resource(healthCheckNodePorts=[1], healthChecker={"serviceAccountName": "checker"})
    (binding,) = access(checked, "drawbridge-health-checker")

    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "checker", "namespace": "edge"}]
    assert (binding["kind"], binding["metadata"]["name"]) == ("RoleBinding", "web-health-checker")
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (
        "ClusterRole",
        "drawbridge-health-checker",
    )


@pytest.mark.parametrize(
    ("desired", "live", "same"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, None, False),
        ({"a": {}, "b": [], "c": "", "d": None, "e": False}, {}, True),
        ([{"a": 1}], [{"a": 1, "b": 2}], True),
        ([1], [1, 2], False),
        ({"limits": {"cpu": 1}}, {"limits": {"cpu": "1"}}, True),
        ({"limits": {"cpu": "0.5"}}, {"limits": {"cpu": "500m"}}, True),
        ({"limits": {"memory": "1024Mi"}}, {"limits": {"memory": "1Gi"}}, True),
        ({"requests": {"cpu": "1"}}, {"requests": {"cpu": "2"}}, False),
        ({"limits": {"cpu": "x"}}, {"limits": {"cpu": "y"}}, False),
        ({"value": "1000m"}, {"value": "1"}, False),
    ],
)
def test_only_a_real_difference_counts(desired: Any, live: Any, same: bool) -> None:
    assert covers(desired, live) is same


def test_what_is_overwritten_is_then_just_what_is_desired() -> None:
    live = {
        "kept": 1,
        "gone": 2,
        "deep": {"gone": [1], "changed": 1},
        "list": [1, 2],
        "part": {"x": 1},
        "leaf": 1,
    }
    desired = {"kept": 1, "deep": {"changed": 2, "new": {"x": 1}}, "list": [3], "part": 1, "leaf": {"x": {}}}
    merge(live, overwrite(desired, live))
    assert live == desired


ZONES = {"zone": "a", "size": "8"}
NO_SCHEDULE = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
NO_EXECUTE = {**NO_SCHEDULE, "effect": "NoExecute"}
CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    selector = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": selector}}


def asks(operator: str, *values: str, key: str = "zone") -> dict[str, Any]:
    return required({"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]})


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "b"}}, False),
        (asks("In", "a", "b"), True),
        (asks("NotIn", "a"), False),
        (asks("DoesNotExist"), False),
        (asks("Gt", "7", key="size"), True),
        (asks("Lt", "9"), False),  # not a number
        (asks("Lt", "1_000", key="size"), False),
        (asks("Lt", " 9", key="size"), False),
        (asks("Gt", "-9223372036854775809", key="size"), False),  # more than 64 bits
        (asks("Near", "a"), False),
        (required({}), False),
        (required({}, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}), True),
    ],
)
def test_the_template_says_which_nodes(pod: dict[str, Any], expected: bool) -> None:
    assert where_of(resource(pod)).matches(node(labels=ZONES), runs=False) is expected


@pytest.mark.parametrize("pod", [{}, asks("In", "a"), required({})])
def test_health_checkers_run_where_the_pods_do_and_never_on_super_nodes(pod: dict[str, Any]) -> None:
    tolerant = resource({**pod, "tolerations": [{"operator": "Exists"}]}, healthCheckNodePorts=[1])
    (body,) = daemon_sets(tolerant, CHECKER)
    wanted = (
        msgspec.convert(pod_of(body)["affinity"]["nodeAffinity"], NodeAffinity).required or NodeSelector()
    )

    assert selects(wanted, "n1", ZONES) is where_of(tolerant).matches(node(labels=ZONES), runs=False)
    assert not selects(wanted, "n1", {**ZONES, "node.kubernetes.io/instance-type": "eklet"})


def test_both_selectors_count() -> None:
    both = resource({"nodeSelector": {"zone": "a"}}, nodeSelector={"size": "8"})
    assert where_of(both).matches(node(labels=ZONES), runs=False)
    assert not where_of(both).matches(node(labels={"zone": "a"}), runs=False)
    assert not where_of(both).matches(node(labels={"size": "8"}), runs=False)


@pytest.mark.parametrize(
    ("taint", "tolerated", "newcomer", "runs"),
    [
        (NO_SCHEDULE, [], False, True),
        (NO_EXECUTE, [], False, False),
        ({**NO_SCHEDULE, "effect": "PreferNoSchedule"}, [], True, True),
        (CORDONED, [], True, True),
        (NO_EXECUTE, [{"operator": "Exists"}], True, True),
        (NO_EXECUTE, [{"key": "gpu", "value": "yes"}], True, True),
        (NO_EXECUTE, [{"key": "gpu", "value": "no"}], False, False),
        (NO_EXECUTE, [{"key": "x", "operator": "Exists"}], False, False),
        (NO_EXECUTE, [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}], False, False),
    ],
)
def test_taints_count_as_for_daemon_sets(
    taint: dict[str, str], tolerated: list[dict[str, str]], newcomer: bool, runs: bool
) -> None:
    tainted, wanted = node(taints=[taint]), resource({"tolerations": tolerated})
    assert where_of(wanted).matches(tainted, runs=False) is newcomer
    assert where_of(wanted).matches(tainted, runs=True) is runs


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"labels": {"node.kubernetes.io/instance-type": "eklet"}}, id="virtual"),
        pytest.param({"deletionTimestamp": "2026-01-02T03:04:05Z"}, id="being deleted"),
    ],
)
def test_such_a_node_never_matches(metadata: dict[str, Any]) -> None:
    tolerant = resource({"tolerations": [{"operator": "Exists"}]})
    assert not where_of(tolerant).matches(node(**metadata), runs=True)


def test_a_node_without_a_network_is_for_pods_with_its_own_only() -> None:
    taint = {"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}
    assert where_of(resource({"hostNetwork": True})).matches(node(taints=[taint]), runs=False)
    assert not where_of(resource()).matches(node(taints=[taint]), runs=False)


def test_a_toleration_that_is_there_is_not_added_again() -> None:
    given = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    pod = template_of(resource({"tolerations": [given]}).spec).spec
    assert len(tolerations(pod)) == len(tolerations(PodSpec()))


def test_what_is_null_is_absent() -> None:
    pod = {"tolerations": None, "nodeSelector": None, "affinity": {"nodeAffinity": None}}
    assert where_of(resource(pod)).matches(node(), runs=False)
