"""One table has the permissions of each ServiceAccount, with reasons: roles have no others, and none is too wide."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.anycast_ip import egress_pod
from controllers.ingress_daemonset.health_checks import access
from dev.lab.install import merged
from tests.charts import ANYCAST_IP, CA, NAMESPACE, SETS, Objects, helm_needed, render
from tests.ingress_daemonset_world import resource
from tests.pages import ROOT
from tests.pages import table as table_of
from tests.permissions import ALWAYS, EVERYWHERE, OWN, Permission, granted, seen_from, table

PAGE = ROOT / "docs" / "explanation" / "security.md"
FILES = {"mode": "files", "existingSecret": "tls", "caBundle": CA}
NOTHING: dict[str, Any] = {"ipReservation": {"enabled": False}, "certs": FILES}
EKLET = {name: SETS["eklet-with-keys-in-a-Secret"][name] for name in ("cloud", "eklet")}
WITH: dict[str, dict[str, Any]] = {
    "ipReservation": {"ipReservation": {"enabled": True}},
    "workloadOptIn": {"ipReservation": {"enabled": True, "workloadOptIn": True}},
    "sameAddress": {"ipReservation": {"enabled": True, "sameAddress": {"enabled": True}}},
    "pools": {"ipReservation": {"enabled": True, "pools": {"enabled": True}}},
    "pools.history": {"ipReservation": {"enabled": True, "pools": {"enabled": True, "history": "24h"}}},
    "egressCheck": {"anycastIP": {"egressCheck": {"url": "https://ip.example.com/"}}},
    "anycastIP": ANYCAST_IP | {"cloud": {"region": "ap-singapore", "existingSecret": "keys"}},
    "elasticity": {"elasticity": {"enabled": True}},
    "homeFailover": {"elasticity": {"homeFailover": {"enabled": True}}},
    "returnHome": {"elasticity": {"returnHome": {"enabled": True}}},
    "percentages": {"elasticity": {"percentages": True}},
    "openGates": {"elasticity": {"openGates": "always"}},
    "openGates: controllers": {"elasticity": {"openGates": "controllers"}},
    "ingressDaemonSet": {"ingressDaemonSet": {"enabled": True}},
    "attachNodes": {"ingressDaemonSet": {"attachNodes": "always"}},
    "clb": {
        "ingressDaemonSet": {"clb": {"enabled": True}},
        "cloud": {"region": "ap-singapore", "existingSecret": "keys"},
    },
    "self-managed": {"certs": {"mode": "self-managed", "existingSecret": "", "caBundle": ""}},
    "metrics.authentication": {"metrics": {"authentication": True}},
    "eklet": EKLET,
    "dashboard": {"dashboard": {"enabled": True, "from": [{"podSelector": {}}]}},
}
"""The values that bring the permissions of each feature."""
NOT_ALONE = (
    "workloadOptIn",
    "sameAddress",
    "pools",
    "pools.history",
    "egressCheck",
    "clb",
    "homeFailover",
    "returnHome",
    "percentages",
    "openGates",
    "attachNodes",
)
CHOICES = [
    pytest.param((), id="no feature"),
    *(pytest.param((each,), id=each) for each in WITH if each not in NOT_ALONE),
    pytest.param(("ipReservation", "workloadOptIn"), id="workloadOptIn"),
    pytest.param(("ipReservation", "sameAddress"), id="sameAddress"),
    pytest.param(("ipReservation", "pools"), id="pools"),
    pytest.param(("ipReservation", "pools", "pools.history"), id="pools.history"),
    pytest.param(("anycastIP", "egressCheck"), id="egressCheck"),
    pytest.param(("elasticity", "homeFailover"), id="homeFailover"),
    pytest.param(("ingressDaemonSet", "clb"), id="clb"),
    pytest.param(("elasticity", "returnHome"), id="returnHome"),
    pytest.param(("elasticity", "percentages"), id="percentages"),
    pytest.param(("elasticity", "openGates"), id="openGates"),
    pytest.param(("ingressDaemonSet", "attachNodes"), id="attachNodes"),
    pytest.param(tuple(each for each in WITH if each != "openGates: controllers"), id="all features"),
]


def installed(*features: str) -> Objects:
    values = NOTHING
    for each in features:
        values = merged(values, WITH[each])
    return render(values)


def in_roles(objects: Objects) -> dict[str, set[Permission]]:
    """By the names that the table has for the ServiceAccounts."""
    short = f"{NAMESPACE}/drawbridge-"
    found = granted(objects.values())
    assert all(account.startswith(short) for account in found)
    return {
        account.removeprefix(short): seen_from(NAMESPACE, permissions)
        for account, permissions in found.items()
    }


@helm_needed
@pytest.mark.parametrize("features", CHOICES)
def test_the_roles_give_what_the_table_has_for_what_is_enabled_and_nothing_else(
    features: tuple[str, ...],
) -> None:
    expected: dict[str, set[Permission]] = {"webhook": set(), "controllers": set()}
    for entry in table():
        if entry.by in (ALWAYS, *features) and entry.account != "health checkers":
            expected.setdefault(entry.account, set()).update(entry.permissions)

    assert in_roles(installed(*features)) == expected


def test_each_permission_of_the_table_comes_with_a_feature_that_is_rendered_with_and_without_it() -> None:
    assert {entry.by for entry in table() if entry.account != "health checkers"} <= {ALWAYS, *WITH}
    alone = {each.values[0][-1] for each in CHOICES if each.values[0] and each.id != "all features"}
    assert alone == {*WITH}


WITHOUT_PERMISSIONS = [
    pytest.param(("ipReservation", "pools"), {"ipReservation": {"maxPoolShare": 20}}, id="maxPoolShare"),
    pytest.param(("ipReservation",), {"ipReservation": {"maxPerNamespace": 5}}, id="maxPerNamespace"),
    pytest.param(
        ("ipReservation",), {"ipReservation": {"pools": {"history": "24h"}}}, id="history of no pools"
    ),
    pytest.param(
        ("anycastIP",), {"anycastIP": {"pool": {"retain": {"count": 3, "age": "1h"}}}}, id="pool.retain"
    ),
    pytest.param(("anycastIP",), {"anycastIP": {"pool": {"minIdle": 2}}}, id="pool.minIdle"),
    pytest.param(("anycastIP",), {"anycastIP": {"allowList": {"configMap": "ips"}}}, id="allowList"),
    pytest.param(
        ("elasticity",),
        {"elasticity": {"maxSuperPods": {"total": 9, "budgets": [{"namespaces": ["a"], "maxPods": 1}]}}},
        id="maxSuperPods.budgets",
    ),
]
"""Values beside those of WITH that switch something on. Canaries, rollbacks and the history of templates are switched
on by fields of an IngressDaemonSet, and by no value.
"""


@helm_needed
@pytest.mark.parametrize(("features", "values"), WITHOUT_PERMISSIONS)
def test_what_needs_no_permission_gets_none(features: tuple[str, ...], values: dict[str, Any]) -> None:
    base = NOTHING
    for each in features:
        base = merged(base, WITH[each])

    assert in_roles(render(merged(base, values))) == in_roles(render(base))


@helm_needed
@pytest.mark.parametrize(
    ("features", "written"),
    [
        pytest.param(("ipReservation", "pools"), [], id="none"),
        pytest.param(("ipReservation", "pools", "pools.history"), ["ip-history"], id="the history"),
        pytest.param(("anycastIP",), ["claim", "cluster's uuid"], id="claims"),
        pytest.param(
            ("ipReservation", "pools", "pools.history", "anycastIP"),
            ["claim", "ip-history", "cluster's uuid"],
            id="claims and the history",
        ),
        pytest.param(("ingressDaemonSet", "clb"), ["weights-of"], id="former weights"),
        pytest.param(
            ("ipReservation", "pools", "pools.history", "ingressDaemonSet", "clb"),
            ["ip-history", "weights-of"],
            id="the history and former weights",
        ),
        pytest.param(("elasticity", "returnHome"), ["drawbridge.io/returns"], id="failed returns"),
        pytest.param(
            ("ipReservation", "pools", "pools.history", "anycastIP", "ingressDaemonSet", "clb"),
            ["claim", "ip-history", "weights-of", "cluster's uuid"],
            id="all",
        ),
    ],
)
def test_a_policy_limits_which_config_maps_are_written(features: tuple[str, ...], written: list[str]) -> None:
    policy = installed(*features).get(("ValidatingAdmissionPolicy", "drawbridge-configmaps"))

    said = str(policy["spec"]["validations"]) if policy else ""
    every = ("claim", "ip-history", "drawbridge.io/returns", "weights-of", "cluster's uuid")
    assert [each for each in every if each in said] == written


@helm_needed
def test_health_checkers_get_what_the_table_has() -> None:
    (binding,) = access(resource(healthCheckNodePorts=[10080]), "drawbridge-health-checker")
    role = installed("ingressDaemonSet")["ClusterRole", "drawbridge-health-checker"]
    [permissions] = granted([role, binding]).values()
    [entry] = [each for each in table() if each.account == "health checkers"]

    assert seen_from(binding["metadata"]["namespace"], permissions) == entry.permissions


def test_no_permission_is_too_wide() -> None:
    given = {permission for entry in table() for permission in entry.permissions}
    assert not [each for each in given if "*" in "".join(each)]
    assert not {each.verb for each in given} & {"escalate", "impersonate", "deletecollection"}
    assert {each.name for each in given if each.verb == "bind"} == {"drawbridge-health-checker"}
    reaching = ("pods/exec", "pods/attach", "pods/portforward", "nodes/proxy", "serviceaccounts/token")
    assert not {each.resource for each in given} & {*reaching}


def test_webhook_servers_write_only_reservations_and_the_status_of_ingress_daemonsets() -> None:
    given = {each for entry in table() if entry.account == "webhook" for each in entry.permissions}
    reviews = {"tokenreviews", "subjectaccessreviews"}  # nothing is stored
    written = {each.resource for each in given if each.verb not in ("get", "list", "watch")} - reviews
    assert written == {"ipreservations", "ingressdaemonsets/status"}


def test_secrets_are_read_by_name_and_only_in_the_own_namespace() -> None:
    """What eklet is given is the provider's to say."""
    ours = [entry for entry in table() if entry.account != "eklet"]
    on_secrets = {each for entry in ours for each in entry.permissions if each.resource == "secrets"}
    assert {(each.where, bool(each.name), each.verb) for each in on_secrets} == {
        (OWN, False, "create"),
        (OWN, True, "get"),
        (OWN, True, "update"),
    }


