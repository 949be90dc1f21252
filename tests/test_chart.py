"""The chart: what it installs for which values, and that it takes the values it documents."""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from settings import Settings
from settings.ingress_daemonset import HealthChecker
from tests.charts import (
    ANYCAST_IP,
    CAPO_VALUES,
    CHART,
    Objects,
    annotations,
    helm_needed,
    pod_spec,
    refusal,
    render,
    settings_in,
)

VALUES = {
    "defaults": {},
    "the original's values": yaml.safe_load(CAPO_VALUES),
    "feature off": {"ipReservation": {"enabled": False}},
    "failing open": {
        "ipReservation": {"failurePolicy": "Ignore", "calicoApiVersion": "projectcalico.org/v3"}
    },
    "anycast ip": ANYCAST_IP,
    "one of each": {
        "replicaCount": 1,
        "config": {"leaderElectionEnable": False},
        "controllers": {"replicaCount": 1},
    },
    "all the rest": {
        "fullnameOverride": "gate",
        "image": {"registry": "registry.example:5000/team", "tag": "v9"},
        "imagePullSecrets": [{"name": "pull"}],
        "bindHost": "$(POD_IP)",
        "config": {"labelSelector": {"matchLabels": {"app": "redis"}, "matchExpressions": []}},
        "priorityClassName": "",
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
        "nodeSelector": {"e": "f"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podSecurityContext": None,
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "proxy:3128"}],
        "flowSchema": {"enabled": False},
    },
}


WHOLE = ("resources", "podSecurityContext", "securityContext", "nodeLabels", "nodeSelector", "labels")
"""Values whose parts are not the chart's."""


def registration(objects: Objects) -> dict[str, Any]:
    (webhook,) = objects["ValidatingWebhookConfiguration", "drawbridge"]["webhooks"]
    return webhook


# What needs no helm


