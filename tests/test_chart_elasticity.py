"""The chart with elasticity: what it installs for which values, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from controllers.elasticity import open_gates
from kube.super_nodes import INSTANCE_TYPE, SUPER_NODE
from lab.install import merged
from settings import Settings, parse
from settings.values import seconds
from tests.charts import (
    ANYCAST_IP,
    CHART,
    Objects,
    annotations,
    helm,
    helm_needed,
    mutating,
    notes,
    pod_spec,
    refusal,
    render,
    rights,
    settings_in,
)
from webhook.elasticity import BURST, GATE, LOCAL_REPLICAS, PATH, PLACEMENT, TAINT, TKE_SCHEDULER

pytestmark = helm_needed

CONTROLLERS = "drawbridge-controllers"
EKLET = "drawbridge-eklet"
SUBNETS = [
    {"id": "subnet-ab12cd34", "zone": "ap-guangzhou-3"},
    {"id": "subnet-2", "zone": "ap-guangzhou-4"},
]
ON: dict[str, Any] = {"elasticity": {"enabled": True}, "cloud": {"subnets": SUBNETS}}
ORIGINAL = """
cloud:
  uniqueID: idc-1
  appID: "1250000000"
  ownerUIN: "100000000001"
  secretID: key-id
  secretKey: a-secret
  vpcID: vpc-1
  regionShort: cq
  regionLong: ap-chongqing
  apiDomain: internal.tencentcloudapi.com
  subnets: [{id: subnet-xx, zone: ap-chongqing-1}, {id: subnet-yy, zone: ap-chongqing-1}]
eklet:
  waitSandboxRunningTimeout: 12h
  podUsedApiserver: https://172.1.2.3:6443
  replicaCount: 2
  image: {ref: "example.com/eklet-amd64:v2.17.15", pullPolicy: Always}
  service: {type: ClusterIP}
  nodeSelector: {kubernetes.io/os: linux, kubernetes.io/arch: amd64}
  resources: {limits: {cpu: "2", memory: 2Gi}, requests: {cpu: 100m, memory: 100Mi}}
scheduler:
  replicaCount: 1
  image: {ref: "example.com/hyperkube:v1.20.6", pullPolicy: IfNotPresent}
  nodeSelector: {kubernetes.io/os: linux}
  resources: {requests: {cpu: 100m}}
eksAdmission:
  replicaCount: 1
  autoScaleEKS: "\\"true\\""
  image: {ref: "example.com/eks-admission-controller:v0.3.3", pullPolicy: IfNotPresent}
  nodeSelector: {kubernetes.io/os: linux}
  resources: {limits: {cpu: 500m, memory: 500M}, requests: {cpu: 300m, memory: 300M}}
"""


def elasticity(**values: Any) -> dict[str, Any]:
    """*values* over those with which the feature is on."""
    return merged(ON, values)


def original(**values: Any) -> dict[str, Any]:
    """Values of the original's chart, with both switches of ours."""
    switched = merged(yaml.safe_load(ORIGINAL), {"elasticity": {"enabled": True}, "eklet": {"enabled": True}})
    return merged(switched, values)


def settings_of(objects: Objects) -> Settings:
    return parse(objects["ConfigMap", "drawbridge-config"]["data"]["config.yaml"])


def expression(values: dict[str, Any]) -> str:
    (condition,) = mutating(render(values))["matchConditions"]
    return " ".join(condition["expression"].split())


def container(objects: Objects) -> dict[str, Any]:
    (found,) = pod_spec(objects, EKLET)["containers"]
    return found


def environment(objects: Objects) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container(objects)["env"]}


# Off, and on


def test_a_feature_that_is_off_leaves_no_trace() -> None:
    off, never = render({"cloud": ON["cloud"]}), render()
    assert off.keys() == never.keys()
    assert "/nodes" not in rights(off, ("ClusterRole", CONTROLLERS))
    assert settings_in(off).elasticity.enabled is False


def test_every_value_reaches_the_program() -> None:
    feature = {
        "enabled": True,
        "openGates": True,
        "gateFallbackAfter": "2m",
        "patchDaemonSets": False,
        "switch": {"namespace": "elsewhere", "name": "my-switch"},
        "localOptOut": True,
        "localReplicas": 0,
        "schedulerName": "my-scheduler",
        "excludedNamespaces": ["kube-system", "quiet"],
        "maxSuperPods": {"total": 1000000, "perNamespace": 5},
        "scaleInOrder": False,
        "homeFailover": {"enabled": True, "homeAfter": "1m"},
        "resolvConf": "nameserver 4.4.4.4\nnameserver 8.8.8.8\n",
    }
    given = feature | {"openGates": "auto"}
    settings = settings_in(render({"elasticity": given, "cloud": {"subnets": SUBNETS}}))
    ours = {"excludedNamespaces": ["kube-system", "quiet", "gate-system"], "subnets": SUBNETS}
    assert settings.elasticity == Settings.model_validate({"elasticity": feature | ours}).elasticity


