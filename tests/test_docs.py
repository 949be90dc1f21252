"""The reference says what the code does: settings with their defaults, metrics, names, Events, calls."""

import ast
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from api.ingress_daemonset.status import Phase
from calico.segment import Record
from cloud import apis
from cloud.apis import Api
from cloud.errors import CloudError
from controllers.anycast_ip.claim import Claim
from dev.lab import values_schema
from settings.elasticity import LocalReplicas
from settings.file import needing_restart
from settings.values import MOST, Resources
from tests import facts
from tests.facts import PARTS, SETTINGS
from tests.pages import PAGES, ROOT, blocks, table

SETTINGS_PAGE, NAMES, METRICS, RESOURCE, CLOUD_API = [
    ROOT / "docs" / "reference" / f"{name}.md"
    for name in ("settings", "names", "metrics", "ingressdaemonset", "cloud-api")
]
IP_RESERVATION, ANYCAST_IP = [
    ROOT / "docs" / "explanation" / f"{name}.md" for name in ("ip-reservation", "anycast-ip")
]
CLOUD = ROOT / "docs" / "how-to" / "tencent-cloud.md"
GROUPS = ("certs", "cloud", "ipReservation", "anycastIP", "elasticity", "ingressDaemonSet")
TABLES = {
    "": "All programs",
    **{f"{name}.": f"`{name}`" for name in GROUPS},
}
"""Under which heading the settings stand whose names begin so."""


def documented() -> list[tuple[str, list[str]]]:
    """Each setting that has a row, with its row."""
    return [
        (f"{prefix}{name}", row)
        for prefix, section in TABLES.items()
        for row in table(SETTINGS_PAGE, section)
        for name in re.findall("`(.+?)`", row[0])
    ]


def test_every_setting_has_exactly_one_row() -> None:
    assert sorted(name for name, _ in documented()) == sorted(SETTINGS)


@pytest.mark.parametrize("name", PARTS)
def test_the_row_of_a_list_names_its_parts(name: str) -> None:
    whole, _, part = name.partition("[].")

    assert f"`{part}`" in dict(documented())[whole][4]


@pytest.mark.parametrize(("value", "setting"), values_schema.SETTINGS.items())
def test_the_reference_has_the_value_of_a_setting(value: str, setting: str) -> None:
    assert f"`{value}`" in dict(documented())[setting][3]


UNITS = ((3600, "h"), (60, "m"), (1, "s"))


def is_duration(field: FieldInfo) -> bool:
    return isinstance(field.default, float) and any(
        isinstance(each, BeforeValidator) for each in field.metadata
    )


def as_written(field: FieldInfo) -> str:
    match field.default:
        case bool() as flag:
            return str(flag).lower()
        case float() as seconds if is_duration(field):
            return (
                "0s"
                if not seconds
                else next(f"{seconds / unit:g}{name}" for unit, name in UNITS if not seconds % unit)
            )
        case str() as text if text.startswith(":") or yaml.safe_load(text) != text:
            return f'"{text}"'
        case other:
            return str(other)


def bounds(metadata: list[Any]) -> str:
    """Those of a number, as the page writes them."""
    limits = {type(each).__name__: next(iter(vars_of(each).values())) for each in metadata}
    match limits:
        case {"Ge": low, "Le": high} if high != MOST:
            return f" {low} to {high}"
        case {"Ge": low}:
            return f" ≥ {low}"
        case {"Gt": low, "Le": high}:
            return f" > {low}, ≤ {high}"
    return ""


def vars_of(constraint: Any) -> dict[str, Any]:
    return {
        name: getattr(constraint, name) for name in getattr(constraint, "__slots__", ()) or vars(constraint)
    }


