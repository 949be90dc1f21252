"""An IngressDaemonSet as values: the same whether admission or its reader has filled in the defaults."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from api.ingress_daemonset.types import (
    Annotation,
    RollingUpdate,
    Timestamp,
    amount,
    defaulted,
    is_some,
    overridden,
    resource,
    rolling_update,
)
from tests.ingress_daemonset import Raw, example, raw
from webhook.ingress_daemonset.validate import two_spellings

DEFAULT = "ingressdaemonsets.mumoshu.github.com/to-be-updated"
SHARES = st.sampled_from([0, 1, 3, "0%", "25%", "100%"])
ROLLING = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        (
            "maxUnavailableNodes",
            "maxDegradedNodes",
            "maxUnavailablePodsPerNode",
            "maxUnavaiablePodsPerNode",
            "maxUnavailablePodsPerNodes",
            "maxSurgedPodsPerNode",
        ),
        SHARES,
    ),
)


def rolling(**fields: Any) -> RollingUpdate:
    return resource(raw({"updateStrategy": {"rollingUpdate": fields}})).spec.update_strategy.rolling_update


@given(new=ROLLING, old=ROLLING)
def test_defaulting_again_changes_nothing_more_and_detachment_brings_its_own(new: Raw, old: Raw) -> None:
    before = defaulted(raw({"updateStrategy": {"rollingUpdate": old}}))
    stored = defaulted(raw({"updateStrategy": {"rollingUpdate": new}}), before)

    assume(not two_spellings(rolling_update(stored)))
    assert defaulted(stored, stored) == stored
    assert defaulted(stored) == stored
    assert [*overridden(stored, stored)] == []
    if is_some(new.get("maxUnavailableNodes", 0)):
        found = rolling_update(stored)
        assert (found["maxDegradedNodes"], found["maxUnavailablePodsPerNode"]) == (0, "100%")


def test_the_given_object_stays_as_it_is() -> None:
    given = example()

    defaulted(given, example())

    assert given == example()


def test_the_example_of_the_original_as_values() -> None:
    spec = resource(example()).spec

    assert (spec.pods_per_node, spec.health_check_node_ports, spec.paused) == (2, (10080,), False)
    assert spec.health_checker.image_pull_policy == "Always"
    found = spec.update_strategy.rolling_update
    assert (found.max_unavailable_nodes, found.max_degraded_nodes) == (2, 0)
    assert (found.max_unavailable_pods_per_node, found.max_surged_pods_per_node) == ("100%", 1)
    assert found.node_annotation == Annotation("node-detacher.variant.run/detached", "true", 10)
    assert found.timestamp == Timestamp("node-detacher.variant.run/detachment-timestamp", "RFC3339", 30)


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"maxUnavailableNodes": 1}, DEFAULT),
        ({"annotateDeploymentToDetach": {}}, DEFAULT),
        ({"annotateDeploymentToDetach": {"key": "a"}}, "a"),
        ({}, None),
    ],
)
def test_the_annotation_of_a_deployment(fields: Raw, key: str | None) -> None:
    found = rolling(**fields).deployment_annotation

    assert (found and found.key) == key


def test_a_node_that_is_not_detached_is_not_written_to() -> None:
    found = rolling(annotateNodeToDetach={"key": "a"}, waitForDetachmentByAnnotatedTimestamp={"key": "b"})

    assert (found.node_annotation, found.timestamp) == (None, None)


@pytest.mark.parametrize("share", [-1, "", "%", "1", "-1%", "101%", "1.5%", "\u0661%", "0001%"])
def test_what_is_no_budget_is_refused(share: int | str) -> None:
    with pytest.raises(ValueError, match="is no budget"):
        amount(share)
    assert not is_some(share)
