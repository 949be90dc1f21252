"""Each ServiceAccount can do all that its process did in the tests before, and has no right that none of them used."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import audit
from tests.cluster import least_privilege
from tests.rights import EVERYWHERE, Right, table

GROUP = "ingressdaemonsets.mumoshu.github.io"
UNSEEN = {
    # An admission plugin asks for it within the creation of a child. The labs have that plugin, so without
    # the right no IngressDaemonSet would ever get a pod.
    (
        "controllers",
        "ingressDaemonSet",
        Right(EVERYWHERE, GROUP, "ingressdaemonsets/finalizers", "", "update"),
    ),
}
"""Rights that are needed, and of which no request tells."""


def test_nothing_that_was_asked_for_was_beyond_the_rights_given(audit_logs: Path) -> None:
    assert least_privilege.refused(audit_logs) == []


def test_every_right_was_used(audit_logs: Path, request: pytest.FixtureRequest) -> None:
    if why := least_privilege.missing(request.session):
        pytest.skip(f"only a whole run can tell: {why}")
    # What eklet does with its rights, only its provider knows.
    ours = {
        (each.account, each.by, right) for each in table() if each.account != "eklet" for right in each.rights
    }
    used = audit.proved(least_privilege.stories(audit_logs))

    assert sorted(f"{account}, {by}: {right}" for account, by, right in ours - used - UNSEEN) == []
    assert ours >= UNSEEN
    assert used.isdisjoint(UNSEEN), "no exception is needed any more"