def kind(field: FieldInfo) -> str:
    """The type of a setting, as the page writes it."""
    whole: Any = field.annotation
    if LocalReplicas in get_args(whole):
        return "integer ≥ 0 or percentage"
    inner = [each for each in get_args(whole) if each is not type(None)]
    metadata = [
        *field.metadata,
        *(inner[0].__metadata__[0].metadata if type(None) in get_args(whole) else []),
    ]
    match get_origin(whole) or whole:
        case origin if origin is Literal:
            return "enum"
        case origin if origin is bool:
            return "boolean"
        case origin if origin is float:
            return "duration" if is_duration(field) else f"number{bounds(metadata)}"
        case origin if origin is str:
            return "string"
        case origin if origin is tuple:
            return "list"
        case origin if origin in (dict, Mapping, Resources):
            return "map"
        case _:
            return f"integer{bounds(metadata)}"


@pytest.mark.parametrize("name", SETTINGS)
def test_the_reference_has_the_type_of_a_setting_and_what_it_may_be(name: str) -> None:
    row, field = dict(documented())[name], SETTINGS[name]

    assert row[1] == kind(field)
    if kind(field) == "enum":
        assert {*get_args(field.annotation)} - {""} <= {*re.findall("`(.+?)`", f"{row[2]} {row[4]}")}


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, field in SETTINGS.items()
        if isinstance(field.default, str | int | float) and name not in ("apiVersion", "kind")
    ],
)
def test_the_reference_has_the_default_of_a_setting(name: str) -> None:
    assert dict(documented())[name][2] == f"`{as_written(SETTINGS[name])}`"


def test_the_reference_says_what_is_read_at_start() -> None:
    at_start = {name for name, row in documented() if "at start" in row[5]}

    assert {*needing_restart([*SETTINGS])} <= at_start


def test_the_reference_names_values_that_the_chart_has() -> None:
    named = {value for _, row in documented() for value in re.findall("`([a-z].+?)`", row[3])} - {"files"}

    assert len(named) > 40
    assert named <= facts.chart_values()


@pytest.mark.parametrize("field", Record.__struct_encode_fields__)
def test_every_field_of_a_record_is_in_the_reference(field: str) -> None:
    assert f"`{field}`" in " ".join(row[0] for row in table(IP_RESERVATION, "The record of a reservation"))


def test_every_field_of_a_claim_is_in_the_reference() -> None:
    listed = {name for row in table(ANYCAST_IP, "Address claims") for name in re.findall("`(.+?)`", row[0])}

    assert {*Claim.__struct_encode_fields__} <= listed


def test_every_phase_of_a_node_is_in_the_reference() -> None:
    rows = table(RESOURCE, "Phases")
    listed = Counter(name for row in rows if (name := row[0].strip("`")).istitle())

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
    listed = [row[0].strip("`") for row in table(CLOUD_API, "Outcomes")]

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
    listed = Counter(re.split("[`{]", row[0])[1] for row in table(METRICS, "Metrics"))

    assert listed == Counter(facts.metrics())


def test_no_page_names_a_metric_that_is_not_there() -> None:
    named = {
        (page.name, name)
        for page in PAGES
        for name in re.findall(r"\b(?:drawbridge|ip_reserve)_[a-z_]+", page.read_text())
    }

    assert {each for each in named if each[1] not in facts.series()} == set()


def test_the_reference_lists_the_reasons_of_the_code() -> None:
    events = Counter(row[0].strip("` ★") for row in table(NAMES, "Events"))
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
    "node.kubernetes.io",
    "apps.kubernetes.io",
    "cloud.tencent.com",
}
"""Whose keys need no row: they mean what they mean everywhere."""


def keys() -> set[str]:
    """Keys of labels, annotations and taints, and names of gates and finalizers, that the code has."""
    texts = {
        node.value for node in facts.nodes() if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    found = {
        text for text in texts if re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+/[A-Za-z0-9._-]+", text)
    } - OF_APIS
    return {key for key in found if key.partition("/")[0] not in OF_KUBERNETES}


def test_the_reference_lists_the_keys_of_the_code() -> None:
    page = NAMES.read_text()
    sections = ("Labels", "Annotations", "Taints", "Gates and finalizers")
    listed = {
        key.partition("=")[0].partition(":")[0]
        for section in sections
        for row in table(NAMES, section)
        for key in re.findall("`([^`]+/[^`]+)`", row[0])
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
