"""The chart's Jobs that open gates and attach nodes before a feature or the release goes, and elasticity's values."""

from __future__ import annotations

import re
from argparse import Namespace
from types import ModuleType
from typing import Any

import pytest
import yaml

from api.elasticity import TKE_SCHEDULER
from controllers.elasticity import open_gates
from controllers.ingress_daemonset import attach_nodes
from dev.lab.chart import ROOT
from dev.lab.install import merged
from settings import parse
from settings.values import seconds
from tests.charts import Objects, configurations, helm_needed, render, settings_in

pytestmark = helm_needed

ON: dict[str, Any] = {"elasticity": {"enabled": True}}


HOOKS = {
    "elasticity": ("openGates", "drawbridge-gates"),
    "ingressDaemonSet": ("attachNodes", "drawbridge-attach"),
}
"""Of each feature, the value that says when its Job runs, and the Job."""


def hooks(feature: str, mode: str, **values: Any) -> tuple[str, Objects]:
    """The hook of the feature's Job, and all that belongs to it."""
    value, job = HOOKS[feature]
    rendered = render({feature: merged(values, {"advanced": {value: mode}})})
    found = {key: each for key, each in rendered.items() if key[1] == job}
    names = {each["metadata"]["annotations"]["helm.sh/hook"] for each in found.values()}
    assert len(names) <= 1
    return "".join(names), found


RUNS = [
    (True, "always", "pre-delete"),
    (False, "always", "pre-upgrade,pre-rollback"),
    # Rendered without a cluster, they may be applied by something that knows of no hooks.
    (True, "auto", ""),
    (False, "auto", ""),
]


def test_a_job_runs_before_the_feature_or_the_release_goes(subtests: pytest.Subtests) -> None:
    for feature in HOOKS:
        for enabled, mode, expected in RUNS:
            hook, found = hooks(feature, mode, enabled=enabled)

            kinds = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"} if expected else set()
            with subtests.test(f"{feature} {enabled=} {mode}"):
                assert hook == expected
                assert {kind for kind, _ in found} == kinds


def test_the_controllers_open_gates_too(subtests: pytest.Subtests) -> None:
    choices = [*((enabled, mode) for enabled, mode, _ in RUNS), (False, "controllers")]
    sets = [
        {"elasticity": {"enabled": enabled, "advanced": {"openGates": mode}}} for enabled, mode in choices
    ]
    for (enabled, mode), answer in zip(choices, configurations(sets), strict=True):
        with subtests.test(f"{enabled=} {mode}"):
            by_controllers = parse(answer["config"]).elasticity.open_gates
            assert by_controllers is (enabled or mode == "controllers")
    assert not hooks("elasticity", "controllers", enabled=False)[1]


def test_the_recipe_for_argo_cd_renders_the_jobs_that_are_to_run_before_features_go() -> None:
    """Argo CD renders without a cluster, in which the chart could look for them."""
    page = (ROOT / "docs/how-to/install.md").read_text()
    recipes = [yaml.safe_load(each) for each in re.findall("```yaml\n(spec:.+?)```", page, re.DOTALL)]
    (values,) = [each["spec"]["source"]["helm"]["valuesObject"] for each in recipes]

    def jobs(*of: dict[str, Any]) -> set[str]:
        return {name for kind, name in render(merged(*of)) if kind == "Job"}

    for enabled in (True, False):
        switched = {name: {"enabled": enabled} for name in values}
        assert jobs({}, switched) == set()
        assert jobs(values, switched) == {"drawbridge-gates", "drawbridge-attach"}


def program(feature: str, module: ModuleType, **values: Any) -> tuple[Namespace, int]:
    """The arguments that the Job gives to its program, and its deadline."""
    _, found = hooks(feature, "always", enabled=True, **values)
    job = found["Job", HOOKS[feature][1]]["spec"]
    [container] = job["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", module.__name__]
    return module.parser().parse_args(container["args"]), job["activeDeadlineSeconds"]


def test_the_jobs_end_before_helm_gives_up() -> None:
    given, deadline = program("elasticity", open_gates, advanced={"timeout": "3s"})
    assert (given.configuration, given.settle) == ("drawbridge", "8s")
    assert seconds(given.within) * 2 < deadline < 300

    given, deadline = program("ingressDaemonSet", attach_nodes)
    assert seconds(given.leader) < seconds(given.within) < deadline < 300


def test_the_condition_ignores_the_scheduler_of_the_original_where_it_is_configured() -> None:
    """What else it says, tests/test_cli_explain_agrees.py compares with the webhook."""
    values = merged(ON, {"elasticity": {"schedulerName": TKE_SCHEDULER}})
    [webhook, *_] = render(values)["MutatingWebhookConfiguration", "drawbridge"]["webhooks"]

    assert TKE_SCHEDULER not in str(webhook["matchConditions"])


def test_the_global_switch_of_the_original_is_what_counts_without_a_key_and_no_object_of_the_release() -> (
    None
):
    for written, meant in {"": True, '"true"': True, "false": False, True: True, False: False}.items():
        objects = render(merged(ON, {"eksAdmission": {"autoScaleEKS": written}}))
        assert ("ConfigMap", "eks-config") not in objects
        assert settings_in(objects).elasticity.switch.default is meant, written
