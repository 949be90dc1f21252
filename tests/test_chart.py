"""The chart: its values are documented and reach the program, and the objects that it renders fit together."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from calico.segment import ENTRIES
from certs.issue import COMMON_NAME_LENGTH
from cli.installation import MutatingPolicy
from controllers.certificates.controller import rules
from dev.lab import chart, values_comments, values_page
from dev.lab.errors import LabError
from dev.lab.install import merged
from features import unregistered
from settings import Settings, parse
from settings.anycast_ip import EgressCheck
from settings.file import changed_fields, needing_restart
from settings.ingress_daemonset import HealthChecker
from tests.charts import (
    CA,
    CHART,
    NAMESPACE,
    SETS,
    Objects,
    configurations,
    helm,
    helm_needed,
    nodes,
    of_kinds,
    render,
    settings_in,
    table,
)

WHOLE = ("resources", "podSecurityContext", "securityContext", "nodeLabels", "nodeSelector", "labels")
"""Values whose parts are not the chart's."""
SECRETS = r"\b(a-key|a-token|my-word)\b"
"""What stands for a key in tests/data/renders and tests/data/chart."""


# Values, schema and README; these tests need no Helm


def leaves(values: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in WHOLE:
            yield from leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def described(schema: dict[str, Any]) -> set[str]:
    """Its values; no section may take unknown ones."""
    found = dict(nodes(schema))
    sections = {path: node for path, node in found.items() if "properties" in node}
    assert [path for path, node in sections.items() if node["additionalProperties"] is not False] == []
    return found.keys() - sections.keys()


MOST = 205
"""Values, those of the originals' names included; what is refused by name is none."""
VALUES = (CHART / "values.yaml").read_text()


def test_the_schema_has_all_values_and_no_others() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["additionalProperties"] is False
    assert described(schema) == {name for name, _ in leaves(yaml.safe_load(VALUES))} | {"global"}
    assert len(described(schema)) <= MOST


def test_each_node_of_the_schema_is_described() -> None:
    """Values that hold objects of Kubernetes are described as a whole."""
    schema = json.loads((CHART / "values.schema.json").read_text())

    assert [path for path, node in nodes(schema) if not node.get("description", "").strip(" .")] == []
    assert len([*nodes(schema)]) > 200


@pytest.mark.parametrize("folder", [CHART, chart.EKLET], ids=["drawbridge", "eklet"])
def test_the_readme_is_that_of_the_values(folder: Path) -> None:
    """`make manifests` writes it again."""
    readme, values = (folder / "README.md").read_text(), (folder / "values.yaml").read_text()
    assert values_page.page(readme, values) == readme
    comments = values_comments.marked(values)
    described = [path for path, comment in comments if comment.startswith(values_comments.VALUE)]
    assert described == [name for name, _ in leaves(yaml.safe_load(values))]


# Values that reach the program


@helm_needed
def test_the_default_configuration_is_the_default_of_the_program_for_its_own_namespace() -> None:
    default = Settings()
    excluded = {"excluded_namespaces": (*default.elasticity.excluded_namespaces, NAMESPACE)}
    checker = HealthChecker(image="drawbridge:0.1.0", image_pull_policy="IfNotPresent")
    lease = {"resource_namespace": NAMESPACE}
    egress = EgressCheck(image=checker.image, image_pull_policy=checker.image_pull_policy)
    assert settings_in(render()) == default.model_copy(
        update={
            "leader_election": default.leader_election.model_copy(update=lease),
            "anycast_ip": default.anycast_ip.model_copy(update={"egress_check": egress}),
            "elasticity": default.elasticity.model_copy(update=excluded),
            "ingress_daemonset": default.ingress_daemonset.model_copy(update={"health_checker": checker}),
            "certs": default.certs.model_copy(update={"mode": "self-managed"}),
        }
    )


@helm_needed
def test_every_value_reaches_the_program(subtests: pytest.Subtests) -> None:
    rows = table("settings")
    answers = configurations([row["values"] for row in rows.values()])
    for (name, row), answer in zip(rows.items(), answers, strict=True):
        with subtests.test(name):
            found, expected = parse(answer["config"]), Settings.model_validate(row["settings"])
            for section in expected.model_fields_set:
                assert getattr(found, section) == getattr(expected, section)


@helm_needed
def test_values_against_the_schema_are_refused_by_name() -> None:
    for row in (0, 1):
        faults = {place: wrong[row] for place, wrong in table("schema_faults").items() if len(wrong) > row}
        values: dict[str, Any] = {}
        for place, wrong in faults.items():
            values = with_value(values, place.split("/")[1:], wrong)
        (answer,) = configurations([values])
        assert [place for place in faults if f"'{place}'" not in answer["refused"]] == []


def with_value(part: Any, place: list[str], value: object) -> Any:
    """*part* with *value* at *place*; a number is an index of a list of one."""
    if not place:
        return merged(part, value) if isinstance(part, dict) and isinstance(value, dict) else value
    key, *rest = place
    if key.isdigit():
        return [with_value(part[0] if part else None, rest, value)]
    part = part or {}
    return part | {key: with_value(part.get(key), rest, value)}


@helm_needed
def test_values_that_cannot_work_are_refused_by_name(subtests: pytest.Subtests) -> None:
    rows = [(name, *row) for name, refused in table("refused").items() for row in refused.items()]
    answers = configurations([merged(SETS[name], values) for name, _, values in rows])
    for (name, message, _), answer in zip(rows, answers, strict=True):
        with subtests.test(message, over=name):
            assert message in answer["refused"]
            assert not re.search(SECRETS, answer["refused"]), "a secret is shown"


@helm_needed
def test_values_that_can_work_are_accepted(subtests: pytest.Subtests) -> None:
    rows = table("accepted")
    answers = configurations([merged(SETS[name], values) for name, values in rows.values()])
    for row, answer in zip(rows, answers, strict=True):
        with subtests.test(row):
            assert "refused" not in answer
            parse(answer["config"])


@helm_needed
def test_a_quota_is_refused_in_a_namespace_whose_other_pods_it_would_count() -> None:
    with pytest.raises(LabError, match="its quota would count pods of others there: leave it off"):
        chart.manifests("resourceQuota: {enabled: true}", "--namespace=kube-system")


@helm_needed
@pytest.mark.parametrize("name", ["1st", "team.drawbridge"])
def test_a_release_whose_name_no_service_may_have_needs_another_for_its_objects(name: str) -> None:
    with pytest.raises(AssertionError, match=f"the release is called {name}, .*: set fullnameOverride"):
        helm("template", name, str(CHART), values={})

    assert "name: edge-webhook" in helm("template", name, str(CHART), values={"fullnameOverride": "edge"})


# Objects that fit together


def are_in_their_namespaces(objects: Objects) -> None:
    for (kind, name), document in objects.items():
        elsewhere = name.endswith(("-cluster-uuid", "-switch"))
        expected = "kube-system" if elsewhere else NAMESPACE
        assert document["metadata"].get("namespace", expected) == expected, (kind, name)


def pods_in(objects: Objects) -> dict[str, dict[str, Any]]:
    """Those of programs, jobs and tests, by name."""
    templates = of_kinds(objects, "Deployment", "Job")
    return of_kinds(objects, "Pod") | {name: each["spec"]["template"] for name, each in templates.items()}


def select_their_pods(objects: Objects) -> None:
    """Every selector finds the pods of its program, and neither those of another one nor those of jobs and tests."""
    pods = pods_in(objects)
    for (kind, name), document in objects.items():
        if kind not in ("Service", "Deployment", "PodDisruptionBudget", "NetworkPolicy"):
            continue
        selector = document["spec"]["podSelector" if kind == "NetworkPolicy" else "selector"]
        labels = selector.get("matchLabels", selector).items()
        found = {pod for pod, template in pods.items() if labels <= template["metadata"]["labels"].items()}
        base, _, part = name.rpartition("-")
        parts = {"metrics": ("webhook", "controllers"), "addresses": ("controllers",)}.get(part, (part,))
        assert found == {f"{base}-{each}" for each in parts}, (kind, name)
        for pod in found:
            [container, *_] = pods[pod]["spec"]["containers"]
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            assert ports_of(kind, document) <= {*ports.keys(), *ports.values()}, (kind, name)


def ports_of(kind: str, document: dict[str, Any]) -> set[str | int]:
    spec = document["spec"]
    if kind == "Service":
        return {port["targetPort"] for port in spec["ports"]}
    rules = spec.get("ingress", ()) if kind == "NetworkPolicy" else ()
    return {port["port"] for rule in rules for port in rule["ports"]}


def have_their_accounts(objects: Objects) -> None:
    for (kind, _), document in objects.items():
        if kind in ("RoleBinding", "ClusterRoleBinding"):
            assert (document["roleRef"]["kind"], document["roleRef"]["name"]) in objects
            assert ("ServiceAccount", document["subjects"][0]["name"]) in objects
        if kind in ("Deployment", "Job"):
            assert ("ServiceAccount", document["spec"]["template"]["spec"]["serviceAccountName"]) in objects
        if kind == "FlowSchema":
            [rule] = document["spec"]["rules"]
            subjects = [each["serviceAccount"] for each in rule["subjects"]]
            assert {each["namespace"] for each in subjects} == {NAMESPACE}
            assert all(("ServiceAccount", each["name"]) in objects for each in subjects)
            assert document["spec"]["matchingPrecedence"] < 9000, (
                "the built-in service-accounts would match first"
            )


def agree_with_the_configuration(objects: Objects) -> None:
    settings = settings_in(objects)
    [(_, config), *_] = [key for key in objects if key[0] == "ConfigMap"]
    programs = {
        name.rpartition("-")[2]: each["spec"]["template"]["spec"]
        for name, each in of_kinds(objects, "Deployment").items()
    }
    volumes = {
        name: {each["name"]: each for each in spec["volumes"]}
        for name, spec in programs.items()
        if name != "dashboard"  # which reads them by the API server
    }
    mounts = {
        name: {each["name"]: each["mountPath"] for each in spec["containers"][0].get("volumeMounts", ())}
        for name, spec in programs.items()
    }
    assert {each["config"]["configMap"]["name"] for each in volumes.values()} == {config}
    assert programs["webhook"]["containers"][0]["ports"][0]["containerPort"] == settings.webhook.port
    assert mounts["controllers"].get("cloud", "") == settings.cloud.credentials_dir
    assert "cloud" not in mounts["webhook"]
    directory, _, file = settings.cloud.ca_file.rpartition("/")
    assert not file or (
        file in objects["ConfigMap", config]["data"] and directory == mounts["controllers"]["config"]
    )
    leases = {
        name
        for role in of_kinds(objects, "Role").values()
        for rule in role["rules"]
        if rule["resources"] == ["leases"]
        for name in rule.get("resourceNames", ())
    }
    assert leases == {settings.leader_election.resource_name}
    if settings.certs.mode == "self-managed":
        assert ("Secret", settings.certs.secret_name) in objects
        assert volumes["webhook"]["tls"]["secret"]["secretName"] == settings.certs.secret_name


def register_what_is_served(objects: Objects) -> None:
    """Every webhook, or what replaces it, has a path that helm test calls; the CA comes from where the mode says."""
    settings = settings_in(objects)
    configurations = [each for (kind, _), each in objects.items() if kind.endswith("WebhookConfiguration")]
    hooks = [hook for each in configurations for hook in each["webhooks"]]
    tests = [each for name, each in of_kinds(objects, "Pod").items() if name.endswith("-test")]
    called = [
        word for pod in tests for word in pod["spec"]["containers"][0]["args"] if not word.startswith("--")
    ]
    registered = {hook["clientConfig"]["service"]["path"] for hook in hooks}
    policies = of_kinds(objects, "MutatingAdmissionPolicy").values()
    registered |= {msgspec.convert(each, MutatingPolicy).replaces.path for each in policies}
    assert registered == set(called) == set(unregistered(settings, ()))
    assert {"caBundle" in hook["clientConfig"] for hook in hooks} <= {settings.certs.mode == "files"}
    injected = {
        "cert-manager.io/inject-ca-from" in str(each["metadata"].get("annotations"))
        for each in configurations
    }
    assert injected <= {settings.certs.mode == "cert-manager"}
    for hook in hooks:
        if hook["name"] == "ip-reservation.drawbridge.io":
            assert hook["failurePolicy"] == settings.ip_reservation.failure_policy


def have_keys_only_in_secrets(objects: Objects) -> None:
    others = [each for (kind, _), each in objects.items() if kind != "Secret"]
    assert not re.search(SECRETS, str(others))


FITS: tuple[Callable[[Objects], None], ...] = (
    are_in_their_namespaces,
    select_their_pods,
    have_their_accounts,
    agree_with_the_configuration,
    register_what_is_served,
    have_keys_only_in_secrets,
)


@helm_needed
def test_the_parts_fit_together(subtests: pytest.Subtests) -> None:
    for name, values in SETS.items():
        objects = render(values)
        for fit in FITS:
            with subtests.test(name, parts=fit.__name__):
                fit(objects)


@helm_needed
def test_a_ca_bundle_may_be_given_as_pem() -> None:
    objects = render({"certs": {"mode": "files", "existingSecret": "tls", "caBundle": CA}})
    for webhook in objects["ValidatingWebhookConfiguration", "drawbridge"]["webhooks"]:
        assert base64.b64decode(webhook["clientConfig"]["caBundle"]).decode() == CA.strip()


@helm_needed
def test_the_policy_allows_segments_as_large_as_the_programs_make_them() -> None:
    rules = render()["ValidatingAdmissionPolicy", "drawbridge-reservations"]["spec"]["validations"]
    (bound,) = [each for each in rules if "addresses in one IPReservation" in each["message"]]

    assert set(re.findall(r"\d+", f"{bound}")) == {str(ENTRIES)}


@helm_needed
def test_weights_alone_bring_the_keys_to_the_controllers_and_to_nothing_else() -> None:
    clb = {"ingressDaemonSet": {"enabled": True, "clb": {"enabled": True}}}
    objects = render(clb | {"cloud": {"region": "ap-singapore", "existingSecret": "keys"}})
    programs = of_kinds(objects, "Deployment").items()
    with_keys = {
        name for name, each in programs if "keys" in str(each["spec"]["template"]["spec"]["volumes"])
    }
    policy = objects["ValidatingAdmissionPolicy", "drawbridge-configmaps"]["spec"]["validations"][0]

    assert with_keys == {"drawbridge-controllers"}
    assert settings_in(objects).cloud.credentials_dir
    assert "drawbridge.io/weights-of" in policy["expression"]
    assert "claim" not in policy["expression"] + policy["message"]
    with pytest.raises(LabError, match=r"cloud\.region is empty: with ingressDaemonSet\.clb\.enabled"):
        render(clb)


@helm_needed
def test_pods_are_replaced_only_for_what_they_read_at_their_start(subtests: pytest.Subtests) -> None:
    for name, change, replaced in table("replaced"):
        before, after = (
            of_kinds(render(values), "Deployment") for values in (SETS[name], merged(SETS[name], change))
        )
        with subtests.test(name, change=change):
            assert [each for each in before if before[each] != after[each]] == [
                f"drawbridge-{each}" for each in replaced
            ]
            # After an edit of the ConfigMap, which replaces none, the log names the same.
            old, new = (settings_in(render(each)) for each in (SETS[name], merged(SETS[name], change)))
            if fields := changed_fields(old, new):
                assert bool(needing_restart(fields, new)) == bool(replaced)


@helm_needed
def test_a_crd_that_is_not_kept_goes_with_the_release_and_not_with_the_feature() -> None:
    """Helm deletes what it does not find any more, and with the CRD all IngressDaemonSets."""
    crds = {"crds": {"keep": False, "deleteIngressDaemonSets": True}}
    for enabled in (True, False):
        objects = render(crds | {"ingressDaemonSet": {"enabled": enabled}})
        assert of_kinds(objects, "CustomResourceDefinition")


@helm_needed
def test_each_pod_has_what_is_set_for_the_pods_of_all_programs() -> None:
    """Jobs and tests, too: a sidecar that is put in without the annotation would never let them end."""
    always = {"elasticity": {"advanced": {"openGates": "always"}}, "ingressDaemonSet": {"enabled": True}}
    annotations = {"linkerd.io/inject": "disabled"}
    objects = render(always | {"podAnnotations": annotations, "priorityClassName": "1000"})
    pods = pods_in(objects).values()

    assert len(pods) == 5
    for pod in pods:
        assert annotations.items() <= pod["metadata"]["annotations"].items()
        assert pod["spec"]["priorityClassName"] == "1000"


@helm_needed
def test_each_object_has_the_common_labels() -> None:
    objects = render(SETS["all-features"] | {"commonLabels": {"team": "edge"}})

    assert [name for name, each in objects.items() if "team" not in each["metadata"].get("labels", ())] == []


@helm_needed
def test_a_sleep_of_no_time_is_left_out() -> None:
    """Kubernetes before 1.33 refuses it."""
    for seconds in (0, 5):
        deployment = render({"webhook": {"preStopSleep": f"{seconds}s"}})["Deployment", "drawbridge-webhook"]
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        assert bool(container.get("lifecycle")) == bool(seconds)


NOTHING = {
    "ipReservation": {"enabled": False},
    "certs": {"mode": "files", "existingSecret": "x", "caBundle": CA},
}


def notes(values: dict[str, Any]) -> str:
    return helm("install", "drawbridge", str(CHART), "--dry-run=client", values=values).partition("NOTES:")[2]


@helm_needed
def test_the_notes_say_what_to_look_at(subtests: pytest.Subtests) -> None:
    of_nothing = notes(NOTHING)
    for row in table("notes"):
        text = notes(merged(SETS[row["set"]], row.get("values", {})))
        for words in row["says"]:
            with subtests.test(words, over=row["set"]):
                assert words in text
                assert words not in of_nothing
                assert not re.search(SECRETS, text), "a secret is shown"


@helm_needed
def test_the_notes_say_what_to_do_when_the_image_cannot_be_pulled() -> None:
    checkout, release = notes({}), notes({"image": {"registry": "registry.example"}})

    assert "cannot pull drawbridge:0.1.0" in checkout
    assert "names no registry: build the image" in checkout
    assert "cannot pull registry.example/drawbridge:0.1.0" in release
    assert "SECRET" in release


@helm_needed
def test_controllers_that_take_over_know_the_ca_of_cert_manager_by_its_name() -> None:
    for name in ("drawbridge", "drawbridge-of-a-rather-long-name-for-a-release"):
        objects = render({"fullnameOverride": name, "certs": {"mode": "cert-manager"}})
        ours = rules(settings_in(objects).certs, NAMESPACE).authority_name
        assert objects["Certificate", f"{name}-webhook-ca"]["spec"]["commonName"] == ours[:COMMON_NAME_LENGTH]


@helm_needed
def test_a_renewed_ca_of_cert_manager_verifies_every_certificate_in_use() -> None:
    objects = render({"certs": {"mode": "cert-manager"}})
    ca, leaf = (objects["Certificate", f"drawbridge-{name}"]["spec"] for name in ("webhook-ca", "webhook"))
    assert (ca["privateKey"]["rotationPolicy"], leaf["privateKey"]["rotationPolicy"]) == ("Never", "Always")
    assert ca["renewBefore"] == leaf["duration"]


@helm_needed
def test_health_checkers_have_our_image_unless_another_is_named() -> None:
    ours = {"image": {"registry": "registry.example:5000/team", "tag": "v9", "pullPolicy": "Always"}}
    named = ours | {"ingressDaemonSet": {"healthChecker": {"image": {"repository": "other"}}}}
    answers = configurations(
        [merged({"ingressDaemonSet": {"enabled": True}}, each) for each in (ours, named)]
    )

    found = [parse(each["config"]).ingress_daemonset.health_checker for each in answers]
    images = ("registry.example:5000/team/drawbridge:v9", "registry.example:5000/team/other:v9")
    assert found == [HealthChecker(image=each, image_pull_policy="Always") for each in images]
