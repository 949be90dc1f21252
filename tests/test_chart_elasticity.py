"""The chart with elasticity: the hooks that open gates, the condition of its webhook, and the global switch."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from controllers.elasticity import open_gates
from kube.types import INSTANCE_TYPE, SUPER_NODE
from lab.chart import ROOT
from lab.install import merged
from settings.values import seconds
from tests.charts import Objects, helm_needed, render, settings_in
from webhook.elasticity import BURST, GATE, LOCAL_REPLICAS, PLACEMENT, TAINT, TKE_SCHEDULER

pytestmark = helm_needed

ON: dict[str, Any] = {"elasticity": {"enabled": True}}


def gates(**values: Any) -> tuple[str, Objects]:
    """The hook of the Job that opens gates, and all that belongs to it."""
    found = {
        key: each for key, each in render({"elasticity": values}).items() if key[1] == "drawbridge-gates"
    }
    hooks = {each["metadata"]["annotations"]["helm.sh/hook"] for each in found.values()}
    assert len(hooks) <= 1
    return "".join(hooks), found


@pytest.mark.parametrize(
    ("enabled", "mode", "expected", "by_controllers"),
    [
        pytest.param(True, "always", "pre-delete", True, id="before it is uninstalled"),
        pytest.param(False, "always", "pre-upgrade,pre-rollback", False, id="before the feature goes"),
        # Rendered without a cluster, they may be applied by something that knows of no hooks.
        pytest.param(True, "auto", "", True, id="not without a cluster to look into"),
        pytest.param(False, "auto", "", False, id="not without the feature"),
        pytest.param(False, "controllers", "", True, id="by the controllers alone"),
        pytest.param(False, "never", "", False, id="never"),
    ],
)
def test_gates_are_opened_by_a_hook(enabled: bool, mode: str, expected: str, by_controllers: bool) -> None:
    hook, found = gates(enabled=enabled, openGates=mode)

    assert hook == expected
    kinds = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"} if expected else set()
    assert {kind for kind, _ in found} == kinds
    settings = settings_in(render({"elasticity": {"enabled": enabled, "openGates": mode}}))
    assert settings.elasticity.open_gates is by_controllers


@pytest.mark.parametrize("enabled", [True, False])
def test_the_recipe_for_argo_cd_renders_the_jobs_that_are_to_run_before_features_go(enabled: bool) -> None:
    """Argo CD renders without a cluster, in which the chart could look for them."""
    page = (ROOT / "docs/how-to/install.md").read_text()
    recipes = [yaml.safe_load(each) for each in re.findall("```yaml\n(spec:.+?)```", page, re.DOTALL)]
    (values,) = [each["spec"]["source"]["helm"]["valuesObject"] for each in recipes]
    switched = {name: {"enabled": enabled} for name in values}

    def jobs(*of: dict[str, Any]) -> set[str]:
        return {name for kind, name in render(merged(*of)) if kind == "Job"}

    assert jobs({}, switched) == set()
    assert jobs(values, switched) == {"drawbridge-gates", "drawbridge-attach"}


def test_the_job_ends_before_helm_gives_up() -> None:
    _, found = gates(enabled=True, openGates="always", timeoutSeconds=3)
    job = found["Job", "drawbridge-gates"]["spec"]
    (program,) = job["template"]["spec"]["containers"]

    given = open_gates.parser().parse_args(program["args"])
    assert program["command"] == ["python", "-m", open_gates.__name__]
    assert (given.configuration, given.settle) == ("drawbridge", "8s")
    assert seconds(given.within) * 2 < job["activeDeadlineSeconds"] < 300


def expression(**values: Any) -> str:
    webhooks = render(merged(ON, {"elasticity": values}))["MutatingWebhookConfiguration", "drawbridge"][
        "webhooks"
    ]
    [_not_a_mirror, condition] = webhooks[0]["matchConditions"]
    return " ".join(condition["expression"].split())


def test_the_condition_has_the_words_of_the_program() -> None:
    text = expression()
    assert f'annotations[?"{LOCAL_REPLICAS}"].hasValue()' in text
    assert f'|| object.metadata.?annotations[?"{PLACEMENT}"].hasValue()' in text
    assert f'|| object.metadata.?annotations[?"{BURST}"].hasValue()' in text
    assert f'g.name == "{GATE}"' in text
    assert f'schedulerName.orValue("") == "{TKE_SCHEDULER}"' in text
    assert f'"{TAINT.key}"' in text
    assert f'e.key == "{INSTANCE_TYPE}"' in text
    assert f'== ["{SUPER_NODE}"]' in text
    assert 'request.namespace in ["kube-system","tke-eni-ip-webhook","gate-system"]' in text


def test_the_condition_includes_pods_of_controllers_only_with_global_local_replicas() -> None:
    owned = "|| object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false)))"
    assert owned not in expression()
    assert owned in expression(localReplicas=0)


def test_the_condition_ignores_the_scheduler_of_the_original_where_it_is_configured() -> None:
    assert TKE_SCHEDULER not in expression(schedulerName=TKE_SCHEDULER)


@pytest.mark.parametrize(
    ("written", "rendered"), [('"true"', "true"), ("false", "false"), (True, "true"), (False, "false")]
)
def test_the_global_switch_is_installed_as_the_word_that_it_is_read_as(
    written: object, rendered: str
) -> None:
    switch = render(merged(ON, {"eksAdmission": {"autoScaleEKS": written}}))["ConfigMap", "eks-config"]
    assert switch["data"] == {"AUTO_SCALE_EKS": rendered}