def test_our_own_namespace_is_excluded_once_however_it_is_written() -> None:
    objects = render(elasticity(elasticity={"excludedNamespaces": ["gate-system"]}))
    assert settings_in(objects).elasticity.excluded_namespaces == ("gate-system",)


def test_the_chart_lints_strictly_with_everything_on() -> None:
    result = helm("lint", "--strict", str(CHART), values=original())
    assert result.returncode == 0, result.stdout + result.stderr


def test_daemon_sets_are_left_alone_where_they_are_to_be() -> None:
    values = {"elasticity": {"patchDaemonSets": False}, "ipReservation": {"enabled": False}}
    objects = render(elasticity(**values))
    names = [each["name"] for each in objects["MutatingWebhookConfiguration", "drawbridge"]["webhooks"]]

    assert names == ["elasticity.drawbridge.io"]
    assert "apps/daemonsets" not in rights(objects, ("ClusterRole", CONTROLLERS))


# Gates, when the feature or the release goes


def gates(**values: Any) -> tuple[str, Objects]:
    """When the Job that opens gates runs, and all that belongs to it."""
    objects = render({"elasticity": values})
    found = {key: each for key, each in objects.items() if key[1] == "drawbridge-gates"}
    hooks = {each["metadata"]["annotations"]["helm.sh/hook"] for each in found.values()}
    assert len(hooks) <= 1
    return "".join(hooks), found


@pytest.mark.parametrize(
    ("enabled", "mode", "expected"),
    [
        pytest.param(True, "always", "pre-delete", id="before it is uninstalled"),
        pytest.param(False, "always", "pre-upgrade,pre-rollback", id="before the feature goes"),
        # Rendered without a cluster, they may be applied by something that knows of no hooks.
        pytest.param(True, "auto", "", id="not where there is no cluster to look into"),
        pytest.param(False, "auto", "", id="not where the feature is not there"),
        pytest.param(True, "controllers", "", id="not beside the controllers"),
        pytest.param(False, "never", "", id="never"),
    ],
)
def test_gates_are_opened_by_a_hook(enabled: bool, mode: str, expected: str) -> None:
    hook, found = gates(enabled=enabled, openGates=mode)

    assert hook == expected
    kinds = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"} if expected else set()
    assert {kind for kind, _ in found} == kinds


def test_the_job_says_how_long_it_waits_and_ends_before_helm_gives_up() -> None:
    _, found = gates(enabled=True, openGates="always", timeoutSeconds=3)
    job = found["Job", "drawbridge-gates"]["spec"]
    (program,) = job["template"]["spec"]["containers"]

    given = open_gates.parser().parse_args(program["args"])
    assert program["command"] == ["python", "-m", open_gates.__name__]
    assert (given.configuration, given.settle) == ("drawbridge", "8s")
    assert seconds(given.within) * 2 < job["activeDeadlineSeconds"] < 300


@pytest.mark.parametrize(("mode", "opens"), [("auto", False), ("controllers", True), ("never", False)])
def test_the_controllers_open_gates_while_the_feature_is_off_only_if_they_are_to(
    mode: str, opens: bool
) -> None:
    objects = render({"elasticity": {"openGates": mode}})

    assert settings_in(objects).elasticity.open_gates is opens
    assert ("patch" in rights(objects, ("ClusterRole", CONTROLLERS)).get("/pods", set())) is opens


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("auto", "a Helm hook Job opens their gates"),
        ("controllers", "the controllers open their gates"),
        ("never", "leaves them gated"),
    ],
)
def test_the_notes_say_what_becomes_of_gated_pods(mode: str, words: str) -> None:
    text = notes(elasticity(elasticity={"openGates": mode}))
    assert words in text
    assert "grep -c SchedulingGated" in text


# The registration; that its condition means what it says, a real API server shows


