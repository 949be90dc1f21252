"""The chart with ingress_daemonset: what it installs for which values, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from lab.install import merged
from settings import Settings
from tests.charts import (
    ANYCAST_IP,
    CHART,
    Objects,
    annotations,
    helm,
    helm_needed,
    mutating,
    notes,
    refusal,
    render,
    rights,
    settings_in,
)
from webhook.ingress_daemonset import DEFAULTS_PATH, EVICTIONS_PATH, GROUP, PLURAL, RULES_PATH, VERSION

pytestmark = helm_needed

ON: dict[str, Any] = {"ingressDaemonSet": {"enabled": True}}
ALONE = merged(ON, {"ipReservation": {"enabled": False}})
WEBHOOK, CONTROLLERS = "drawbridge-webhook", "drawbridge-controllers"
DEFINITION = ("CustomResourceDefinition", f"{PLURAL}.{GROUP}")


def on(**feature: Any) -> dict[str, Any]:
    return merged(ON, {"ingressDaemonSet": feature})


def validating(objects: Objects) -> dict[str, Any]:
    """The last one: ip_reservation's stands before it, when that is on."""
    return objects["ValidatingWebhookConfiguration", "drawbridge"]["webhooks"][-1]


def checker_in(values: dict[str, Any]) -> tuple[str, str]:
    checker = settings_in(render(values)).ingress_daemonset.health_checker
    return checker.image, checker.image_pull_policy


# Off, and on


def test_a_feature_that_is_off_leaves_no_trace() -> None:
    off = render(on(enabled=False))
    assert off.keys() == render(ON).keys() - {DEFINITION, ("MutatingWebhookConfiguration", "drawbridge")}
    assert not {"apps/deployments", "/nodes"} & rights(off, ("ClusterRole", CONTROLLERS)).keys()
    assert off["ClusterRole", WEBHOOK] == render()["ClusterRole", WEBHOOK]
    assert validating(off)["name"] == "ip-reservation.drawbridge.io"
    assert settings_in(off).ingress_daemonset.enabled is False


def test_the_definition_is_installed_as_it_is() -> None:
    written = yaml.safe_load((CHART / "files" / "ingressdaemonsets.yaml").read_text())
    assert render(ON)[DEFINITION] == written


def test_every_value_reaches_the_program() -> None:
    feature = {
        "enabled": True,
        "healthChecker": {
            "image": "registry.example/checker:v1",
            "imagePullPolicy": "Never",
            "resources": {"requests": {"cpu": "1m"}, "limits": {"memory": "64Mi"}},
        },
        "detachmentReminder": "1h",
        "resyncPeriod": "30s",
    }
    expected = Settings.model_validate({"ingressDaemonSet": feature})
    assert settings_in(render({"ingressDaemonSet": feature})).ingress_daemonset == expected.ingress_daemonset


def test_health_checkers_are_of_our_own_image_unless_another_is_named() -> None:
    ours = on() | {"image": {"registry": "registry.example:5000/team", "tag": "v9", "pullPolicy": "Always"}}
    assert checker_in(ON) == ("drawbridge:0.1.0", "IfNotPresent")
    assert checker_in(ours) == ("registry.example:5000/team/drawbridge:v9", "Always")
    assert checker_in(merged(ours, on(healthChecker={"image": "other"}))) == ("other", "Always")


def test_resources_that_are_null_are_those_of_the_program() -> None:
    objects = render(on(healthChecker={"resources": None}))
    assert settings_in(objects).ingress_daemonset.health_checker.resources == {}


def test_the_chart_lints_strictly() -> None:
    for values in (ON, ALONE, merged(ANYCAST_IP, ON)):
        result = helm("lint", "--strict", str(CHART), values=values)
        assert result.returncode == 0, result.stdout + result.stderr


# The registrations; that their conditions mean what they say, a real API server shows


@pytest.mark.parametrize(
    ("kind", "name", "path"),
    [
        pytest.param("Mutating", "ingress-daemonset-defaults", DEFAULTS_PATH, id="defaults"),
        pytest.param("Validating", "ingress-daemonset", RULES_PATH, id="rules"),
    ],
)
def test_the_registrations_are_narrow_and_fail_closed(kind: str, name: str, path: str) -> None:
    webhook, *_ = render(ALONE)[f"{kind}WebhookConfiguration", "drawbridge"]["webhooks"]
    assert webhook.pop("reinvocationPolicy", None) == ("IfNeeded" if kind == "Mutating" else None)
    assert webhook == {
        "name": f"{name}.drawbridge.io",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {
            "service": {"name": WEBHOOK, "namespace": "gate-system", "path": path, "port": 443},
            "caBundle": "Q0E=",
        },
        "rules": [
            {
                "apiGroups": [GROUP],
                "apiVersions": [VERSION],
                "resources": [PLURAL],
                "operations": ["CREATE", "UPDATE"],
                "scope": "Namespaced",
            }
        ],
        "matchPolicy": "Equivalent",
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["gate-system"]}
            ]
        },
        "matchConditions": [
            {"name": "not-being-deleted", "expression": "!has(object.metadata.deletionTimestamp)"},
            {
                "name": "spec-is-new",
                "expression": 'request.operation == "CREATE" || object.?spec != oldObject.?spec',
            },
        ],
    }


