"""The chart's three ways to a serving certificate: what each installs, and what it leaves to others."""

from __future__ import annotations

from typing import Any

import pytest

from certs.issue import COMMON_NAME_LENGTH
from controllers.certificates.controller import rules
from tests.charts import (
    ANYCAST_IP,
    NAMESPACE,
    Objects,
    annotations,
    helm_needed,
    notes,
    pod_spec,
    refusal,
    render,
    settings_in,
)

pytestmark = helm_needed

FEATURES: dict[str, Any] = {
    **ANYCAST_IP,
    "elasticity": {"enabled": True},
    "ingressDaemonSet": {"enabled": True},
}
CONFIGURATIONS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
SECRET = "drawbridge-webhook-tls"


def rendered(mode: str, **certs: Any) -> Objects:
    return render(FEATURES | {"certs": {"mode": mode, **certs}})


def trust(objects: Objects) -> set[str | None]:
    """What the registration says of CAs, for all webhooks."""
    webhooks = [each for kind in CONFIGURATIONS for each in objects[kind, "drawbridge"]["webhooks"]]
    assert len(webhooks) > 2
    return {webhook["clientConfig"].get("caBundle") for webhook in webhooks}


def kinds(objects: Objects) -> set[str]:
    return {kind for kind, _ in objects if kind in ("Issuer", "Certificate", "Secret")} - {"Secret"} | {
        name for kind, name in objects if kind == "Secret" and name != "drawbridge-cloud"
    }


def rules_on(objects: Objects, resource: str) -> list[tuple[set[str], list[str] | None]]:
    """Verbs and names, of the controllers."""
    roles = (objects[kind, "drawbridge-controllers"] for kind in ("Role", "ClusterRole"))
    rules = [rule for role in roles for rule in role["rules"] if resource in rule["resources"]]
    return [(set(rule["verbs"]), rule.get("resourceNames")) for rule in rules]


def test_without_any_word_on_certificates_the_controllers_issue_them() -> None:
    objects = render({"certs": {}})
    settings = settings_in(objects).certs

    assert (settings.mode, settings.secret_name) == ("self-managed", SECRET)
    assert (settings.service_name, settings.configuration_name) == ("drawbridge-webhook", "drawbridge")
    assert settings == settings_in(rendered("self-managed")).certs


@pytest.mark.parametrize("mode", ["self-managed", "cert-manager"])
def test_what_others_write_into_the_registration_is_not_in_the_chart(mode: str) -> None:
    assert trust(rendered(mode)) == {None}


def test_of_the_given_ca_each_webhook_has_all() -> None:
    assert trust(rendered("files", existingSecret="mine", caBundle="Q0E=")) == {"Q0E="}


@pytest.mark.parametrize(
    ("mode", "secret", "certs"),
    [
        ("self-managed", SECRET, {}),
        ("cert-manager", SECRET, {}),
        ("files", "mine", {"existingSecret": "mine", "caBundle": "Q0E="}),
    ],
)
def test_the_servers_get_the_pair_alone_and_wait_until_it_is_there(
    mode: str, secret: str, certs: dict[str, str]
) -> None:
    [volume] = [
        each
        for each in pod_spec(rendered(mode, **certs), "drawbridge-webhook")["volumes"]
        if "secret" in each
    ]

    assert volume["secret"]["secretName"] == secret
    assert {each["key"] for each in volume["secret"]["items"]} == {"tls.crt", "tls.key"}
    assert "optional" not in volume["secret"]


def test_only_the_named_objects_are_the_controllers_to_change() -> None:
    objects = rendered("self-managed")

    assert rules_on(objects, "secrets") == [({"create"}, None), ({"get", "update"}, [SECRET])]
    for kind in ("validating", "mutating"):
        assert rules_on(objects, f"{kind}webhookconfigurations") == [({"get", "update"}, ["drawbridge"])]


