"""No ServiceAccount has a permission that no test used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import audit
from tests.cluster import least_privilege
from tests.permissions import EVERYWHERE, Permission, table

GROUP = "ingressdaemonsets.mumoshu.github.io"
UNSEEN = {
    # An admission plugin asks for it within the creation of a child. The labs have that plugin, so without
    # the right no IngressDaemonSet would ever get a pod.
    (
        "controllers",
        "ingressDaemonSet",
        Permission(EVERYWHERE, GROUP, "ingressdaemonsets/finalizers", "", "update"),
    ),
    # The API server asks for it within the creation of a RoleBinding.
    (
        "controllers",
        "ingressDaemonSet",
        Permission(
            EVERYWHERE, "rbac.authorization.k8s.io", "clusterroles", "drawbridge-health-checker", "bind"
        ),
    ),
    # What the API server is asked whether it has it, in a SubjectAccessReview.
    ("metrics-reader", "metrics.authentication", Permission(EVERYWHERE, "", "/metrics", "", "get")),
}
"""Permissions that are needed, and appear in no request."""


def test_every_permission_was_used() -> None:
    """By a whole run: `make permissions` runs this after `make verify`."""
    logs = os.environ.get(least_privilege.RUN)
    if logs is None:
        pytest.skip(f"only a whole run shows it: {least_privilege.RUN} names no audit logs")
    # Only the provider of eklet knows what it does with its permissions, and no ServiceAccount has those of people.
    ours = {
        (each.account, each.by, right)
        for each in table()
        if each.account not in ("eklet", "view")
        for right in each.permissions
    }
    used = audit.proved(least_privilege.access_logs(Path(logs)))

    assert sorted(f"{account}, {by}: {right}" for account, by, right in ours - used - UNSEEN) == []
    assert ours >= UNSEEN
    assert used.isdisjoint(UNSEEN), "no exception is needed any more"
