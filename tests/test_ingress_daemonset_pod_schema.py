"""A field of a pod template that the API server does not know is refused, by the schema that it publishes itself."""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec
import pytest

from kube.errors import Forbidden, KubeError, Unreachable
from tests.fakes import FakeClock
from tests.hostile_objects import WRONG, Place, replaced
from tests.ingress_daemonset import Templates, raw, request, webhooks
from tests.misbehaving_server import Answer, answers, refuses, serving
from webhook.ingress_daemonset.cluster_lookup import (
    DOCUMENT,
    POD_TEMPLATE,
    ClusterLookup,
    Schema,
    schema_problems,
)

SECONDS = 30.0


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "description": "as it is published", "properties": properties}


STRING, TEXTS = (
    {"type": "string", "default": ""},
    {"type": "object", "additionalProperties": {"type": "string"}},
)
CONTAINER = of(
    name=STRING,
    image=STRING,
    args={"type": "array", "items": STRING},
    ports={"type": "array", "items": {"allOf": [ref("Port")], "default": {}}},
    limits={"type": "object", "additionalProperties": ref("Quantity")},
)
PUBLISHED = {
    POD_TEMPLATE: of(
        metadata={"allOf": [ref("ObjectMeta")], "default": {}}, spec={"allOf": [ref("PodSpec")]}
    ),
    "ObjectMeta": of(labels=TEXTS, creationTimestamp=ref("Time"), managedFields={"type": "object"}),
    "PodSpec": of(
        containers={"type": "array", "items": {"allOf": [ref("Container")], "default": {}}},
        hostPID={"type": "boolean"},
        terminationGracePeriodSeconds={"type": "integer", "format": "int64"},
        overhead={"type": "object", "additionalProperties": ref("Quantity")},
        owner=ref("PodSpec"),
    ),
    "Container": CONTAINER,
    "Port": of(containerPort={"type": "integer"}, probe={"oneOf": [{"type": "integer"}, {"type": "string"}]}),
    "Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    "Time": {"type": "string", "format": "date-time"},
}
SCHEMAS = msgspec.convert(PUBLISHED, dict[str, Schema])


def found(template: Any) -> list[str]:
    return [f"{path}: {message}" for path, message in schema_problems(template, SCHEMAS)]


@pytest.mark.parametrize(
    "template",
    [
        {},
        {"metadata": {"labels": {"any/key": "value"}, "creationTimestamp": None}},
        {"metadata": {"managedFields": {"what": "ever"}}},
        {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80, "probe": "http"}]}]}},
        {"spec": {"containers": [{"limits": {"cpu": 1, "memory": "1Gi"}, "args": ["--a"]}], "hostPID": True}},
        {"spec": {"terminationGracePeriodSeconds": 5.0, "containers": None, "owner": {"owner": {}}}},
    ],
)
def test_what_the_api_server_knows_is_taken(template: Any) -> None:
    assert found(template) == []


UNKNOWN = "unknown field, which the API server would drop: leave it out"


