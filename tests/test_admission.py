"""An AdmissionReview is read for what it says, and answered as the API server wants it."""

import json
from dataclasses import replace
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.admission import (
    Decision,
    Request,
    ReviewError,
    UserInfo,
    allow,
    decoded,
    decoded_whole,
    deny,
    parse,
    patch,
    render,
)

DELETE_POD = {
    "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
    "kind": {"group": "", "version": "v1", "kind": "Pod"},
    "resource": {"group": "", "version": "v1", "resource": "pods"},
    "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
    "name": "redis-0",
    "namespace": "shop",
    "operation": "DELETE",
    "userInfo": {"username": "ada", "uid": "7", "groups": ["dev", "ops"], "extra": {"k": ["v"]}},
    "object": None,
    "oldObject": {"metadata": {"name": "redis-0"}},
    "dryRun": True,
    "options": {"kind": "DeleteOptions"},
}


def body(request: object = DELETE_POD, **envelope: object) -> bytes:
    document = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps({**document, **envelope}).encode()


def answer(decision: Decision) -> Any:
    return json.loads(render(parse(body()), decision))["response"]


def test_a_request_is_read_with_its_objects_left_raw() -> None:
    assert parse(body()) == Request(
        uid="705ab4f5-6393-11e8-b7cc-42010a800002",
        operation="DELETE",
        name="redis-0",
        namespace="shop",
        user_info=UserInfo("ada"),
        dry_run=True,
        old_object=msgspec.Raw(b'{"metadata": {"name": "redis-0"}}'),
    )


def test_what_is_absent_or_null_gets_its_empty_value() -> None:
    nulls = dict.fromkeys(("subResource", "name", "userInfo", "dryRun", "object"))
    least = {"uid": "u", "operation": "CREATE"}
    assert parse(body({**least, **nulls})) == parse(body(least)) == Request("u", "CREATE")


JSON, REVIEW = "the body is not JSON: ", "the body is not an AdmissionReview of admission.k8s.io/v1: "
REFUSED = {
    "nothing": (b"", f"{JSON}Input data was truncated"),
    "not text": (b"\xff\xfe", JSON),
    "cut off": (body()[:-3], f"{JSON}Input data was truncated"),
    "nested without end": (
        body({"uid": "u", "operation": "CREATE", "object": "@"}).replace(b'"@"', b"[" * 99999),
        JSON,
    ),
    "a list": (b"[]", f"{REVIEW}Expected `object`, got `array`"),
    "kind is a number": (b'{"kind": 4}', f"{REVIEW}Expected `str`, got `int` - at `$.kind`"),
    "a pod": (
        body(apiVersion="v1", kind="Pod"),
        "got apiVersion 'v1', kind 'Pod'; only AdmissionReview of admission.k8s.io/v1 is understood:"
        ' register the webhook with admissionReviewVersions: ["v1"]',
    ),
    "an old version": (
        body(apiVersion="admission.k8s.io/v1beta1"),
        "got apiVersion 'admission.k8s.io/v1beta1'",
    ),
    "no request": (body(None), "the AdmissionReview has no request"),
    "empty uid": (
        body({"uid": "", "operation": "CREATE"}),
        f"{REVIEW}Expected `str` of length >= 1 - at `$.request.uid`",
    ),
    "no uid": (
        body({"operation": "CREATE"}),
        f"{REVIEW}Object missing required field `uid` - at `$.request`",
    ),
    "unknown operation": (
        body({"uid": "u", "operation": "EAT"}),
        f"{REVIEW}Invalid enum value 'EAT' - at `$.request.operation`",
    ),
    "a user's name is a number": (
        body({**DELETE_POD, "userInfo": {"username": 7}}),
        f"{REVIEW}Expected `str`, got `int` - at `$.request.userInfo.username`",
    ),
    **{
        f"{field} {name[:9]!r}": (body({**DELETE_POD, field: name}), f"{REVIEW}Expected `str` ")
        for field in ("name", "namespace")
        for name in ("..", "a/b", "%2e", "a?b", "a#b", "a b", "a\n", "\0", "a" * 254)
    },
}


