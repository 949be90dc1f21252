"""The reference says what the code does: settings with their defaults, metrics, names, Events, calls."""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml

from api.ingress_daemonset.status import Phase
from calico.segment import Record
from cloud import apis
from cloud.apis import Api
from cloud.errors import CloudError
from controllers.anycast_ip.claim import Claim
from dev.lab import values_schema
from settings import Settings
from settings.file import needing_restart
from tests import facts
from tests.facts import PARTS, SETTINGS
from tests.pages import PAGES, ROOT, blocks, sections, table, terms

NAMES, METRICS, RESOURCE, CLOUD_API = [
    ROOT / "docs" / "reference" / f"{name}.md"
    for name in ("names", "metrics", "ingressdaemonset", "cloud-api")
]
IP_RESERVATION = ROOT / "docs" / "reference" / "ip-reservation.md"
ANYCAST_IP = ROOT / "docs" / "reference" / "anycast-ip.md"
CLOUD = ROOT / "docs" / "how-to" / "tencent-cloud.md"
CHART = ROOT / "charts" / "drawbridge" / "README.md"
VALUES = {row[0].strip("`"): row for row in table(CHART, "Values")}
_, _, EXCEPTIONS = sections(CHART)["The configuration"].partition("In the file,")
"""Settings whose names are not those of their values."""


@pytest.mark.parametrize(("value", "setting"), values_schema.SETTINGS.items())
def test_the_charts_page_names_the_setting_that_a_value_becomes(value: str, setting: str) -> None:
    assert value in VALUES
    assert setting == value.replace(".advanced.", ".") or f"`{setting}`" in EXCEPTIONS


def test_the_charts_page_names_the_settings_that_no_value_sets() -> None:
    for name in SETTINGS.keys() - VALUES.keys() - {*values_schema.SETTINGS.values()}:
        assert f"`{name}`" in EXCEPTIONS, name


@pytest.mark.parametrize("name", PARTS)
def test_the_row_of_a_list_names_its_parts(name: str) -> None:
    whole, _, part = name.partition("[].")
    [value] = [value for value, setting in values_schema.SETTINGS.items() if setting == whole]

    assert re.search(rf"\b{part.rpartition('.')[2]}\b", VALUES[value][2])


@pytest.mark.parametrize(("value", "setting"), values_schema.SETTINGS.items())
def test_the_row_of_a_choice_names_what_may_be_chosen(value: str, setting: str) -> None:
    kind = SETTINGS[setting].annotation
    if get_origin(kind) is Literal:
        assert [each for each in get_args(kind) if each not in VALUES[value][2]] == []


def test_the_charts_page_says_what_needs_new_pods() -> None:
    said = sections(CHART)["The configuration"]
    values = {setting: value for value, setting in values_schema.SETTINGS.items()}
    for name in needing_restart([*values], Settings()):
        groups = [name.rpartition(".")[0], name.partition(".")[0]]
        named = any(f"`{each}`" in said for each in (name, values[name], *groups))
        assert named or name.endswith(("enabled", "Address", ".port")), name


@pytest.mark.parametrize("field", Record.__struct_encode_fields__)
def test_every_field_of_a_record_is_in_the_reference(field: str) -> None:
    assert f"`{field}`" in " ".join(terms(IP_RESERVATION, "The record of a reservation"))


def test_every_field_of_a_claim_is_in_the_reference() -> None:
    listed = {name for term in terms(ANYCAST_IP, "Address claims") for name in re.findall("`(.+?)`", term)}

    assert {*Claim.__struct_encode_fields__} <= listed


def test_every_phase_of_a_node_is_in_the_reference() -> None:
    listed = Counter(term.strip("`") for term in terms(RESOURCE, "Phases"))

    assert listed == Counter(phase.value for phase in Phase)


def fields_of(schema: dict[str, Any]) -> Iterator[str]:
    """Those of an object; a pod's template has the fields of Kubernetes."""
    for name, part in schema.get("properties", {}).items():
        yield name
        if name not in ("template", "resources"):
            yield from fields_of(part)


def test_every_field_of_an_ingress_daemonset_is_in_the_reference() -> None:
    definition = yaml.safe_load((ROOT / "charts/drawbridge/files/ingressdaemonsets.yaml").read_text())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    page = RESOURCE.read_text()

    for name in fields_of(schema):
        assert re.search(rf"\b{name}\b", page), name


def kinds(error: type[CloudError]) -> set[str]:
    return {each.result() for each in error.__subclasses__()}.union(*map(kinds, error.__subclasses__()))