def leaves(values: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in WHOLE:
            yield from leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def described(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, value in schema["properties"].items():
        if "properties" in value:
            assert value["additionalProperties"] is False, f"{path}{key} takes unknown values"
            yield from described(value, f"{path}{key}.")
        else:
            yield f"{path}{key}"


def default_values() -> dict[str, Any]:
    return yaml.safe_load((CHART / "values.yaml").read_text())


def test_the_schema_knows_exactly_the_values_there_are() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["additionalProperties"] is False
    assert set(described(schema)) == {name for name, _ in leaves(default_values())} | {"global"}


def test_the_readme_lists_exactly_the_values_there_are_with_their_defaults() -> None:
    table = [line for line in (CHART / "README.md").read_text().splitlines() if line.startswith("| `")]
    wanted = [f"| `{name}` | `{json.dumps(value)}` |" for name, value in leaves(default_values())]
    assert [line.rsplit(" | ", 1)[0] + " |" for line in table] == wanted


def test_the_readme_says_of_each_value_what_stands_above_it() -> None:
    said = re.findall(r"^ *# -- (.+)$", (CHART / "values.yaml").read_text(), re.MULTILINE)
    table = re.findall(r"^\| `.+` \| (.+?) \|$", (CHART / "README.md").read_text(), re.MULTILINE)
    assert [row.rpartition("` | ")[2] for row in table] == said


# What is rendered


@helm_needed
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())
def test_the_parts_fit_together(values: dict[str, Any]) -> None:
    objects = render(values)
    pods = [d["spec"]["template"] for (kind, _), d in objects.items() if kind == "Deployment"]
    ports = {port["name"] for pod in pods for port in pod["spec"]["containers"][0]["ports"]}
    for (kind, name), document in objects.items():
        place = "kube-system" if name.endswith("-cluster-uuid") else "gate-system"
        assert document["metadata"].get("namespace", place) == place
        if kind in ("Service", "PodDisruptionBudget"):
            selector = document["spec"]["selector"]
            selector = selector.get("matchLabels", selector)
            assert any(selector.items() <= pod["metadata"]["labels"].items() for pod in pods), name
        if kind == "Service":
            assert {port["targetPort"] for port in document["spec"]["ports"]} <= ports
        if kind in ("RoleBinding", "ClusterRoleBinding"):
            assert (document["roleRef"]["kind"], document["roleRef"]["name"]) in objects
            assert ("ServiceAccount", document["subjects"][0]["name"]) in objects
    assert all(("ServiceAccount", pod["spec"]["serviceAccountName"]) in objects for pod in pods)
    config = next(name for kind, name in objects if kind == "ConfigMap")
    assert all({"name": "config", "configMap": {"name": config}} in pod["spec"]["volumes"] for pod in pods)


@helm_needed
def test_the_default_configuration_is_the_default_of_the_program_for_its_own_namespace() -> None:
    lease = {"resource_namespace": "gate-system"}
    default = Settings()
    excluded = {"excluded_namespaces": (*default.elasticity.excluded_namespaces, "gate-system")}
    checker = HealthChecker(image="drawbridge:0.1.0", image_pull_policy="IfNotPresent")
    expected = default.model_copy(
        update={
            "leader_election": default.leader_election.model_copy(update=lease),
            "elasticity": default.elasticity.model_copy(update=excluded),
            "ingress_daemonset": default.ingress_daemonset.model_copy(update={"health_checker": checker}),
            "certs": default.certs.model_copy(update={"secret_name": "drawbridge-tls"}),
        }
    )
    assert settings_in(render()) == expected


@helm_needed
def test_the_values_of_the_original_mean_the_same() -> None:
    values = yaml.safe_load(CAPO_VALUES.replace("300", "400").replace("40m", "1h").replace("9443", "10250"))
    objects = render(values)
    settings = settings_in(objects)
    assert settings.ip_reservation.ip_reserve_max_count == 400
    assert settings.ip_reservation.ip_reserve_time == 3600
    assert settings.webhook.port == 10250
    assert objects["Deployment", "drawbridge-webhook"]["spec"]["replicas"] == 3
    ports = pod_spec(objects, "drawbridge-webhook")["containers"][0]["ports"]
    assert ports[0] == {"name": "webhook", "containerPort": 10250}


@helm_needed
def test_every_value_of_the_feature_reaches_the_program() -> None:
    fields = {
        "failurePolicy": "Ignore",
        "calicoApiVersion": "crd.projectcalico.org/v1",
        "giveBackAfter": "2m",
        "skipWhenOwnerIsDeleted": False,
        "segmentMaxEntries": 5,
        "segmentMaxAge": "1m",
    }
    moved = {"ipReserveMaxCount": 1000000, "ipReserveTime": "1m", "ipReleasePeriod": "1s"}
    selector = {"matchLabels": {"app": "1"}, "matchExpressions": []}
    values = {"ipReservation": fields, "config": {**moved, "labelSelector": selector}}
    expected = Settings.model_validate({"ipReservation": {**fields, **moved, "labelSelector": selector}})
    assert settings_in(render(values)).ip_reservation == expected.ip_reservation


@helm_needed
def test_the_registration_is_narrow_and_spares_our_own_namespace() -> None:
    webhook = registration(render())
    assert webhook["name"] == "ip-reservation.drawbridge.io"
    assert webhook["clientConfig"] == {
        "service": {
            "name": "drawbridge-webhook",
            "namespace": "gate-system",
            "port": 443,
            "path": "/validate/pods/ip-reservation",
        },
        "caBundle": "Q0E=",
    }
    assert [(rule["operations"], rule["resources"], rule["scope"]) for rule in webhook["rules"]] == [
        (["DELETE"], ["pods"], "Namespaced"),
        (["CREATE"], ["pods/eviction"], "Namespaced"),
    ]
    assert webhook["namespaceSelector"]["matchExpressions"] == [
        {"key": "ip-reserve", "operator": "In", "values": ["enabled", "enable"]},
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["gate-system"]},
    ]
    assert (webhook["failurePolicy"], webhook["timeoutSeconds"], webhook["sideEffects"]) == (
        "Fail",
        10,
        "NoneOnDryRun",
    )


@helm_needed
def test_failing_open_is_said_to_the_api_server_and_to_the_program() -> None:
    objects = render(VALUES["failing open"])
    assert registration(objects)["failurePolicy"] == "Ignore"
    assert settings_in(objects).ip_reservation.failure_policy == "Ignore"


@helm_needed
def test_a_feature_that_is_off_leaves_no_registration_and_no_rights() -> None:
    objects = render(VALUES["feature off"])
    assert not [kind for kind, _ in objects if kind == "ValidatingWebhookConfiguration"]
    assert objects["ClusterRole", "drawbridge-webhook"]["rules"] == []
    (events,) = objects["ClusterRole", "drawbridge-controllers"]["rules"]
    assert events["resources"] == ["events"]
    assert settings_in(objects).ip_reservation.enabled is False


@helm_needed
@pytest.mark.parametrize("name", ["drawbridge", "gate"])
def test_the_controllers_may_use_the_lease_that_they_are_told_of(name: str) -> None:
    objects = render({"fullnameOverride": name})
    [leased] = [
        rule["resourceNames"]
        for rule in objects["Role", f"{name}-controllers"]["rules"]
        if rule["resources"] == ["leases"] and rule["verbs"] == ["get", "update"]
    ]
    assert leased == [settings_in(objects).leader_election.resource_name] == [name]


