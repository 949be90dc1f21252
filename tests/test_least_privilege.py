"""One table has the permissions of each ServiceAccount, with reasons: roles have no others, and none is too wide."""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest

from controllers.anycast_ip import egress
from controllers.ingress_daemonset.health_checks import access
from dev.lab.install import merged
from tests.charts import ANYCAST_IP, CA, NAMESPACE, Objects, helm_needed, render
from tests.ingress_daemonset_world import resource
from tests.pages import ROOT, sections
from tests.pages import table as table_of
from tests.permissions import ALWAYS, EVERYWHERE, OWN, Entry, Permission, granted, seen_from, table

PAGE = ROOT / "docs" / "reference" / "permissions.md"
FILES = {"mode": "files", "existingSecret": "tls", "caBundle": CA}
NOTHING: dict[str, Any] = {"ipReservation": {"enabled": False}, "certs": FILES}
WITH: dict[str, dict[str, Any]] = {
    "ipReservation": {"ipReservation": {"enabled": True, "standing": {"enabled": False}}},
    "workloadOptIn": {"ipReservation": {"enabled": True, "workloadOptIn": True}},
    "sameAddress": {"ipReservation": {"enabled": True, "sameAddress": {"enabled": True}}},
    "standing": {"ipReservation": {"enabled": True, "standing": {"enabled": True}}},
    "pools": {"ipReservation": {"enabled": True, "pools": {"enabled": True}}},
    "egressCheck": {"anycastIP": {"egressCheck": {"enabled": True, "url": "https://ip.example.com/"}}},
    "podAddress": {"anycastIP": {"podAddress": {"enabled": True}}},
    "anycastIP": ANYCAST_IP,
    "elasticity": {"elasticity": {"enabled": True}},
    "homeFailover": {"elasticity": {"homeFailover": {"enabled": True}}},
    "returnHome": {"elasticity": {"returnHome": {"enabled": True}}},
    "percentages": {"elasticity": {"percentages": True}},
    "openGates": {"elasticity": {"advanced": {"openGates": "always"}}},
    "openGates: controllers": {"elasticity": {"advanced": {"openGates": "controllers"}}},
    "ingressDaemonSet": {"ingressDaemonSet": {"enabled": True}},
    "attachNodes": {"ingressDaemonSet": {"advanced": {"attachNodes": "always"}}},
    "clb": {"ingressDaemonSet": {"clb": {"enabled": True}}, "cloud": ANYCAST_IP["cloud"]},
    "self-managed": {"certs": {"mode": "self-managed", "existingSecret": "", "caBundle": ""}},
    "metrics.authentication": {"metrics": {"authentication": True}},
    "dashboard": {"dashboard": {"enabled": True, "from": [{"podSelector": {}}]}},
}
"""The values that bring the permissions of each feature."""
NEED = {
    "workloadOptIn": ("ipReservation",),
    "sameAddress": ("ipReservation",),
    "standing": ("ipReservation",),
    "pools": ("ipReservation",),
    "egressCheck": ("anycastIP",),
    "podAddress": ("anycastIP",),
    "clb": ("ingressDaemonSet",),
    "homeFailover": ("elasticity",),
    "returnHome": ("elasticity",),
    "percentages": ("elasticity",),
    "openGates": ("elasticity",),
    "attachNodes": ("ingressDaemonSet",),
}
"""What some of them are nothing without."""
OTHERS = ("health checkers", "eklet", "view")
"""What is bound to no ServiceAccount of this chart."""
CHOICES: list[tuple[str, ...]] = [
    (),
    *((*NEED.get(each, ()), each) for each in WITH),
    tuple(each for each in WITH if each != "openGates: controllers"),
]


def values_of(*features: str) -> dict[str, Any]:
    return functools.reduce(merged, (WITH[each] for each in features), NOTHING)


