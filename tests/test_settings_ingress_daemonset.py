"""What of ingress_daemonset cannot be meant is refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from settings import IngressDaemonSetSettings


def test_without_a_word_it_is_off() -> None:
    settings = IngressDaemonSetSettings()

    assert not settings.enabled
    assert settings.health_checker.image == ""
    assert (settings.detachment_reminder, settings.resync_period) == (600, 300)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"detachmentReminder": "0s"}, id="a reminder at once"),
        pytest.param({"resyncPeriod": "often"}, id="no duration"),
        pytest.param({"healthChecker": {"imagePullPolicy": "Sometimes"}}, id="another policy"),
        pytest.param({"healthChecker": {"serviceAccount": "x"}}, id="a field that is unknown"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        IngressDaemonSetSettings.model_validate(given)


def test_all_of_it_may_be_given() -> None:
    settings = IngressDaemonSetSettings.model_validate(
        {
            "enabled": True,
            "detachmentReminder": "5m",
            "healthChecker": {"image": "a/b:1", "resources": {"limits": {"memory": "32Mi"}}},
        }
    )

    assert settings.detachment_reminder == 300
    assert settings.health_checker.resources == {"limits": {"memory": "32Mi"}}
