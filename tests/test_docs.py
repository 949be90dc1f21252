"""The references say what the code does: settings with their defaults, metrics, Events, calls."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from calico.segment import Record
from cloud import apis
from cloud.apis import Api
from cloud.errors import CloudError
from controllers.anycast_ip.claim import Claim
from controllers.ingress_daemonset.node_rollout import Phase
from settings.changes import needing_restart
from tests import facts
from tests.facts import PARTS, SETTINGS
from tests.pages import PAGES, ROOT, blocks, table

IP_RESERVATION, ANYCAST_IP, ELASTICITY, INGRESS_DAEMONSET, CLOUD, CERTIFICATES = REFERENCES = [
    ROOT / "docs" / f"{name}.md"
    for name in ("ip-reservation", "anycast-ip", "elasticity", "ingress-daemonset", "cloud", "certificates")
]
TABLES = {
    "ipReservation.": (IP_RESERVATION, "`ipReservation`"),
    "": (IP_RESERVATION, "All programs"),
    "anycastIP.": (ANYCAST_IP, "`anycastIP`"),
    "elasticity.": (ELASTICITY, "`elasticity`"),
    "ingressDaemonSet.": (INGRESS_DAEMONSET, "`ingressDaemonSet`"),
    "cloud.": (CLOUD, "`cloud`"),
    "certs.": (CERTIFICATES, "`certs`"),
}
"""Where the settings stand whose names begin so, and under which heading."""


def documented() -> list[tuple[str, list[str]]]:
    """Each setting that has a row, with its row."""
    return [
        (f"{prefix}{name}", row)
        for prefix, (page, section) in TABLES.items()
        for row in table(page, section)
        for name in re.findall("`(.+?)`", row[0])
    ]


def test_every_setting_has_exactly_one_row() -> None:
    assert sorted(name for name, _ in documented()) == sorted(SETTINGS)


@pytest.mark.parametrize("name", PARTS)
def test_the_row_of_a_list_names_its_parts(name: str) -> None:
    whole, _, part = name.partition("[].")

    assert f"`{part}`" in dict(documented())[whole][3]


UNITS = ((3600, "h"), (60, "m"), (1, "s"))


def as_written(field: FieldInfo) -> str:
    match field.default:
        case bool() as flag:
            return str(flag).lower()
        case float() as seconds if any(isinstance(each, BeforeValidator) for each in field.metadata):
            return next(f"{seconds / unit:g}{name}" for unit, name in UNITS if not seconds % unit)
        case str() as text if text.startswith(":") or yaml.safe_load(text) != text:
            return f'"{text}"'
        case other:
            return str(other)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, field in SETTINGS.items()
        if isinstance(field.default, str | int | float) and name not in ("apiVersion", "kind")
    ],
)
def test_the_reference_tells_the_default(name: str) -> None:
    assert dict(documented())[name][2] == f"`{as_written(SETTINGS[name])}`"


def test_the_reference_tells_what_is_read_at_start() -> None:
    at_start = {name for name, row in documented() if row[4].startswith("at start")}

    assert {*needing_restart([*SETTINGS])} <= at_start


def test_the_reference_names_values_that_the_chart_has() -> None:
    named = {value for _, row in documented() for value in re.findall("`(.+?)`", row[1])}

    assert len(named) > 40
    assert named <= facts.chart_values()


@pytest.mark.parametrize("field", Record.__struct_encode_fields__)
def test_every_field_of_a_record_is_in_the_reference(field: str) -> None:
    assert f"`{field}`" in " ".join(row[0] for row in table(IP_RESERVATION, "The life of a reservation"))


def test_every_field_of_a_claim_is_in_the_reference() -> None:
    listed = {name for row in table(ANYCAST_IP, "Claims") for name in re.findall("`(.+?)`", row[0])}

    assert {*Claim.__struct_encode_fields__} <= listed


def test_every_phase_of_a_node_is_in_the_reference() -> None:
    rows = table(INGRESS_DAEMONSET, "The life of a node in a rollout")
    listed = Counter(name for row in rows if (name := row[0].strip("`")).istitle())

    assert listed == Counter(phase.value for phase in Phase)


def test_every_reason_of_a_condition_is_in_the_reference() -> None:
    rows = [row for row in table(INGRESS_DAEMONSET, "Status") if row[0].strip("`").isalpha()]
    listed = Counter(name for row in rows for cell in row[1:] for name in re.findall("`([A-Z].+?)`", cell))

    assert listed == Counter(facts.verdicts())


def fields_of(schema: dict[str, Any]) -> Iterator[str]:
    """Those of an object; of a pod's template, Kubernetes itself tells."""
    for name, part in schema.get("properties", {}).items():
        yield name
        if name not in ("template", "resources"):
            yield from fields_of(part)


def test_every_field_of_an_ingress_daemonset_is_in_the_reference() -> None:
    definition = yaml.safe_load((ROOT / "charts/drawbridge/files/ingressdaemonsets.yaml").read_text())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    page = INGRESS_DAEMONSET.read_text()

    for name in fields_of(schema):
        assert re.search(rf"\b{name}\b", page), name


def kinds(error: type[CloudError]) -> set[str]:
    return {each.result() for each in error.__subclasses__()}.union(*map(kinds, error.__subclasses__()))


def test_the_reference_explains_every_result_of_a_call() -> None:
    listed = [row[0].strip("`") for row in table(CLOUD, "Metrics") if len(row) == 4]

    assert sorted(listed) == sorted(kinds(CloudError))


RATES = {api.action: str(api.rate) for api in vars(apis).values() if isinstance(api, Api)}


def test_the_reference_tells_the_rate_of_every_call_that_is_made() -> None:
    assert {row[0].strip("`"): row[1] for row in table(CLOUD, "Limits on calls")} == RATES


def test_the_policy_permits_exactly_the_calls_that_are_made() -> None:
    [policy] = [json.loads(block.text) for block in blocks(CLOUD) if block.language == "json"]
    [statement] = policy["statement"]

    assert sorted(action.partition(":")[2] for action in statement["action"]) == sorted(RATES)


def test_the_references_list_exactly_the_metrics_of_the_code() -> None:
    listed = Counter(
        re.split("[`{]", row[0])[1] for page in REFERENCES for row in table(page, "Metrics") if len(row) == 3
    )

    assert listed == Counter(facts.metrics())


def test_no_page_names_a_metric_that_is_not_there() -> None:
    named = {
        (page.name, name)
        for page in PAGES
        for name in re.findall(r"\b(?:drawbridge|ip_reserve)_[a-z_]+", page.read_text())
    }

    assert {each for each in named if each[1] not in facts.series()} == set()


def test_the_references_list_exactly_the_event_reasons_of_the_code() -> None:
    listed = Counter(
        row[0].strip("` ★")
        for page in (IP_RESERVATION, ANYCAST_IP, ELASTICITY, INGRESS_DAEMONSET, CERTIFICATES)
        for row in table(page, "Events")
    )

    assert listed == Counter(facts.reasons())
