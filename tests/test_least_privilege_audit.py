"""An audit log shows which requests no role allowed, and which permissions were used for a feature."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tests import audit
from tests.permissions import OWN, table

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
    """The lines of a role and its binding, as Helm writes them."""
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


def read(tmp_path: Path, *lines: dict[str, Any]) -> audit.AccessLog:
    log = tmp_path / "lab.log"
    log.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    return audit.read(log)


@pytest.mark.parametrize(
    ("request_", "count"),
    [
        pytest.param(asks("list", "pods", FORBID, namespace="a"), 1, id="another verb"),
        pytest.param(asks("get", "pods", FORBID, namespace="a", apiGroup="b"), 1, id="another group"),
        pytest.param(asks("get", "pods", FORBID, namespace="a", subresource="log"), 1, id="a subresource"),
        pytest.param(asks("get", "nodes", FORBID), 1, id="outside of the namespace of the role"),
        pytest.param(asks("get", "nodes", FORBID, namespace="b"), 0, id="in the namespace of the role"),
        pytest.param(asks("get", "pods", FORBID, namespace="a"), 0, id="a permission that was revoked"),
        pytest.param(asks("list", "pods"), 0, id="allowed, as by a role that every cluster has"),
        pytest.param(asks("list", "pods", FORBID, "system:serviceaccount:a:b"), 0, id="another account"),
        pytest.param(line(CONTROLLERS, "get", "/apis", FORBID), 0, id="no object"),
    ],
)
def test_a_request_is_refused_when_no_role_ever_covered_it(
    tmp_path: Path, request_: dict[str, Any], count: int
) -> None:
    in_b = grants(GET_PODS | {"resources": ["nodes"]}, namespace="b")
    assert len(read(tmp_path, *grants(GET_PODS), *in_b, request_).refused) == count


@pytest.mark.parametrize(
    ("resource", "features", "proved"),
    [
        pytest.param(
            "nodes", ["elasticity", "ipReservation"], {"elasticity"}, id="the only one that gives it"
        ),
        pytest.param("nodes", ["elasticity", "ingressDaemonSet"], set(), id="either of two"),
        pytest.param(
            "pods",
            ["ipReservation", "workloadOptIn"],
            {"workloadOptIn"},
            id="though two together have all that a third one has",
        ),
        pytest.param(
            "pods",
            ["ipReservation", "elasticity", "ingressDaemonSet"],
            {"elasticity"},
            id="though three together have all that a fourth one has",
        ),
    ],
)
def test_a_request_proves_a_permission_of_the_one_feature_that_gives_it(
    tmp_path: Path, resource: str, features: list[str], proved: set[str]
) -> None:
    lines = [asks("patch", resource, name="n")]
    for entry in table():
        if entry.account == "controllers" and entry.by in features:
            names = {"resourceNames": entry.names, "verbs": entry.verbs}
            rule = {"apiGroups": entry.groups, "resources": entry.resources, **names}
            lines += grants(rule, "drawbridge" if entry.where == OWN else entry.where)

    assert {by for _, by, _ in audit.proved([read(tmp_path, *lines)])} == proved