@pytest.mark.parametrize(
    ("mode", "certs"), [("cert-manager", {}), ("files", {"existingSecret": "mine", "caBundle": "Q0E="})]
)
def test_where_others_see_to_it_the_controllers_have_no_right_to(mode: str, certs: dict[str, str]) -> None:
    objects = rendered(mode, **certs)

    assert rules_on(objects, "secrets") == rules_on(objects, "validatingwebhookconfigurations") == []
    assert settings_in(objects).certs.mode == mode


@pytest.mark.parametrize("mode", ["self-managed", "cert-manager"])
def test_the_secret_goes_with_the_release_and_has_nothing_that_an_upgrade_could_take_back(mode: str) -> None:
    objects = rendered(mode)

    assert [name for kind, name in objects if kind == "Secret" and name != "drawbridge-cloud"] == [SECRET]
    assert objects["Secret", SECRET].keys() == {"apiVersion", "kind", "metadata"}


def test_with_cert_manager_too_a_lost_secret_comes_back_as_a_part_of_the_release() -> None:
    template = rendered("cert-manager")["Certificate", "drawbridge-webhook"]["spec"]["secretTemplate"]

    assert template == {
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {
            "meta.helm.sh/release-name": "drawbridge",
            "meta.helm.sh/release-namespace": NAMESPACE,
        },
    }


def test_the_durations_reach_the_controllers_and_are_followed() -> None:
    short = {"caValidity": "75s", "leafValidity": "65s", "renewBefore": "50s", "overlap": "10s"}
    objects, before = rendered("self-managed", selfManaged=short), rendered("self-managed")
    periods = settings_in(objects).certs.self_managed

    assert (periods.ca_validity, periods.leaf_validity, periods.renew_before, periods.overlap) == (
        75,
        65,
        50,
        10,
    )
    assert annotations(objects, "drawbridge-controllers") == annotations(before, "drawbridge-controllers")
    other = rendered("cert-manager")
    assert annotations(other, "drawbridge-controllers") != annotations(before, "drawbridge-controllers")


def test_cert_manager_is_asked_for_a_certificate_of_a_ca_of_the_releases_own() -> None:
    objects = rendered("cert-manager")
    ca, leaf = (objects["Certificate", f"drawbridge-{name}"]["spec"] for name in ("webhook-ca", "webhook"))

    assert objects["Issuer", "drawbridge-self-signed"]["spec"] == {"selfSigned": {}}
    assert ca["issuerRef"] == {"name": "drawbridge-self-signed", "kind": "Issuer", "group": "cert-manager.io"}
    assert objects["Issuer", "drawbridge-webhook-ca"]["spec"] == {"ca": {"secretName": ca["secretName"]}}
    assert leaf["issuerRef"] == {
        "name": "drawbridge-webhook-ca",
        "kind": "Issuer",
        "group": "cert-manager.io",
    }
    assert (leaf["secretName"], leaf["dnsNames"]) == (SECRET, [f"drawbridge-webhook.{NAMESPACE}.svc"])
    assert ca["isCA"] is True


@pytest.mark.parametrize("name", ["drawbridge", "drawbridge-of-a-rather-long-name-for-a-release"])
def test_controllers_that_take_over_know_the_ca_of_cert_manager_by_its_name(name: str) -> None:
    objects = render({"fullnameOverride": name, "certs": {"mode": "cert-manager"}})
    ours = rules(settings_in(objects).certs, NAMESPACE).authority_name

    assert objects["Certificate", f"{name}-webhook-ca"]["spec"]["commonName"] == ours[:COMMON_NAME_LENGTH]


def test_with_cert_manager_no_renewal_meets_a_server_that_has_not_read_it_yet() -> None:
    objects = rendered("cert-manager")
    ca, leaf = (objects["Certificate", f"drawbridge-{name}"]["spec"] for name in ("webhook-ca", "webhook"))

    assert (ca["privateKey"]["rotationPolicy"], leaf["privateKey"]["rotationPolicy"]) == ("Never", "Always")
    assert ca["renewBefore"] == leaf["duration"]