def test_the_dashboard_only_reads_and_no_secret() -> None:
    given = {each for entry in table() if entry.account == "dashboard" for each in entry.permissions}

    assert {each.verb for each in given} == {"get", "list"}
    assert "secrets" not in {each.resource for each in given}


@helm_needed
def test_with_ip_reservation_alone_the_controllers_cannot_change_pods() -> None:
    """As the page says."""
    pods = {
        each.verb for each in in_roles(installed("ipReservation"))["controllers"] if each.resource == "pods"
    }

    assert pods == {"get", "list", "watch"}


@helm_needed
@pytest.mark.parametrize(
    ("features", "messages"),
    [
        pytest.param(("ipReservation",), [], id="no change, no policy"),
        pytest.param(
            ("ipReservation", "workloadOptIn"), ["nothing of a pod but whether"], id="two annotations"
        ),
        pytest.param(
            ("ipReservation", "sameAddress"), ["and end a promised one"], id="an address that was promised"
        ),
        pytest.param(
            ("ipReservation", "workloadOptIn", "elasticity"),
            ["not change the containers"],
            id="what both write",
        ),
        pytest.param(
            ("ipReservation", "workloadOptIn", "openGates: controllers"),
            ["not change the containers"],
            id="what both write while elasticity is off",
        ),
    ],
)
def test_a_policy_limits_what_the_controllers_change_of_pods(
    features: tuple[str, ...], messages: list[str]
) -> None:
    policy = installed(*features).get(("ValidatingAdmissionPolicy", "drawbridge-pods"))

    said = [each["message"] for each in policy["spec"]["validations"]] if policy else []
    assert bool(said) == bool(messages)
    assert all(any(each in message for message in said) for each in messages)


