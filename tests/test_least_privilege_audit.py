"""What an audit log tells: which requests no role covered, and which rights were used for a feature."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from lab import audit as of_lab
from tests import audit
from tests.rights import EVERYWHERE, OWN, Right, table

RBAC = "rbac.authorization.k8s.io"
OURS = {"app.kubernetes.io/name": "drawbridge"}
CONTROLLERS = "system:serviceaccount:drawbridge:drawbridge-controllers"
SUBJECT = {"kind": "ServiceAccount", "name": "drawbridge-controllers", "namespace": "drawbridge"}
ALLOW, FORBID = "allow", "forbid"
NUMBERS = itertools.count()
GET_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}


def line(user: str, verb: str, uri: str = "/", decision: str = ALLOW, **fields: Any) -> dict[str, Any]:
    return {
        "verb": verb,
        "user": {"username": user},
        "requestURI": uri,
        "requestReceivedTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {"authorization.k8s.io/decision": decision},
        **fields,
    }


def grants(
    rule: dict[str, Any], namespace: str = "", uri: str = "/", labels: dict[str, str] = OURS
) -> list[dict[str, Any]]:
    """Helm writes a role and its binding."""
    kind, name = "Role" if namespace else "ClusterRole", f"r-{next(NUMBERS)}"
    meta = {"name": name, "labels": labels} | ({"namespace": namespace} if namespace else {})
    refers = {"apiGroup": RBAC, "kind": kind, "name": name}
    role = {"kind": kind, "metadata": meta, "rules": [rule]}
    binding = {"kind": f"{kind}Binding", "metadata": meta, "roleRef": refers, "subjects": [SUBJECT]}
    return [line("helm", "patch", uri, responseObject=each) for each in (role, binding)]


def asks(
    verb: str, resource: str, decision: str = ALLOW, user: str = CONTROLLERS, **reference: str
) -> dict[str, Any]:
    return line(user, verb, decision=decision, objectRef={"resource": resource, **reference})


def told(tmp_path: Path, *lines: dict[str, Any]) -> audit.Story:
    log = tmp_path / "lab.log"
    log.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    return audit.told(log)


@pytest.mark.parametrize(
    ("request_", "count"),
    [
        pytest.param(asks("list", "pods", FORBID, namespace="a"), 1, id="another verb"),
        pytest.param(asks("get", "pods", FORBID, namespace="a", apiGroup="b"), 1, id="another group"),
        pytest.param(asks("get", "pods", FORBID, namespace="a", subresource="log"), 1, id="a subresource"),
        pytest.param(asks("get", "pods", FORBID, namespace="a"), 0, id="a right taken away meanwhile"),
        pytest.param(asks("list", "pods"), 0, id="allowed, as by a role that every cluster has"),
        pytest.param(asks("list", "pods", FORBID, "system:serviceaccount:a:b"), 0, id="somebody else"),
        pytest.param(line(CONTROLLERS, "get", "/apis", FORBID), 0, id="no object"),
    ],
)
def test_a_request_is_refused_when_no_role_ever_covered_it(
    tmp_path: Path, request_: dict[str, Any], count: int
) -> None:
    assert len(told(tmp_path, *grants(GET_PODS), request_).refused) == count


def test_a_role_of_a_namespace_covers_nothing_elsewhere(tmp_path: Path) -> None:
    given = grants(GET_PODS, namespace="a")
    there, elsewhere = (asks("get", "pods", FORBID, namespace=each) for each in ("a", "b"))

    assert [each.wanted.where for each in told(tmp_path, *given, there, elsewhere).refused] == ["b"]


def test_what_helm_only_tried_and_what_others_grant_counts_for_nothing(tmp_path: Path) -> None:
    tried, others = (
        grants(GET_PODS, uri="/r?dryRun=All"),
        grants(GET_PODS, labels={"app.kubernetes.io/name": "other"}),
    )

    assert told(tmp_path, *tried, *others, asks("get", "pods", FORBID)).granted == {}


def test_a_right_to_one_name_is_not_used_by_a_request_for_another(tmp_path: Path) -> None:
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"], "verbs": ["get"]}
    story = told(tmp_path, *grants(rule), asks("get", "secrets", name="a"))

    assert story.used("drawbridge/drawbridge-controllers") == {Right(EVERYWHERE, "", "secrets", "a", "get")}


def test_a_line_that_is_being_written_is_left_for_later(tmp_path: Path) -> None:
    story = told(tmp_path, *grants(GET_PODS), asks("get", "pods"))
    with (tmp_path / "lab.log").open("a") as log:
        log.write('{"verb": "li')

    assert audit.told(tmp_path / "lab.log") == story


def grants_of(*features: str) -> list[dict[str, Any]]:
    """All that the table gives the controllers with these."""
    return [
        each
        for entry in table()
        if entry.account == "controllers" and entry.by in features
        for each in grants(
            {
                "apiGroups": entry.groups,
                "resources": entry.resources,
                "resourceNames": entry.names,
                "verbs": entry.verbs,
            },
            "drawbridge" if entry.where == OWN else entry.where,
        )
    ]


@pytest.mark.parametrize(
    ("features", "proved"),
    [
        pytest.param(["elasticity"], {"elasticity"}, id="the only one"),
        pytest.param(["elasticity", "ipReservation"], {"elasticity"}, id="the only one that gives it"),
        pytest.param(["elasticity", "ingressDaemonSet"], set(), id="either of two"),
        pytest.param(["ipReservation"], set(), id="none"),
    ],
)
def test_a_request_proves_a_right_of_the_one_feature_that_gives_it(
    tmp_path: Path, features: list[str], proved: set[str]
) -> None:
    story = told(tmp_path, *grants_of(*features), asks("patch", "nodes", name="n"))

    assert {by for _, by, _ in audit.proved([story])} == proved


# The logs, and whose turn it is


def test_a_log_outlives_its_lab_when_somebody_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = tmp_path / "mine"
    lab.mkdir()
    monkeypatch.delenv(of_lab.VARIABLE, raising=False)
    own = of_lab.prepare(lab)
    monkeypatch.setenv(of_lab.VARIABLE, "/kept")
    kept = of_lab.prepare(lab)

    assert own["audit-log-path"] == f"{lab}/logs/audit.log"
    assert kept["audit-log-path"] == "/kept/mine.log"
    assert json.loads(Path(kept["audit-policy-file"]).read_text()) == of_lab.POLICY