def test_the_reference_explains_every_result_of_a_call() -> None:
    listed = [term.strip("`") for term in terms(CLOUD_API, "Outcomes")]

    assert sorted(listed) == sorted(kinds(CloudError))


RATES = {api.action: str(api.rate) for api in vars(apis).values() if isinstance(api, Api)}


def test_the_reference_has_the_rate_of_every_call() -> None:
    assert {row[0].strip("`"): row[1] for row in table(CLOUD_API, "Limits on calls")} == RATES


def test_the_policy_permits_exactly_the_calls_that_are_made() -> None:
    policies = [json.loads(block.text) for block in blocks(CLOUD) if block.language == "json"]
    actions = [action for policy in policies for each in policy["statement"] for action in each["action"]]

    assert len(policies) == 2
    assert sorted(action.partition(":")[2] for action in actions) == sorted(RATES)


def test_the_reference_lists_exactly_the_metrics_of_the_code() -> None:
    listed = Counter(name for term in terms(METRICS, "Metrics") for name in re.findall(r"`(\w+)", term))

    assert listed == Counter(facts.metrics())


def test_no_page_names_a_metric_that_is_not_there() -> None:
    named = {
        (page.name, name)
        for page in PAGES
        for name in re.findall(r"\b(?:drawbridge|ip_reserve)_[a-z_]+", page.read_text())
    }

    assert {each for each in named if each[1] not in facts.series()} == set()


def test_the_reference_lists_the_reasons_of_the_code() -> None:
    events = Counter(name for term in terms(NAMES, "Events") for name in re.findall(r"`(\w+)`", term))
    cells = [cell for row in table(NAMES, "Conditions") for cell in row[1:]]
    conditions = Counter(name for cell in cells for name in re.findall("`([A-Z].+?)`", cell))
    types = {row[0].strip("`") for row in table(NAMES, "Conditions")}
    listed = events.keys() | conditions.keys() | types

    assert {*events.values(), *conditions.values()} == {1}
    assert listed <= facts.texts(facts.WITH_REASONS)
    assert facts.reasons() <= listed


OF_APIS = {
    "admission.k8s.io/v1",
    "config.capo.io/v1",
    "crd.projectcalico.org/v1",
    "drawbridge.io/v1",
    "projectcalico.org/v3",
}
"""API groups with versions, which look like keys."""
OF_KUBERNETES = {
    "failure-domain.beta.kubernetes.io",
    "kubernetes.io",
    "node.kubernetes.io",
    "apps.kubernetes.io",
    "cloud.tencent.com",
}
"""Whose keys need no row: they mean what they mean everywhere."""


def keys() -> set[str]:
    """Keys of labels, annotations and taints, and names of gates and finalizers, that the code has."""
    found = {
        text for text in facts.texts() if re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+/[A-Za-z0-9._-]+", text)
    } - OF_APIS
    return {key for key in found if key.partition("/")[0] not in OF_KUBERNETES}


def test_the_reference_lists_the_keys_of_the_code() -> None:
    page = NAMES.read_text()
    sections = ("Labels", "Annotations", "Taints", "Gates and finalizers")
    listed = {
        key.partition("=")[0].partition(":")[0]
        for section in sections
        for term in terms(NAMES, section)
        for key in re.findall("`([^`]+/[^`]+)`", term)
    }

    assert {key for key in keys() if not re.search(rf"`{re.escape(key)}[`=:]", page)} == set()
    ours = {key for key in listed if key.startswith("drawbridge.io/")}
    assert ours == {key for key in keys() if key.startswith("drawbridge.io/")}


def test_the_first_page_has_the_versions_that_are_tested() -> None:
    pinned = tomllib.loads((ROOT / "dev" / "lab" / "versions.toml").read_text())
    listed = {
        row[0].lower(): [f"v{each}" for each in row[2].split(", ")]
        for row in table(ROOT / "README.md", "Tested versions")
    }
    chart = yaml.safe_load((ROOT / "charts/drawbridge/Chart.yaml").read_text())

    columns = (pinned["oldest"], pinned["versions"])
    assert listed == {name: [each[name] for each in columns if name in each] for name in listed}
    [required] = [row[1] for row in table(ROOT / "README.md", "Tested versions") if row[0] == "Kubernetes"]
    assert f">={required.split()[0]}.0-0" == chart["kubeVersion"]


def test_no_page_has_an_unresolved_conflict() -> None:
    assert [page for page in PAGES if re.search("^(<{7}|>{7}) ", page.read_text(), re.MULTILINE)] == []