@helm_needed
@pytest.mark.parametrize("name", ["drawbridge-webhook", "drawbridge-controllers"])
def test_the_pods_are_restricted_and_a_rollout_loses_none(name: str) -> None:
    objects = render()
    spec = pod_spec(objects, name)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert objects["Deployment", name]["spec"]["strategy"]["rollingUpdate"] == {
        "maxUnavailable": 0,
        "maxSurge": 1,
    }
    assert spec["priorityClassName"] == "system-cluster-critical"
    budget = objects["PodDisruptionBudget", name]["spec"]
    assert (budget["minAvailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


@helm_needed
def test_a_terminating_webhook_server_has_time_to_drain() -> None:
    objects = render()
    spec = pod_spec(objects, "drawbridge-webhook")
    sleep = spec["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    longest_request = registration(objects)["timeoutSeconds"]
    assert sleep > 0
    drain = settings_in(objects).webhook.drain_period
    assert spec["terminationGracePeriodSeconds"] > sleep + drain + longest_request


@helm_needed
@pytest.mark.parametrize("name", ["webhook", "controllers"])
def test_replicas_prefer_nodes_and_then_zones_without_another_one(name: str) -> None:
    objects = render()
    spec = pod_spec(objects, f"drawbridge-{name}")
    labels = {
        "app.kubernetes.io/name": "drawbridge",
        "app.kubernetes.io/instance": "drawbridge",
        "app.kubernetes.io/component": name,
    }
    terms = spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [
        (term["weight"], term["podAffinityTerm"]["topologyKey"], term["podAffinityTerm"]["labelSelector"])
        for term in terms
    ] == [
        (100, "kubernetes.io/hostname", {"matchLabels": labels}),
        (50, "topology.kubernetes.io/zone", {"matchLabels": labels}),
    ]
    # One of its constraints, in a cluster without that key, would undo the others.
    assert "topologySpreadConstraints" not in spec
    template = objects["Deployment", f"drawbridge-{name}"]["spec"]["template"]
    assert labels.items() <= template["metadata"]["labels"].items()


@helm_needed
def test_without_an_election_the_old_leader_ends_before_the_new_one_begins() -> None:
    objects = render(VALUES["one of each"])
    assert objects["Deployment", "drawbridge-controllers"]["spec"]["strategy"] == {"type": "Recreate"}
    assert objects["Deployment", "drawbridge-webhook"]["spec"]["strategy"]["type"] == "RollingUpdate"


@helm_needed
def test_both_programs_have_seats_apart_from_other_service_accounts() -> None:
    objects = render()
    spec = objects["FlowSchema", "drawbridge"]["spec"]
    assert spec["priorityLevelConfiguration"] == {"name": "workload-high"}
    assert spec["matchingPrecedence"] < 9000, "the built-in schema service-accounts would come first"
    (rule,) = spec["rules"]
    accounts = {("ServiceAccount", subject["serviceAccount"]["name"]) for subject in rule["subjects"]}
    assert accounts == {key for key in objects if key[0] == "ServiceAccount"}
    assert {subject["serviceAccount"]["namespace"] for subject in rule["subjects"]} == {"gate-system"}


@helm_needed
def test_the_seats_may_be_left_to_a_schema_of_the_operators_own() -> None:
    assert not [kind for kind, _ in render({"flowSchema": {"enabled": False}}) if kind == "FlowSchema"]


@helm_needed
@pytest.mark.parametrize(
    "webhook",
    [
        pytest.param({"terminationGracePeriodSeconds": 46}, id="one second more than needed"),
        pytest.param({"drainPeriod": "10s", "terminationGracePeriodSeconds": 51}, id="a longer drain"),
        pytest.param({"drainPeriod": "1m"}, id="a drain that only the program can read"),
    ],
)
def test_a_grace_period_that_may_do_is_taken(webhook: dict[str, Any]) -> None:
    grace = pod_spec(render({"webhook": webhook}), "drawbridge-webhook")["terminationGracePeriodSeconds"]
    assert grace == webhook.get("terminationGracePeriodSeconds", 50)


@helm_needed
def test_the_bind_host_can_be_the_address_of_the_pod() -> None:
    env = pod_spec(render({"bindHost": "$(POD_IP)"}), "drawbridge-webhook")["containers"][0]["env"]
    names = [variable["name"] for variable in env]
    assert env[names.index("DRAWBRIDGE_BIND_HOST")]["value"] == "$(POD_IP)"
    assert names.index("POD_IP") < names.index("DRAWBRIDGE_BIND_HOST")


@helm_needed
def test_what_is_given_for_all_pods_reaches_all_pods() -> None:
    objects = render(VALUES["all the rest"])
    for name in ("gate-webhook", "gate-controllers"):
        template = objects["Deployment", name]["spec"]["template"]
        container = template["spec"]["containers"][0]
        assert container["image"] == "registry.example:5000/team/drawbridge:v9"
        assert template["metadata"]["annotations"]["a"] == "b"
        assert template["metadata"]["labels"]["c"] == "d"
        assert template["spec"]["nodeSelector"] == {"e": "f"}
        assert template["spec"]["tolerations"] == [{"operator": "Exists"}]
        assert template["spec"]["affinity"] == {"nodeAffinity": {}}
        assert template["spec"]["imagePullSecrets"] == [{"name": "pull"}]
        assert "priorityClassName" not in template["spec"]
        assert container["env"][-1] == {"name": "HTTPS_PROXY", "value": "proxy:3128"}


@helm_needed
def test_one_replica_has_no_budget_that_would_forbid_every_drain() -> None:
    assert not [name for kind, name in render(VALUES["one of each"]) if kind == "PodDisruptionBudget"]


@helm_needed
def test_pods_are_replaced_only_for_what_they_read_at_their_start() -> None:
    before = render()
    followed = render({"config": {"ipReserveTime": "1m"}, "logging": {"level": "debug"}})
    threads = render({"webhook": {"threads": 8}})
    lease = render({"leaderElection": {"retryPeriod": "1s"}})
    calico = render({"ipReservation": {"calicoApiVersion": "projectcalico.org/v3"}})
    webhook, controllers = "drawbridge-webhook", "drawbridge-controllers"
    assert before["Deployment", webhook] == followed["Deployment", webhook] == lease["Deployment", webhook]
    assert before["Deployment", controllers] == followed["Deployment", controllers]
    assert annotations(before, webhook) != annotations(threads, webhook)
    assert annotations(before, controllers) != annotations(lease, controllers)
    assert annotations(before, webhook) != annotations(calico, webhook)
    assert annotations(before, controllers) != annotations(calico, controllers)


@helm_needed
def test_a_ca_bundle_may_be_given_as_pem() -> None:
    pem = "-----BEGIN CERTIFICATE-----\nQ0E=\n-----END CERTIFICATE-----"
    certs = {"certs": {"mode": "files", "existingSecret": "tls", "caBundle": f"{pem}\n"}}
    bundle = registration(render(certs))["clientConfig"]["caBundle"]
    assert base64.b64decode(bundle).decode() == pem


@helm_needed
@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param(
            {"certs": {"mode": "files", "caBundle": "x"}},
            "certs.existingSecret is empty: with certs.mode",
            id="no Secret",
        ),
        pytest.param(
            {"certs": {"mode": "files", "existingSecret": "x"}},
            "certs.caBundle is empty: with certs.mode",
            id="no CA",
        ),
        pytest.param(
            {"config": {"leaderElectionEnable": False}},
            "config.leaderElectionEnable is false: 2 controllers would all lead",
            id="two leaders",
        ),
        pytest.param({"config": {"ipReserveTme": "40m"}}, "ipReserveTme", id="a slip of the pen"),
        pytest.param({"config": {"ipReserveTime": "40x"}}, "/config/ipReserveTime", id="no duration"),
        pytest.param(
            {"ipReservation": {"failurePolicy": "fail"}}, "/ipReservation/failurePolicy", id="no policy"
        ),
        pytest.param({"replicaCount": 0}, "/replicaCount", id="no server"),
        pytest.param(
            {"config": {"webhookPort": 8081}},
            "config.healthProbeBindAddress is port 8081, and so is config.webhookPort",
            id="the webhook's port is the probes'",
        ),
        pytest.param(
            {"config": {"metricsBindAddress": "127.0.0.1:8081"}},
            "config.metricsBindAddress is port 8081, and so is config.healthProbeBindAddress",
            id="the metrics' port is the probes'",
        ),
        pytest.param(
            {"config": {"labelSelector": None}}, "config.labelSelector is null", id="no selector at all"
        ),
        pytest.param(
            {"webhook": {"terminationGracePeriodSeconds": 45}},
            "webhook.terminationGracePeriodSeconds is 45: preStopSleepSeconds, drainPeriod and the last"
            " requests take 45 s",
            id="killed while it drains",
        ),
        pytest.param(
            {"ipReservation": {"extraMatchConditions": []}},
            "extraMatchConditions",
            id="conditions that the controllers do not know",
        ),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(values: dict[str, Any], message: str) -> None:
    assert message in refusal(values)
