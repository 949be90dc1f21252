"""The chart with anycast_ip: what it installs for which values, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from kube.super_nodes import INSTANCE_TYPE, SUPER_NODE
from lab.install import merged
from settings import Settings
from tests.charts import (
    ANYCAST_IP,
    Objects,
    annotations,
    cloud_keys,
    helm_needed,
    mutating,
    notes,
    pod_spec,
    refusal,
    render,
    rights,
    settings_in,
)
from webhook.anycast_ip import BOUND, PATH, TAINT

pytestmark = helm_needed

CONTROLLERS = "drawbridge-controllers"


def anycast_ip(**values: Any) -> dict[str, Any]:
    """*values* over those with which the feature is on."""
    return merged(ANYCAST_IP, values)


def volumes(objects: Objects, name: str) -> dict[str, Any]:
    return {volume["name"]: volume for volume in pod_spec(objects, name)["volumes"]}


# Off, and on


def test_a_feature_that_is_off_leaves_no_trace() -> None:
    objects = render({"cloud": ANYCAST_IP["cloud"]})
    kinds = {kind for kind, _ in objects}
    assert not {"MutatingWebhookConfiguration", "Secret"} & kinds
    assert "/nodes" not in rights(objects, ("ClusterRole", CONTROLLERS))
    assert "/configmaps" not in rights(objects, ("Role", CONTROLLERS))
    assert ("Role", "drawbridge-cluster-uuid") not in objects
    assert settings_in(objects).anycast_ip.enabled is False


def test_every_value_reaches_the_program() -> None:
    feature = {
        "enabled": True,
        "clusterID": "cls-2",
        "nodeLabels": {"example.com/edge": ""},
        "addressType": "AnycastEIP",
        "anycastZone": "ANYCAST_ZONE_GLOBAL",
        "bandwidth": 0,
        "internetChargeType": "BANDWIDTH_PACKAGE",
        "bandwidthPackageID": "bwp-1",
        "tags": {"team": "edge"},
        "releaseOnLabelRemoval": True,
        "repair": False,
        "resyncPeriod": "1m",
        "reverseReconcile": {"mode": "report", "period": "1m", "grace": "2m", "maxPerRound": 1000000},
    }
    cloud = {
        "region": "ap-hongkong",
        "endpoint": "127.0.0.1:8080",
        "scheme": "http",
        "rootDomain": "internal.tencentcloudapi.com",
        "proxy": "http://proxy:3128",
        "credentials": "cvm-role",
        "cvmRole": "role",
        "callTimeout": "20s",
        "attemptTimeout": "5s",
        "rateShare": 0.5,
    }
    default_label = {"tke.cloud.tencent.com/need-aia-ip": "true"}
    settings = settings_in(render({"anycastIP": feature, "cloud": cloud}))
    labels = {"nodeLabels": default_label | feature["nodeLabels"]}
    assert settings == settings.model_copy(
        update={
            "anycast_ip": Settings.model_validate({"anycastIP": feature | labels}).anycast_ip,
            "cloud": Settings.model_validate({"cloud": cloud}).cloud,
        }
    )


def test_the_default_label_goes_by_null() -> None:
    labels = {"tke.cloud.tencent.com/need-aia-ip": None, "example.com/edge": "true"}
    objects = render(anycast_ip(anycastIP={"nodeLabels": labels}))
    assert settings_in(objects).anycast_ip.node_labels == {"example.com/edge": "true"}
    assert mutating(objects)["objectSelector"] == {"matchLabels": {"example.com/edge": "true"}}


# The registration; that its conditions mean what they say, a real API server shows


def test_the_registration_is_narrow_and_never_keeps_a_node_out() -> None:
    webhook = mutating(render(ANYCAST_IP))
    assert webhook["name"] == "anycast-ip.drawbridge.io"
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
            "resources": ["nodes"],
            "operations": ["CREATE", "UPDATE"],
            "scope": "Cluster",
        }
    ]
    assert webhook["objectSelector"] == {"matchLabels": {"tke.cloud.tencent.com/need-aia-ip": "true"}}
    assert {name: webhook[name] for name in ("failurePolicy", "timeoutSeconds", "sideEffects")} == {
        "failurePolicy": "Ignore",
        "timeoutSeconds": 5,
        "sideEffects": "None",
    }
    assert webhook["reinvocationPolicy"] == "IfNeeded"


def test_the_conditions_speak_of_what_the_program_speaks_of() -> None:
    labels = {"a.example/b_c.d": "E-f", "empty": ""}
    conditions = mutating(render(anycast_ip(anycastIP={"nodeLabels": labels})))["matchConditions"]
    text = "\n".join(each["expression"] for each in conditions)
    for key, value in [*labels.items(), ("tke.cloud.tencent.com/need-aia-ip", "true")]:
        assert f'object.metadata.?labels[?"{key}"] == optional.of("{value}")' in text
        assert f'oldObject.metadata.?labels[?"{key}"] == optional.of("{value}")' in text
    assert text.count(f't.key == "{TAINT.key}" && t.effect == "{TAINT.effect}"') == 2
    assert f'[?"{BOUND}"]' in text
    assert text.count(f'[?"{INSTANCE_TYPE}"] != optional.of("{SUPER_NODE}")') == 2


# Keys


def test_only_the_controllers_get_the_keys() -> None:
    objects = render(anycast_ip(cloud={"token": "a-token"}))
    assert cloud_keys(objects) == {"secretID": "key-id", "secretKey": "a-secret", "token": "a-token"}
    assert volumes(objects, CONTROLLERS)["cloud"]["secret"]["secretName"] == "drawbridge-cloud"
    assert "cloud" not in volumes(objects, "drawbridge-webhook")
    (container,) = pod_spec(objects, CONTROLLERS)["containers"]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "cloud")
    assert mount["readOnly"] is True
    assert settings_in(objects).cloud.credentials_dir == mount["mountPath"]
    del objects["Secret", "drawbridge-cloud"]
    assert not any(secret in str(objects) for secret in ("key-id", "a-secret", "a-token"))


def test_a_secret_that_is_there_is_used_as_it_is() -> None:
    cloud = {"region": "ap-singapore", "existingSecret": "mine"}
    objects = render({"anycastIP": ANYCAST_IP["anycastIP"], "cloud": cloud})
    assert not [name for kind, name in objects if kind == "Secret"]
    assert volumes(objects, CONTROLLERS)["cloud"]["secret"]["secretName"] == "mine"


@pytest.mark.parametrize(
    "cloud",
    [
        pytest.param({}, id="whatever there is"),
        pytest.param({"credentials": "cvm-role"}, id="the machine's"),
        pytest.param({"credentials": "tke-oidc"}, id="the pod's"),
    ],
)
def test_a_role_needs_no_keys(cloud: dict[str, Any]) -> None:
    objects = render({"anycastIP": ANYCAST_IP["anycastIP"], "cloud": {"region": "ap-singapore"} | cloud})
    assert "cloud" not in volumes(objects, CONTROLLERS)
    assert settings_in(objects).cloud.credentials_dir == ""


def test_keys_may_come_from_the_environment() -> None:
    env = [{"name": "TENCENTCLOUD_SECRET_ID", "value": "x"}]
    cloud = {"region": "ap-singapore", "credentials": "static"}
    objects = render({"anycastIP": ANYCAST_IP["anycastIP"], "cloud": cloud, "extraEnv": env})
    assert settings_in(objects).cloud.credentials == "static"


def test_the_controllers_may_be_given_a_role_of_their_own() -> None:
    role = {"tke.cloud.tencent.com/role-arn": "qcs::cam::uin/1:roleName/drawbridge"}
    objects = render(anycast_ip(controllers={"serviceAccountAnnotations": role}))
    assert objects["ServiceAccount", CONTROLLERS]["metadata"]["annotations"] == role
    assert "annotations" not in objects["ServiceAccount", "drawbridge-webhook"]["metadata"]


def test_the_clouds_authority_is_a_file_beside_the_configuration() -> None:
    pem = "-----BEGIN CERTIFICATE-----\nQ0E=\n-----END CERTIFICATE-----\n"
    objects = render(anycast_ip(cloud={"caBundle": pem}))
    directory, _, name = settings_in(objects).cloud.ca_file.rpartition("/")
    assert objects["ConfigMap", "drawbridge-config"]["data"][name] == pem
    (container,) = pod_spec(objects, CONTROLLERS)["containers"]
    assert directory in {mount["mountPath"] for mount in container["volumeMounts"]}


def test_the_clouds_names_are_looked_up_as_they_are() -> None:
    """A resolver asks first for names in the cluster's domains when there are fewer dots than ndots."""
    [option] = pod_spec(render(anycast_ip()), CONTROLLERS)["dnsConfig"]["options"]

    assert (option["name"], int(option["value"])) == ("ndots", "vpc.tencentcloudapi.com".count("."))