def test_the_registration_is_narrow_and_keeps_no_pod_out() -> None:
    webhook = mutating(render(ON))
    assert webhook["name"] == "elasticity.drawbridge.io"
    assert webhook["clientConfig"]["service"] == {
        "name": "drawbridge-webhook",
        "namespace": "gate-system",
        "port": 443,
        "path": PATH,
    }
    assert webhook["rules"] == [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["pods"],
            "operations": ["CREATE"],
            "scope": "Namespaced",
        }
    ]
    assert webhook["namespaceSelector"] == {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["gate-system"]}
        ]
    }
    assert {name: webhook[name] for name in ("failurePolicy", "timeoutSeconds", "sideEffects")} == {
        "failurePolicy": "Ignore",
        "timeoutSeconds": 5,
        "sideEffects": "None",
    }
    assert webhook["reinvocationPolicy"] == "IfNeeded"


def test_both_features_that_change_objects_share_one_registration() -> None:
    objects = render(merged(ANYCAST_IP, ON))
    webhooks = objects["MutatingWebhookConfiguration", "drawbridge"]["webhooks"]
    assert [each["name"] for each in webhooks] == [
        "anycast-ip.drawbridge.io",
        "elasticity.drawbridge.io",
        "elasticity-daemonsets.drawbridge.io",
    ]
    assert webhooks[0] == mutating(render(ANYCAST_IP))
    assert webhooks[1] == mutating(render(ON))


def test_the_condition_speaks_of_what_the_program_speaks_of() -> None:
    text = expression(ON)
    assert f'annotations[?"{LOCAL_REPLICAS}"].hasValue()' in text
    assert f'|| object.metadata.?annotations[?"{PLACEMENT}"].hasValue()' in text
    assert f'|| object.metadata.?annotations[?"{BURST}"].hasValue()' in text
    assert f'g.name == "{GATE}"' in text
    assert f'schedulerName.orValue("") == "{TKE_SCHEDULER}"' in text
    assert f'"{TAINT.key}"' in text
    assert f'e.key == "{INSTANCE_TYPE}"' in text
    assert f'== ["{SUPER_NODE}"]' in text
    assert 'request.namespace in ["kube-system","tke-eni-ip-webhook","gate-system"]' in text


def test_pods_of_controllers_are_asked_about_only_with_a_number_for_all() -> None:
    anybody = "|| object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false)))"
    assert anybody not in expression(ON)
    assert anybody in expression(elasticity(elasticity={"localReplicas": 0}))


def test_a_scheduler_that_is_really_called_so_costs_no_call() -> None:
    assert TKE_SCHEDULER not in expression(elasticity(elasticity={"schedulerName": TKE_SCHEDULER}))


# Rights


def test_the_controllers_are_replaced_for_what_they_read_at_their_start_alone() -> None:
    before = render(ON)
    followed = render(elasticity(elasticity={"localReplicas": 2, "maxSuperPods": {"total": 3}}))
    moved = render(elasticity(elasticity={"switch": {"name": "other"}}))
    assert followed["Deployment", CONTROLLERS] == before["Deployment", CONTROLLERS]
    assert annotations(moved, CONTROLLERS) != annotations(before, CONTROLLERS)
    assert annotations(render({"cloud": ON["cloud"]}), CONTROLLERS) != annotations(before, CONTROLLERS)
    assert moved["Deployment", "drawbridge-webhook"] == before["Deployment", "drawbridge-webhook"]


# The switch


@pytest.mark.parametrize(
    ("written", "rendered"),
    [
        pytest.param('"true"', "true", id="as the original's default has it"),
        pytest.param("false", "false", id="text"),
        pytest.param(True, "true", id="yes"),
        pytest.param(False, "false", id="no"),
    ],
)
def test_the_global_switch_is_installed_when_it_is_said(written: object, rendered: str) -> None:
    objects = render(elasticity(eksAdmission={"autoScaleEKS": written}))
    switch = objects["ConfigMap", "eks-config"]
    assert switch["metadata"]["namespace"] == "kube-system"
    assert switch["data"] == {"AUTO_SCALE_EKS": rendered}


def test_a_switch_that_nobody_named_is_left_to_whoever_has_it() -> None:
    assert ("ConfigMap", "eks-config") not in render(ON)


# The virtual kubelet


def test_the_virtual_kubelet_is_started_as_the_original_starts_it() -> None:
    assert container(render(original()))["args"] == [
        "/usr/local/bin/eklet",
        "--runtime-cxm",
        "--client-ca-file=/run/secrets/kubernetes.io/serviceaccount/ca.crt",
        "--cluster-type=tke",
        "--leader-elect-lease-duration=10s",
        "--leader-elect-renew-deadline=7s",
        "--leader-elect-retry-period=2s",
        "--cluster-id=idc-1",
        "--app-id=1250000000",
        "--owner-uin=100000000001",
        "--region-short=cq",
        "--region-long=ap-chongqing",
        "--vpc-id=vpc-1",
        "--wait-sandbox-running-timeout=12h",
        "--node-ip=$(POD_IP)",
        "--pod-used-apiserver=https://172.1.2.3:6443",
        "--secret-id=$(SECRET_ID)",
        "--secret-key=$(SECRET_KEY)",
        "--eklet-service-name=eks-eklet",
        "--eklet-service-namespace=gate-system",
        "--sa-token-refresh-interval=30m",
    ]


