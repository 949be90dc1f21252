"""What the lab's policy engine makes of objects."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from lab.policy.mutations import (
    ENVIRONMENT,
    MIRROR,
    SIDECAR,
    TOLERATION,
    mutated,
    pod_without_policy,
    without_policy,
)

Raw = dict[str, Any]
POD: Raw = {
    "containers": [{"name": "app", "image": "app:1"}],
    "initContainers": [{"name": "i", "image": "i"}],
}
ARGUMENTS = {
    "Deployment": {"metadata": {"name": "a"}, "spec": {"template": {"spec": POD}}},
    "DaemonSet": {
        "metadata": {"name": "a"},
        "spec": {"template": {"metadata": {"labels": {"x": "y"}}, "spec": POD}},
    },
    "Pod": {
        "metadata": {"name": "a", "labels": None},
        "spec": POD | {"tolerations": [{"operator": "Exists"}]},
    },
    "Node": {"metadata": {"name": "a"}},
    "ConfigMap": {"metadata": {"name": "a"}},
}


@pytest.mark.parametrize("kind", ARGUMENTS)
@pytest.mark.parametrize("is_new", [True, False])
def test_twice_is_as_once_and_the_argument_stays(kind: str, is_new: bool) -> None:
    given = copy.deepcopy(ARGUMENTS[kind])
    once = mutated(kind, given, is_new=is_new)

    assert given == ARGUMENTS[kind]
    assert mutated(kind, once, is_new=is_new) == once
    assert (once == given) == (kind == "ConfigMap")


def test_a_new_pod_gets_a_variable_a_toleration_a_sidecar_a_label_and_images_of_the_mirror() -> None:
    new = mutated("Pod", {"metadata": {"name": "a"}, "spec": POD}, is_new=True)

    assert new["metadata"]["labels"] == {"policy.lab/checked": "true"}
    assert new["spec"] == {
        "containers": [
            {"name": "app", "image": f"{MIRROR}app:1", "env": [ENVIRONMENT]},
            SIDECAR | {"env": [ENVIRONMENT]},
        ],
        "initContainers": [{"name": "i", "image": f"{MIRROR}i", "env": [ENVIRONMENT]}],
        "tolerations": [TOLERATION],
    }
    assert pod_without_policy(new["spec"]) == POD


def test_a_workload_is_read_as_it_was_before_the_policy() -> None:
    given = ARGUMENTS["DaemonSet"] | {"metadata": {"name": "a", "labels": {"x": "y"}}}

    assert without_policy(mutated("DaemonSet", given, is_new=True)) == given