def test_the_ca_is_injected_into_all_that_is_registered() -> None:
    objects = rendered("cert-manager")
    for kind in CONFIGURATIONS:
        wanted = {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/drawbridge-webhook"}
        assert objects[kind, "drawbridge"]["metadata"]["annotations"] == wanted
        assert "annotations" not in rendered("self-managed")[kind, "drawbridge"]["metadata"]


def test_cas_of_the_operators_own_secret_are_injected_instead_and_tested_with() -> None:
    objects = rendered("cert-manager", certManager={"caSecret": "cas"})
    for kind in CONFIGURATIONS:
        wanted = {"cert-manager.io/inject-ca-from-secret": f"{NAMESPACE}/cas"}
        assert objects[kind, "drawbridge"]["metadata"]["annotations"] == wanted
    [volume] = objects["Pod", "drawbridge-test"]["spec"]["volumes"]
    assert volume["secret"]["secretName"] == "cas"


def test_an_issuer_that_is_there_signs_instead() -> None:
    objects = rendered("cert-manager", certManager={"issuerRef": {"name": "corp", "kind": "ClusterIssuer"}})

    assert kinds(objects) == {"Certificate", SECRET}
    assert objects["Certificate", "drawbridge-webhook"]["spec"]["issuerRef"] == {
        "name": "corp",
        "kind": "ClusterIssuer",
        "group": "cert-manager.io",
    }


@pytest.mark.parametrize(
    ("mode", "command"),
    [
        ("self-managed", f"involvedObject.name={SECRET}"),
        ("cert-manager", "get certificates,certificaterequests"),
    ],
)
def test_the_notes_say_where_to_look_for_the_certificate(mode: str, command: str) -> None:
    assert command in notes({"certs": {"mode": mode}})


@pytest.mark.parametrize(
    ("certs", "message"),
    [
        pytest.param(
            {"existingSecret": "x"},
            "certs.existingSecret is set, but certs.mode is self-managed: set certs.mode to files",
            id="a Secret that nobody would use",
        ),
        pytest.param(
            {"mode": "cert-manager", "caBundle": "x"},
            "certs.caBundle is set, but certs.mode is cert-manager",
            id="a CA that nobody would use",
        ),
        pytest.param({"mode": "Files"}, "/certs/mode", id="no mode"),
        pytest.param({"selfManaged": {"overlap": "1d"}}, "/certs/selfManaged/overlap", id="no duration"),
        pytest.param(
            {"selfManaged": {"overlap": "43200m"}},
            "certs.selfManaged.overlap (43200m) must be shorter than certs.selfManaged.renewBefore (720h)",
            id="an overlap without an end",
        ),
        pytest.param(
            {"selfManaged": {"leafValidity": "719h59m60s"}},
            "certs.selfManaged.renewBefore (720h) must be shorter than certs.selfManaged.leafValidity (719h59m60s)",
            id="always due",
        ),
        pytest.param(
            {
                "selfManaged": {
                    "caValidity": "1000ms",
                    "leafValidity": "1s",
                    "renewBefore": "500ms",
                    "overlap": "1ms",
                }
            },
            "certs.selfManaged.leafValidity (1s) must be shorter than certs.selfManaged.caValidity (1000ms)",
            id="a leaf as old as its CA",
        ),
        pytest.param(
            {"mode": "cert-manager", "certManager": {"caDuration": "2160h"}},
            "certs.certManager.duration (2160h) must be shorter than certs.certManager.caDuration (2160h)",
            id="a CA that is always due",
        ),
        pytest.param(
            {"mode": "cert-manager", "certManager": {"issuerRef": {"kind": "ClusterIssuer"}}},
            "certs.certManager.issuerRef has no name",
            id="nobody in particular",
        ),
        pytest.param(
            {"certManager": {"issuerRef": {"nmae": "x"}}}, "nmae", id="a slip of the pen in the issuer"
        ),
    ],
)
def test_certificates_that_cannot_work_are_refused_by_name(certs: dict[str, Any], message: str) -> None:
    assert message in refusal({"certs": certs})