def test_the_controllers_are_not_replaced_for_other_keys_nor_for_what_they_follow() -> None:
    before = render(ANYCAST_IP)
    rotated = render(anycast_ip(cloud={"secretID": "another", "secretKey": "other"}))
    assert rotated["Deployment", CONTROLLERS] == before["Deployment", CONTROLLERS]
    feature = render(anycast_ip(anycastIP={"bandwidth": 5, "releaseOnLabelRemoval": True}))
    assert feature["Deployment", CONTROLLERS] == before["Deployment", CONTROLLERS]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, {"cloud": {"rateShare": 0.5}}, id="another rate"),
        pytest.param({}, {"cloud": {"region": "ap-tokyo"}}, id="another region"),
        pytest.param(
            {"cloud": {"caBundle": "-----BEGIN A"}}, {"cloud": {"caBundle": "-----BEGIN B"}}, id="another CA"
        ),
        pytest.param(
            {"anycastIP": {"enabled": False}, "cloud": {"secretID": "", "secretKey": ""}},
            {"cloud": {"secretID": "", "secretKey": ""}},
            id="on at last",
        ),
    ],
)
def test_only_the_controllers_are_replaced_for(before: dict[str, Any], after: dict[str, Any]) -> None:
    one, other = render(anycast_ip(**before)), render(anycast_ip(**after))
    assert annotations(one, CONTROLLERS) != annotations(other, CONTROLLERS)
    assert one["Deployment", "drawbridge-webhook"] == other["Deployment", "drawbridge-webhook"]