def installed(*features: str) -> Objects:
    return render(values_of(*features))


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
def test_the_roles_give_what_the_table_has_for_what_is_enabled_and_nothing_else(
    subtests: pytest.Subtests,
) -> None:
    for features in CHOICES:
        expected: dict[str, set[Permission]] = {"webhook": set(), "controllers": set()}
        for entry in table():
            if entry.by in (ALWAYS, *features) and entry.account not in OTHERS:
                expected.setdefault(entry.account, set()).update(entry.permissions)

        with subtests.test("of " + ", ".join(features)):
            assert in_roles(installed(*features)) == expected


def test_each_permission_of_the_table_comes_with_a_feature_that_is_rendered() -> None:
    assert {entry.by for entry in table() if entry.account not in OTHERS} <= {ALWAYS, *WITH}


WITHOUT_PERMISSIONS: list[tuple[str, dict[str, Any]]] = [
    ("pools", {"ipReservation": {"maxPoolShare": "20%"}}),
    ("ipReservation", {"ipReservation": {"maxPerNamespace": 5}}),
    ("anycastIP", {"anycastIP": {"pool": {"retain": {"enabled": True, "count": 3, "age": "1h"}}}}),
    ("anycastIP", {"anycastIP": {"pool": {"minIdle": 2}}}),
    ("anycastIP", {"anycastIP": {"allowList": {"enabled": True, "configMap": "ips"}}}),
    (
        "elasticity",
        {"elasticity": {"maxSuperPods": {"total": 9, "budgets": [{"namespaces": ["a"], "maxPods": 1}]}}},
    ),
]
"""Values beside those of WITH that switch something on. Canaries, rollbacks and the history of templates are switched
on by fields of an IngressDaemonSet, and by no value.
"""


@helm_needed
def test_what_needs_no_permission_gets_none(subtests: pytest.Subtests) -> None:
    for feature, values in WITHOUT_PERMISSIONS:
        base = values_of(*NEED.get(feature, ()), feature)
        with subtests.test(feature, values=values):
            assert in_roles(render(merged(base, values))) == in_roles(render(base))


POOLS = ("ipReservation", "pools")
WRITTEN: dict[tuple[str, ...], list[str]] = {
    POOLS: [],
    ("anycastIP",): ["claim", "cluster's uuid"],
    (*POOLS, "anycastIP"): ["claim", "cluster's uuid"],
    ("ingressDaemonSet", "clb"): ["weights-of"],
    (*POOLS, "ingressDaemonSet", "clb"): ["weights-of"],
    ("elasticity", "returnHome"): ["drawbridge.io/returns"],
    (*POOLS, "anycastIP", "ingressDaemonSet", "clb"): [
        "claim",
        "weights-of",
        "cluster's uuid",
    ],
}
"""By features, what the policy of ConfigMaps names."""