EGRESS_CHECKS = ("ValidatingAdmissionPolicy", "drawbridge-egress-checks")


@helm_needed
@pytest.mark.parametrize("others", [(), ("elasticity",), ("openGates: controllers",)])
def test_policies_limit_pods_to_those_that_check_the_egress_of_nodes(others: tuple[str, ...]) -> None:
    assert EGRESS_CHECKS not in installed("anycastIP", *others)
    objects = installed("anycastIP", "egressCheck", *others)
    (rule,) = objects[EGRESS_CHECKS]["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE", "DELETE"])
    rules = " ".join(each["expression"] for each in objects[EGRESS_CHECKS]["spec"]["validations"])
    assert all(word in rules for word in ("volumes", "serviceAccountName", "privileged", *egress_pod.COMMAND))
    pods = objects.get(("ValidatingAdmissionPolicy", "drawbridge-pods"), {"spec": {"validations": []}})
    deletions = [
        each["expression"]
        for each in [*objects[EGRESS_CHECKS]["spec"]["validations"], *pods["spec"]["validations"]]
        if "delete only" in each["message"]
    ]
    assert len(deletions) == 1
    assert "drawbridge.io/egress-check" in deletions[0]


@helm_needed
def test_a_policy_limits_evictions_where_there_are_some() -> None:
    policy = ("ValidatingAdmissionPolicy", "drawbridge-evictions")

    assert policy not in installed("elasticity")
    (rule,) = installed("elasticity", "returnHome")[policy]["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["pods/eviction"], ["CREATE"])


@helm_needed
def test_of_the_pods_of_helm_test_the_one_that_reserves_alone_has_a_token() -> None:
    objects = installed(*(each for each in WITH if each != "openGates: controllers"))
    test = objects["Pod", "drawbridge-test"]["spec"]
    assert test["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in test
    assert objects["Pod", "drawbridge-test-reservation"]["spec"]["serviceAccountName"] == "drawbridge-webhook"


# The page


HEADINGS = {
    "webhook": "Webhook servers",
    "controllers": "Controllers",
    "gates": "Gates",
    "attach": "Attachment",
    "metrics-reader": "Metrics reader",
    "health checkers": "Health checkers",
    "dashboard": "Dashboard",
    "eklet": "eklet",
}
BY = {ALWAYS: "always", "self-managed": "`certs.mode: self-managed`", "homeFailover": "`homeFailover`"}
PLACES = {EVERYWHERE: "everywhere", OWN: "own namespace"}


@pytest.mark.parametrize(("account", "heading"), HEADINGS.items(), ids=HEADINGS.keys())
def test_the_page_has_the_table(account: str, heading: str) -> None:
    entries = [entry for entry in table() if entry.account == account]
    expected = [
        [
            BY.get(entry.by, f"`{entry.by}`"),
            ", ".join(entry.verbs),
            ", ".join(f"`{each}`" for each in entry.resources)
            + "".join(f" named `{name}`" for name in entry.names),
            PLACES.get(entry.where, f"`{entry.where}`"),
            entry.why,
            entry.attack,
        ]
        for entry in entries
    ]
    assert table_of(PAGE, heading) == expected