def test_evictions_are_asked_about_outside_of_the_systems_namespaces_and_never_lost_by_us() -> None:
    _, webhook = render(ALONE)["ValidatingWebhookConfiguration", "drawbridge"]["webhooks"]
    assert webhook["name"] == "ingress-daemonset-evictions.drawbridge.io"
    assert webhook["clientConfig"]["service"]["path"] == EVICTIONS_PATH
    [rule] = webhook["rules"]
    assert (rule["resources"], rule["operations"]) == (["pods/eviction"], ["CREATE"])
    assert (webhook["failurePolicy"], webhook["sideEffects"]) == ("Ignore", "NoneOnDryRun")
    [where] = webhook["namespaceSelector"]["matchExpressions"]
    assert (where["operator"], where["values"]) == ("NotIn", ["gate-system", "kube-system"])


def test_a_restricted_network_lets_the_controllers_and_nobody_else_read_health_checkers() -> None:
    given = {
        "enabled": True,
        "egress": [{"ports": [{"protocol": "TCP", "port": 443}]}],
        "nodes": ["10.1.0.0/16"],
    }
    objects = render(merged(ALONE, {"networkPolicy": given}))
    health = {
        "ports": [{"protocol": "TCP", "port": 1024, "endPort": 65535}],
        "to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}],
    }

    assert objects["NetworkPolicy", CONTROLLERS]["spec"]["egress"] == [*given["egress"], health]
    assert objects["NetworkPolicy", WEBHOOK]["spec"]["egress"] == given["egress"]


def test_how_long_the_api_server_waits_can_be_said() -> None:
    objects = render(merged(ALONE, on(timeoutSeconds=30)))
    assert [mutating(objects)["timeoutSeconds"], validating(objects)["timeoutSeconds"]] == [30, 30]


def test_it_is_registered_beside_the_other_features() -> None:
    both = render(merged(ANYCAST_IP, ON))
    first, second = both["MutatingWebhookConfiguration", "drawbridge"]["webhooks"]
    assert (first, second) == (mutating(render(ANYCAST_IP)), mutating(render(ON)))
    reserving, *_ = both["ValidatingWebhookConfiguration", "drawbridge"]["webhooks"]
    assert reserving == validating(render())
    assert validating(both) == validating(render(ALONE))


# Rights


def test_the_controllers_are_replaced_for_the_switch_alone() -> None:
    before = render(ON)
    followed = render(on(detachmentReminder="1m", resyncPeriod="1m", healthChecker={"image": "other"}))
    assert followed["Deployment", CONTROLLERS] == before["Deployment", CONTROLLERS]
    assert annotations(render(), CONTROLLERS) != annotations(before, CONTROLLERS)
    assert render()["Deployment", WEBHOOK] == before["Deployment", WEBHOOK]


# What is said, and refused


def test_the_notes_tell_what_to_look_at_and_what_stays() -> None:
    text = notes(ON)
    assert "kubectl get ingressdaemonsets -A" in text
    assert "stay when this release is uninstalled" in text
    assert "ingressdaemonset" not in notes({})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param(on(timeoutSeconds=31), "/ingressDaemonSet/timeoutSeconds", id="too patient"),
        pytest.param(on(timeoutSeconds=0), "/ingressDaemonSet/timeoutSeconds", id="no patience"),
        pytest.param(on(resyncPeriod="5"), "/ingressDaemonSet/resyncPeriod", id="no unit"),
        pytest.param(on(detachmentReminder=600), "/ingressDaemonSet/detachmentReminder", id="no duration"),
        pytest.param(
            on(healthChecker={"imagePullPolicy": "Often"}),
            "/ingressDaemonSet/healthChecker/imagePullPolicy",
            id="no pull policy",
        ),
        pytest.param(on(healthChecker={"resources": "1Gi"}), "/healthChecker/resources", id="no resources"),
        pytest.param(on(healthChecker={"tag": "v1"}), "'tag' not allowed", id="an unknown value"),
        pytest.param(on(failurePolicy="Ignore"), "'failurePolicy' not allowed", id="failing open"),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(values: dict[str, Any], message: str) -> None:
    assert message in refusal(values)
