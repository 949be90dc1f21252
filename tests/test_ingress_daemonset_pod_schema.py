"""A field of a pod template that the API server does not know is refused, by the schema that it publishes itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any

import msgspec
import pytest

from kube.errors import Forbidden, KubeError, Unreachable
from tests.fakes import FakeClock
from tests.hostile_objects import WRONG, Place, replaced
from tests.ingress_daemonset import Templates, raw, request, webhooks
from tests.misbehaving_server import Answer, Asked, Server, answers, refuses, serving
from webhook.ingress_daemonset.cluster_lookup import POD_TEMPLATE, PodTemplates, Schema, schema_problems

INDEX, DOCUMENT = "/openapi/v3", "/openapi/v3/apis/apps/v1"
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
    return [f"{path}: {message}" for path, message in schema_problems(template, SCHEMAS, "spec.template")]


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
    assert list(schema_problems({"a": 1}, loop, "spec.template")) == []


# How it is read


class World:
    """An API server that publishes *schemas*, and a reader whose clock moves only when advanced."""

    def __init__(self, server: Server, published: dict[str, Any]) -> None:
        self.server, self.published, self.clock = server, published, FakeClock()
        self.templates = PodTemplates(server.client(timeout=10 * SECONDS), self.clock)

    def problems(self, template: Any, left: float = SECONDS) -> list[str]:
        found: Sequence[tuple[str, str]] = self.templates.problems(template, deadline=self.clock() + left)
        return [path for path, _ in found]

    @property
    def asked(self) -> list[str]:
        return [asked.path for asked in self.server.asked]


@contextmanager
def publishing(fault: Answer | None = None, at: str = INDEX, **index: Any) -> Iterator[World]:
    published: dict[str, Any] = dict(PUBLISHED)

    def answer(asked: Asked) -> Answer:
        if fault and asked.path == at:
            return fault
        if asked.path == INDEX:
            entry = {"serverRelativeURL": f"{DOCUMENT}?hash={len(str(published))}"}
            return answers({"paths": {"api/v1": entry, "apis/apps/v1": entry}} | index)
        assert asked.path == DOCUMENT
        return answers({"openapi": "3.0.0", "paths": {}, "components": {"schemas": published}})

    with serving(answer) as server:
        yield World(server, published)


TYPO, GOOD = {"spec": {"hostPIDs": True}}, {"spec": {"hostPID": True}}


def test_the_schema_is_read_once_as_long_as_nothing_is_refused() -> None:
    with publishing() as world:
        assert [world.problems(GOOD) for _ in range(5)] == [[]] * 5
        assert world.asked == [INDEX, DOCUMENT]


def test_before_a_field_is_refused_the_index_is_read_again() -> None:
    with publishing() as world:
        world.problems(GOOD)
        assert world.problems(TYPO) == world.problems(TYPO) == ["spec.template.spec.hostPIDs"]
        assert world.asked == [INDEX, DOCUMENT, INDEX, INDEX]


def test_a_field_of_a_newer_api_server_is_taken_at_once() -> None:
    with publishing() as world:
        assert world.problems(TYPO)
        pod = world.published["PodSpec"]
        world.published["PodSpec"] = of(**pod["properties"], hostPIDs={"type": "boolean"})

        assert world.problems(TYPO) == []
        assert world.asked == [INDEX, DOCUMENT] * 2


@pytest.mark.parametrize(
    ("fault", "at", "error"),
    [
        (refuses(403, "Forbidden"), INDEX, Forbidden),
        (refuses(404, "NotFound"), INDEX, KubeError),
        (refuses(403, "Forbidden"), DOCUMENT, Forbidden),
        (answers({"paths": {}}), INDEX, None),
        (answers({"components": {"schemas": {}}}), DOCUMENT, Unreachable),
        (answers([]), DOCUMENT, Unreachable),
    ],
)
def test_what_cannot_be_read_is_an_error(fault: Answer, at: str, error: type[KubeError] | None) -> None:
    with publishing(fault, at) as world:
        if error is None:
            assert world.problems(TYPO) == ["spec.template.spec.hostPIDs"]
            return
        with pytest.raises(error):
            world.problems(TYPO)


def test_no_time_is_no_answer() -> None:
    with publishing() as world, pytest.raises(Unreachable):
        world.problems(GOOD, left=0)


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