# What is said


def test_the_notes_name_the_labels_and_no_secret() -> None:
    said = notes(anycast_ip(anycastIP={"nodeLabels": {"example.com/edge": ""}}))
    assert "-l 'example.com/edge=,tke.cloud.tencent.com/need-aia-ip=true'" in said
    assert "drawbridge.io/claim=anycast-ip" in said
    assert "Ignored" not in said
    assert "a-secret" not in said


def without(section: str, *names: str) -> dict[str, Any]:
    kept = {name: value for name, value in ANYCAST_IP[section].items() if name not in names}
    return ANYCAST_IP | {section: kept}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param(
            without("anycastIP", "clusterID"),
            "anycastIP.clusterID is empty: with anycastIP.enabled",
            id="no cluster",
        ),
        pytest.param(
            without("cloud", "region"), "cloud.region is empty: with anycastIP.enabled", id="no region"
        ),
        pytest.param(
            without("cloud", "secretKey"), "one is set without the other", id="half a key pair, the id"
        ),
        pytest.param(
            without("cloud", "secretID"), "one is set without the other", id="half a key pair, the key"
        ),
        pytest.param(
            merged(without("cloud", "secretID", "secretKey"), {"cloud": {"token": "x"}}),
            "cloud.token is set without cloud.secretID",
            id="a token alone",
        ),
        pytest.param(
            anycast_ip(cloud={"existingSecret": "mine"}),
            "cloud.existingSecret and cloud.secretID are both set",
            id="two Secrets",
        ),
        pytest.param(
            merged(without("cloud", "secretID", "secretKey"), {"cloud": {"credentials": "static"}}),
            "cloud.credentials is static, but there are no keys",
            id="no keys",
        ),
        pytest.param(
            anycast_ip(cloud={"credentials": "cvm-role"}),
            "cloud.credentials is cvm-role, and the keys of a Secret would not be used",
            id="keys beside a role",
        ),
        pytest.param(
            anycast_ip(anycastIP={"nodeLabels": {"tke.cloud.tencent.com/need-aia-ip": None}}),
            "anycastIP.nodeLabels is empty",
            id="all nodes",
        ),
        pytest.param(
            anycast_ip(anycastIP={"nodeLabels": {"a": "it's"}}),
            "/anycastIP/nodeLabels/a",
            id="no label value",
        ),
        pytest.param(
            anycast_ip(anycastIP={"nodeLabels": {"a b": "c"}}), "/anycastIP/nodeLabels", id="no label"
        ),
        pytest.param(
            anycast_ip(anycastIP={"nodeLabels": {"a": True}}), "/anycastIP/nodeLabels/a", id="no text"
        ),
        pytest.param(
            {"anycastIP": {"addressType": "EIP", "anycastZone": "ANYCAST_ZONE_GLOBAL"}},
            "anycastIP.anycastZone is ANYCAST_ZONE_GLOBAL, but anycastIP.addressType is EIP",
            id="a zone of nothing",
        ),
        pytest.param(
            anycast_ip(anycastIP={"timeoutSeconds": 6}), "/anycastIP/timeoutSeconds", id="too patient"
        ),
        pytest.param(
            anycast_ip(cloud={"proxy": "http://me:my-word@proxy"}),
            "cloud.proxy has a user or a password",
            id="password",
        ),
        pytest.param(anycast_ip(cloud={"region": "Singapore"}), "/cloud/region", id="no region's name"),
        pytest.param(anycast_ip(cloud={"endpoint": "http://x"}), "/cloud/endpoint", id="a URL for a host"),
        pytest.param(anycast_ip(cloud={"caBundle": "Q0E="}), "/cloud/caBundle", id="no PEM"),
        pytest.param(anycast_ip(cloud={"rateShare": 0}), "/cloud/rateShare", id="no share"),
        pytest.param(
            anycast_ip(config={"aia": {"autoRelease": True}}), "autoRelease", id="an older original"
        ),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(values: dict[str, Any], message: str) -> None:
    said = refusal(values)
    assert message in said
    assert "a-secret" not in said
    assert "my-word" not in said
