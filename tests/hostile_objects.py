"""Objects in which something is not what it should be, and how the webhook server answers when it is asked of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec
from werkzeug.test import Client

from tests.metrics import sample

WRONG = (None, True, -1, 1.5, 10**30, "", "x" * 300, "..", [], {}, [[]], [None], {"a": None}, {"~1/": [{}]})
Place = tuple[str | int, ...]


def places(value: object, place: Place = ()) -> Iterator[Place]:
    """Where in *value* something stands that could be something else."""
    yield place
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*place, key))


def spelt(place: Place) -> str:
    return "/".join(map(str, place)) or "whole"


def replaced(value: object, place: Place, new: object) -> Any:
    """A copy of *value* with *new* at *place*."""
    whole = {"": copy.deepcopy(value)}
    part: Any = whole
    for key in ("", *place)[:-1]:
        part = part[key]
    part[("", *place)[-1]] = new
    return whole[""]


def answer(client: Client, path: str, new: object, old: object = None, **request: object) -> dict[str, Any]:
    """What is answered about *new*, which was *old* until now; it is created where that is nothing."""
    fields = {"uid": "u", "operation": "UPDATE" if old else "CREATE", "object": new, "oldObject": old}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": fields | request}
    answered = client.post(path, data=msgspec.json.encode(review), content_type="application/json")
    assert answered.status_code == 200
    response: dict[str, Any] = msgspec.json.decode(answered.data)["response"]
    return response


def panics(webhook: str) -> float:
    """How often *webhook* failed to answer by itself so far."""
    return sample("drawbridge_admission_panics_total", webhook=webhook)