@helm_needed
def test_a_policy_limits_which_config_maps_are_written(subtests: pytest.Subtests) -> None:
    every = ("claim", "drawbridge.io/returns", "weights-of", "cluster's uuid")
    for features, written in WRITTEN.items():
        policy = installed(*features).get(("ValidatingAdmissionPolicy", "drawbridge-configmaps"))

        said = str(policy["spec"]["validations"]) if policy else ""
        with subtests.test("of " + ", ".join(features)):
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
def test_those_who_view_the_cluster_see_drawbridge(subtests: pytest.Subtests) -> None:
    for features in ((), ("ipReservation",), ("ingressDaemonSet",)):
        role = installed(*features)["ClusterRole", "drawbridge-view"]
        bound = {"kind": "ClusterRole", "name": "drawbridge-view"}
        subjects = [{"kind": "User", "name": "eve"}]
        binding = {
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "eve"},
            "roleRef": bound,
            "subjects": subjects,
        }
        [given] = granted([role, binding]).values()
        of_view = [entry for entry in table() if entry.account == "view"]

        with subtests.test("with " + ", ".join(features)):
            assert role["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
            assert given == {
                each for entry in of_view if entry.by in (ALWAYS, *features) for each in entry.permissions
            }
            assert {each.verb for each in given} <= {"get", "list", "watch"}
            assert not {"nodes", "secrets"} & {each.resource for each in given}


PODS_POLICY = ("ValidatingAdmissionPolicy", "drawbridge-pods")
EGRESS_CHECKS = ("ValidatingAdmissionPolicy", "drawbridge-egress-checks")


@helm_needed
def test_policies_limit_pods_to_those_that_check_the_egress_of_nodes() -> None:
    words = ("volumes", "serviceAccountName", "privileged", *egress.COMMAND)
    for others in ((), ("elasticity",), ("elasticity", "homeFailover"), ("openGates: controllers",)):
        assert EGRESS_CHECKS not in installed("anycastIP", *others)
        objects = installed("anycastIP", "egressCheck", *others)
        (rule,) = objects[EGRESS_CHECKS]["spec"]["matchConstraints"]["resourceRules"]
        assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE", "DELETE"])
        rules = " ".join(each["expression"] for each in objects[EGRESS_CHECKS]["spec"]["validations"])
        assert all(word in rules for word in words)
        deletions = [
            f"{policy['spec']['matchConditions']} {each['expression']}"
            for policy in (objects[EGRESS_CHECKS], objects.get(PODS_POLICY))
            for each in (policy["spec"]["validations"] if policy else ())
            if "delete only" in each["message"]
        ]
        assert len(deletions) == 1, others
        assert "drawbridge.io/egress-check" in deletions[0]


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
    "view": "People with the role view",
    "eklet": "eklet",
}
BY = {ALWAYS: "always", "self-managed": "`certs.mode: self-managed`", "homeFailover": "`homeFailover`"}
PLACES = {EVERYWHERE: "", OWN: " (own)"}
NOTHING_MORE = {"none": ""}


def test_the_page_has_the_table() -> None:
    for account, heading in HEADINGS.items():
        section, rows = sections(PAGE)[heading], rows_of(account)
        if account in LISTED:
            assert re.findall("^- (.+): (.+)$", section, re.MULTILINE) == [tuple(row[-2:]) for row in rows]
            assert all(row[0] in section for row in rows if row[0] != ALWAYS)
        else:
            assert table_of(PAGE, heading) == rows, heading


LISTED = ("metrics-reader", "health checkers", "dashboard", "view", "eklet")
"""Accounts whose permissions differ in what they are for, but not in what a stolen token could do."""


def test_what_a_stolen_token_could_do_is_above_a_list() -> None:
    for account in LISTED:
        attacks = {entry.attack for entry in table() if entry.account == account} - {"none", "the same"}
        assert all(each in sections(PAGE)[HEADINGS[account]] for each in attacks)


def rows_of(account: str) -> list[list[str]]:
    """Without columns that an account does not need; what is there for *the same* shares a row, and the feature of the
    row above is not repeated.
    """
    entries = [entry for entry in table() if entry.account == account]
    by = len({entry.by for entry in entries}) > 1
    risky = account not in LISTED
    rows: list[list[str]] = []
    last = ""
    for entry in entries:
        attack = NOTHING_MORE.get(entry.attack, entry.attack)
        if entry.why == "the same" and attack in ("the same", rows[-1][-1]):
            rows[-1][by] += f"; {may(entry)}"
        else:
            name = "" if entry.by == last else BY.get(entry.by, f"`{entry.by}`")
            rows.append([*[name] * by, may(entry), entry.why, *[attack] * risky])
        last = entry.by
    return rows


def may(entry: Entry) -> str:
    what = ", ".join(f"`{each}`" for each in entry.resources)
    names = " named " + ", ".join(f"`{name}`" for name in entry.names) if entry.names else ""
    verbs = ", ".join(entry.verbs).replace("get, list, watch", "read")
    return f"{verbs} {what}{names}" + PLACES.get(entry.where, f" in `{entry.where}`")
