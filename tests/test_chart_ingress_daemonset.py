"""The chart with ingress_daemonset: the image of health checkers."""

from __future__ import annotations

from typing import Any

import pytest

from lab.install import merged
from tests.charts import helm_needed, render, settings_in

OURS = {"image": {"registry": "registry.example:5000/team", "tag": "v9", "pullPolicy": "Always"}}
NAMED = {"ingressDaemonSet": {"healthChecker": {"image": "other"}}}


@helm_needed
@pytest.mark.parametrize(
    ("values", "image", "pull_policy"),
    [
        pytest.param({}, "drawbridge:0.1.0", "IfNotPresent", id="the default"),
        pytest.param(OURS, "registry.example:5000/team/drawbridge:v9", "Always", id="ours from a registry"),
        pytest.param(OURS | NAMED, "other", "Always", id="another"),
    ],
)
def test_health_checkers_have_our_image_unless_another_is_named(
    values: dict[str, Any], image: str, pull_policy: str
) -> None:
    checker = settings_in(render(merged({"ingressDaemonSet": {"enabled": True}}, values))).ingress_daemonset
    assert (checker.health_checker.image, checker.health_checker.image_pull_policy) == (image, pull_policy)