@pytest.mark.parametrize(
    ("template", "problems"),
    [
        (
            {"spec": {"terminationGracePeriodSecond": 5}},
            [
                f"spec.template.spec.terminationGracePeriodSecond: {UNKNOWN}, or write terminationGracePeriodSeconds"
            ],
        ),
        ({"specs": {}}, [f"spec.template.specs: {UNKNOWN}, or write spec"]),
        (
            {"spec": {"containers": [{"name": "a"}, {"zzz": 1, "ports": [{"yyy": 1}]}]}},
            [
                f"spec.template.spec.containers[1].zzz: {UNKNOWN}",
                f"spec.template.spec.containers[1].ports[0].yyy: {UNKNOWN}",
            ],
        ),
        ({"spec": {"hostpid": True}}, [f"spec.template.spec.hostpid: {UNKNOWN}, or write hostPID"]),
        ({"spec": {"owner": {"qqq": 1}}}, [f"spec.template.spec.owner.qqq: {UNKNOWN}"]),
        (
            {"spec": {"hostPID": "yes", "containers": {}, "terminationGracePeriodSeconds": True}},
            [
                "spec.template.spec.hostPID: the API server takes boolean here, not string",
                "spec.template.spec.containers: the API server takes array here, not object",
                "spec.template.spec.terminationGracePeriodSeconds: the API server takes integer here, not boolean",
            ],
        ),
        (
            {"metadata": {"labels": {"a": 1}}},
            ["spec.template.metadata.labels[a]: the API server takes string here, not integer"],
        ),
    ],
)
def test_what_it_does_not_know_is_named_with_its_path(template: Any, problems: list[str]) -> None:
    assert found(template) == problems


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
@pytest.mark.parametrize(
    "place", [(), ("spec",), ("spec", "containers"), ("spec", "containers", 0), ("metadata",)]
)
def test_whatever_stands_anywhere_ends_in_problems_with_paths(place: Place, wrong: Any) -> None:
    template = {"metadata": {"labels": {}}, "spec": {"containers": [{"name": "a"}]}}
    problems = found(replaced(template, place, wrong))

    assert all(each.startswith("spec.template") for each in problems)


def test_schemas_that_refer_to_each_other_end() -> None:
    loop = msgspec.convert({POD_TEMPLATE: ref("B"), "B": ref(POD_TEMPLATE)}, dict[str, Schema])
    assert list(schema_problems({"a": 1}, loop)) == []


# How it is read


def read(answer: Answer, left: float = SECONDS) -> list[str]:
    """The paths of problems of one with a typo, by an API server that answers so."""
    clock = FakeClock()
    with serving(lambda asked: answer if asked.path == DOCUMENT else refuses(404, "NotFound")) as server:
        cluster = ClusterLookup(server.client(timeout=10 * SECONDS), clock)
        return [path for path, _ in cluster.template_problems(TYPO, clock() + left)]


TYPO = {"spec": {"hostPIDs": True}}
GOOD = answers({"openapi": "3.0.0", "paths": {}, "components": {"schemas": PUBLISHED}})


def test_the_schema_is_that_of_the_api_server() -> None:
    assert read(GOOD) == ["spec.template.spec.hostPIDs"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refuses(403, "Forbidden"), Forbidden),
        (answers({"components": {"schemas": {}}}), Unreachable),
        (answers([]), Unreachable),
    ],
)
def test_what_cannot_be_read_is_an_error(answer: Answer, error: type[KubeError]) -> None:
    with pytest.raises(error):
        read(answer)


def test_no_time_is_no_answer() -> None:
    with pytest.raises(Unreachable):
        read(GOOD, left=0)


# The rule

PROBLEM = ("spec.template.spec.hostPIDs", UNKNOWN)


def test_an_unknown_field_is_refused_with_its_path() -> None:
    _, rules = webhooks(templates=Templates([PROBLEM]))
    decision = rules.review(request(raw()), deadline=inf)

    assert not decision.allowed
    assert f"{PROBLEM[0]}: {UNKNOWN}" in decision.message


def test_a_template_that_stays_as_it_was_is_not_judged() -> None:
    templates = Templates([PROBLEM])
    _, rules = webhooks(templates=templates)

    assert rules.review(request(raw({"podsPerNode": 3}), raw()), deadline=inf).allowed
    assert templates.asked == 0
    changed = raw({"template": {"spec": {"hostPID": True}}})
    assert not rules.review(request(changed, raw()), deadline=inf).allowed
    assert templates.asked == 1


def test_a_template_that_cannot_be_read_is_refused_for_that_alone() -> None:
    templates = Templates([PROBLEM])
    _, rules = webhooks(templates=templates)

    assert not rules.review(
        request(raw({"template": {"spec": {"tolerations": "all"}}})), deadline=inf
    ).allowed
    assert templates.asked == 0