@pytest.mark.parametrize(("sent", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_answered_is_refused_in_words(sent: bytes, said: str) -> None:
    with pytest.raises(ReviewError) as refusal:
        parse(sent)
    assert str(refusal.value).startswith(said)


def test_what_a_refusal_quotes_of_a_body_is_cut_short() -> None:
    with pytest.raises(ReviewError, match=r"^got apiVersion .{1,500}[.]{3}$") as refusal:
        parse(body(kind="x" * 1_000_000))
    assert len(str(refusal.value)) < 600


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        pytest.param(b'{"username": 4}', "Expected `str`, got `int` - at `$.username`", id="a wrong type"),
        pytest.param(b'{"username": "\xff"}', "", id="not UTF-8"),
        pytest.param(b'{"x":' * 99999, "", id="nested without end"),
    ],
)
def test_an_object_that_cannot_be_read_is_named_by_its_field(raw: bytes, said: str) -> None:
    with pytest.raises(ReviewError) as refusal:
        decoded(msgspec.Raw(raw), UserInfo, "oldObject")
    assert str(refusal.value).startswith(f"request.oldObject is malformed: {said}")


def test_the_answer_is_a_review_of_the_same_version_and_uid() -> None:
    assert json.loads(render(parse(body()), allow())) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": DELETE_POD["uid"], "allowed": True},
    }


@pytest.mark.parametrize(
    ("decision", "status"),
    [
        pytest.param(deny("no"), {"code": 403, "reason": "Forbidden", "message": "no"}, id="plain"),
        pytest.param(
            deny("later", code=503, reason="ServiceUnavailable", retry_after=2),
            {
                "code": 503,
                "reason": "ServiceUnavailable",
                "message": "later",
                "details": {"retryAfterSeconds": 2},
            },
            id="to be tried again",
        ),
    ],
)
def test_a_refusal_carries_a_status(decision: Decision, status: dict[str, object]) -> None:
    assert answer(decision) == {"uid": DELETE_POD["uid"], "allowed": False, "status": status}


def test_warnings_are_short_single_lines() -> None:
    warnings = answer(allow(warnings=("one\n  two\r\n", "x" * 120, "y" * 121)))["warnings"]
    assert warnings == ["one two", "x" * 120, "y" * 117 + "..."]


def test_audit_annotations_are_sent_with_either_answer() -> None:
    audit = {"reserved": "10.0.0.7/32"}
    decisions = (allow(audit=audit), replace(deny("no"), audit=audit))
    assert [answer(each)["auditAnnotations"] for each in decisions] == [audit, audit]


def test_an_object_is_decoded_whole_up_to_a_size() -> None:
    assert decoded_whole(None, "object") == {}
    assert decoded_whole(msgspec.Raw(b'{"a":[1,2]}'), "object") == {"a": [1, 2]}
    with pytest.raises(
        ReviewError, match=r"request\.object has about 20002 fields and values; at most 20000 are read"
    ):
        decoded_whole(msgspec.Raw(b'{"a":[%s1]}' % (b"1," * 20_000)), "object")


def test_an_answer_has_a_size() -> None:
    assert len(answer(deny("x" * 1_000_000))["status"]["message"]) < 10_000
    assert len(answer(allow(warnings=("x",) * 1_000))["warnings"]) == 20


SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=4)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("ab/~0", max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text("ab/~0", max_size=3), VALUES, max_size=4)


@given(OBJECTS, OBJECTS)
def test_every_patch_applies(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Any change of an object survives its way through one."""
    assert jsonpatch.apply_patch(before, patch(before, after)) == after


@given(OBJECTS)
def test_nothing_changed_is_no_operation(before: dict[str, Any]) -> None:
    assert patch(before, before) == ()


@given(OBJECTS, st.dictionaries(st.text("ab/~0", max_size=3), VALUES, max_size=2))
def test_what_stays_as_it_is_may_be_shared(before: dict[str, Any], change: dict[str, Any]) -> None:
    after = {**before, **change, "spec": {**before, **change}}

    assert jsonpatch.apply_patch(before, patch(before, after)) == after
    assert jsonpatch.apply_patch({"spec": before}, patch({"spec": before}, {"spec": after})) == {
        "spec": after
    }


def test_true_is_not_1() -> None:
    before, after = {"a": 1, "b": [1]}, {"a": True, "b": [True]}

    assert repr(jsonpatch.apply_patch(before, patch(before, after))) == repr(after)