def test_the_virtual_kubelet_finds_its_keys_and_is_found() -> None:
    objects = render(original())
    assert environment(objects) == {
        "API_DOMAIN": "internal.tencentcloudapi.com",
        "POD_IP": {"fieldRef": {"fieldPath": "status.podIP"}},
        "SECRET_ID": {"secretKeyRef": {"name": "eks-secret", "key": "secretID"}},
        "SECRET_KEY": {"secretKeyRef": {"name": "eks-secret", "key": "secretKey"}},
    }
    assert objects["Secret", "eks-secret"]["stringData"] == {"secretID": "key-id", "secretKey": "a-secret"}
    service = objects["Service", "eks-eklet"]["spec"]
    assert service["type"] == "ClusterIP"
    assert [(each["port"], each["targetPort"]) for each in service["ports"]] == [(10241, "eklet-port")]
    labels = objects["Deployment", EKLET]["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    assert {each["name"]: each["containerPort"] for each in container(objects)["ports"]} == {
        "eklet-port": 10241,
        "unsecure-port": 10240,
    }
    assert container(objects)["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "unsecure-port"}
    assert ("ServiceAccount", pod_spec(objects, EKLET)["serviceAccountName"]) in objects


def test_the_virtual_kubelet_runs_where_it_is_told_but_never_on_its_own_nodes() -> None:
    objects = render(original())
    spec = pod_spec(objects, EKLET)
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"] == [{"key": INSTANCE_TYPE, "operator": "NotIn", "values": [SUPER_NODE]}]
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    assert objects["Deployment", EKLET]["spec"]["replicas"] == 2
    assert container(objects)["resources"]["limits"] == {"cpu": "2", "memory": "2Gi"}
    assert (container(objects)["image"], container(objects)["imagePullPolicy"]) == (
        "example.com/eklet-amd64:v2.17.15",
        "Always",
    )


def test_the_service_of_our_metrics_does_not_select_the_virtual_kubelet() -> None:
    objects = render(original())
    labels = objects["Deployment", EKLET]["spec"]["template"]["metadata"]["labels"]
    assert not objects["Service", "drawbridge-metrics"]["spec"]["selector"].items() <= labels.items()


def test_a_cluster_without_an_id_goes_by_its_vpc_and_numbers_stay_whole() -> None:
    cloud = {"uniqueID": "", "appID": 1250000000, "ownerUIN": 100000000001}
    arguments = container(render(original(cloud=cloud)))["args"]
    assert {"--cluster-id=vpc-1", "--app-id=1250000000", "--owner-uin=100000000001"} <= {*arguments}


def test_a_secret_that_is_there_is_used_as_it_is() -> None:
    objects = render(original(cloud={"existingSecret": "mine", "secretID": "", "secretKey": ""}))
    assert not [name for kind, name in objects if kind == "Secret"]
    assert environment(objects)["SECRET_ID"] == {"secretKeyRef": {"name": "mine", "key": "secretID"}}


def test_only_the_secret_has_the_keys() -> None:
    objects = render(original())
    del objects["Secret", "eks-secret"]
    assert not any(secret in str(objects) for secret in ("key-id", "a-secret"))


def test_without_the_virtual_kubelet_none_of_its_objects_is_there() -> None:
    objects = render(original(eklet={"enabled": False}))
    assert not {name for _, name in objects} & {EKLET, "eks-eklet", "eks-secret"}


# The names of the original


def test_the_values_of_the_original_mean_the_same() -> None:
    objects = render(original())
    settings = settings_of(objects)
    assert [(each.id, each.zone) for each in settings.elasticity.subnets] == [
        ("subnet-xx", "ap-chongqing-1"),
        ("subnet-yy", "ap-chongqing-1"),
    ]
    assert settings.cloud.region == "ap-chongqing"
    assert settings.cloud.root_domain == "internal.tencentcloudapi.com"
    assert objects["ConfigMap", "eks-config"]["data"] == {"AUTO_SCALE_EKS": "true"}


@pytest.mark.parametrize(
    "named",
    [
        pytest.param({"cloud": {"regionLong": "ap-tokyo"}}, id="of this original"),
        pytest.param({"config": {"region": {"longName": "ap-tokyo"}}}, id="of the other one"),
        pytest.param(
            {"cloud": {"regionLong": "ap-tokyo"}, "config": {"region": {"longName": "ap-tokyo"}}},
            id="of both",
        ),
        pytest.param({"cloud": {"regionLong": "ap-tokyo", "region": "ap-tokyo"}}, id="of this one, and ours"),
    ],
)
def test_the_region_goes_by_each_of_its_names(named: dict[str, Any]) -> None:
    assert settings_in(render(named)).cloud.region == "ap-tokyo"


@pytest.mark.parametrize(
    ("values", "others"),
    [
        (original(cloud={"region": "ap-tokyo"}), "cloud.region and cloud.regionLong"),
        (original(config={"region": {"longName": "ap-tokyo"}}), "cloud.region and cloud.regionLong"),
        (original(cloud={"rootDomain": "example.com"}), "cloud.rootDomain and cloud.apiDomain"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_two_names_of_one_value_must_not_differ(values: dict[str, Any], others: str) -> None:
    assert f"{others} are both set, and differ" in refusal(values)


# What is said


def test_the_notes_tell_what_to_look_at_and_what_means_nothing_here() -> None:
    said = notes(original())
    assert "kubectl -n kube-system get configmap eks-config" in said
    assert "remove cloud.subnets" in said
    assert (
        "without effect here: scheduler, eksAdmission.image, eksAdmission.nodeSelector, eksAdmission.resources."
        in said
    )
    assert "a-secret" not in said
    assert "cloud.subnets is empty" in notes({"elasticity": {"enabled": True}})


@pytest.mark.parametrize("without", ["elasticity", "eklet"])
def test_the_notes_say_that_the_originals_values_alone_switch_nothing_on(without: str) -> None:
    values = original(**{without: {"enabled": False}})
    values["eksAdmission"] = {}
    said = "none is created: elasticity.enabled is false" in notes(values)
    assert said is (without == "elasticity")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param(
            elasticity(cloud={"subnets": [SUBNETS[0], SUBNETS[0] | {"zone": "ap-guangzhou-4"}]}),
            "cloud.subnets has subnet-ab12cd34 more than once",
            id="one subnet twice",
        ),
        pytest.param(elasticity(cloud={"subnets": [{"id": "subnet-1"}]}), "zone", id="no zone"),
        pytest.param(
            elasticity(cloud={"subnets": [{"id": "vpc-1", "zone": "z-1"}]}),
            "/cloud/subnets/0/id",
            id="no subnet",
        ),
        pytest.param(
            {"eksAdmission": {"autoScaleEKS": "true"}},
            "eksAdmission.autoScaleEKS is set, but elasticity.enabled is false",
            id="a switch of nothing",
        ),
        pytest.param(
            elasticity(eksAdmission={"autoScaleEKS": "yes"}), "/eksAdmission/autoScaleEKS", id="no switch"
        ),
        pytest.param(elasticity(elasticity={"localReplicas": -1}), "/elasticity/localReplicas", id="too few"),
        pytest.param(
            elasticity(elasticity={"timeoutSeconds": 10}), "/elasticity/timeoutSeconds", id="too patient"
        ),
        pytest.param(original(eklet={"image": {"ref": ""}}), "eklet.image.ref is empty", id="no image"),
        pytest.param(
            original(eklet={"podUsedApiserver": ""}), "eklet.podUsedApiserver is empty", id="no API server"
        ),
        pytest.param(original(cloud={"vpcID": ""}), "cloud.vpcID is empty", id="no VPC"),
        pytest.param(original(cloud={"regionLong": ""}), "cloud.region is empty", id="no region"),
        pytest.param(original(cloud={"regionShort": ""}), "cloud.regionShort is empty", id="no short region"),
        pytest.param(original(cloud={"appID": ""}), "cloud.appID is empty", id="no account"),
        pytest.param(original(cloud={"ownerUIN": ""}), "cloud.ownerUIN is empty", id="no owner"),
        pytest.param(original(cloud={"secretKey": ""}), "eklet.enabled needs keys", id="half a key pair"),
        pytest.param(
            original(cloud={"existingSecret": "mine"}), "are both set: keep the keys", id="two homes for keys"
        ),
        pytest.param(original(cloud={"uniqueID": "a" * 17}), "/cloud/uniqueID", id="an id that is too long"),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(values: dict[str, Any], message: str) -> None:
    said = refusal(values)
    assert message in said
    assert "a-secret" not in said
