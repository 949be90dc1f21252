"""The chart with IngressDaemonSets: the hooks that attach their nodes before the feature or the release goes."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.ingress_daemonset import attach_nodes
from settings.values import seconds
from tests.charts import Objects, helm_needed, render

pytestmark = helm_needed


def hooks(**values: Any) -> tuple[str, Objects]:
    """The hook of the Job that attaches nodes, and all that belongs to it."""
    rendered = render({"ingressDaemonSet": values})
    found = {key: each for key, each in rendered.items() if key[1] == "drawbridge-attach"}
    names = {each["metadata"]["annotations"]["helm.sh/hook"] for each in found.values()}
    assert len(names) <= 1
    return "".join(names), found


@pytest.mark.parametrize(
    ("enabled", "mode", "expected"),
    [
        pytest.param(True, "always", "pre-delete", id="before it is uninstalled"),
        pytest.param(False, "always", "pre-upgrade,pre-rollback", id="before the feature goes"),
        # Rendered without a cluster, they may be applied by something that knows of no hooks.
        pytest.param(True, "auto", "", id="not without a cluster to look into"),
        pytest.param(False, "auto", "", id="not without the feature"),
        pytest.param(True, "never", "", id="never"),
    ],
)
def test_nodes_are_attached_by_a_hook(enabled: bool, mode: str, expected: str) -> None:
    hook, found = hooks(enabled=enabled, attachNodes=mode)

    assert hook == expected
    kinds = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"} if expected else set()
    assert {kind for kind, _ in found} == kinds


def test_the_job_ends_before_helm_gives_up() -> None:
    _, found = hooks(enabled=True, attachNodes="always")
    job = found["Job", "drawbridge-attach"]["spec"]
    (program,) = job["template"]["spec"]["containers"]
    given = attach_nodes.parser().parse_args(program["args"])

    assert program["command"] == ["python", "-m", attach_nodes.__name__]
    assert seconds(given.leader) < seconds(given.within) < job["activeDeadlineSeconds"] < 300
