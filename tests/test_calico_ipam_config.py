"""Whether a node may take addresses of other nodes' blocks is read in whichever group serves it."""

from __future__ import annotations

import pytest

from calico.ipam_config import CONFIGURATIONS, strict_affinity
from kube.errors import Forbidden
from tests.fake_api import BUILT_IN, FakeAPI, Kind, refusal

KINDS = [
    Kind(each, kind) for each, kind in zip(CONFIGURATIONS, ("IPAMConfiguration", "IPAMConfig"), strict=True)
]


def served(*kinds: Kind, strict: bool | None = None) -> FakeAPI:
    """With Calico's configuration in the first of *kinds*, unless it has none."""
    api = FakeAPI(*BUILT_IN, *kinds)
    if strict is not None:
        api.put(kinds[0].resource, {"metadata": {"name": "default"}, "spec": {"strictAffinity": strict}})
    return api


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
@pytest.mark.parametrize("strict", [True, False])
def test_it_is_read_in_the_group_that_is_served(kind: Kind, strict: bool) -> None:
    assert strict_affinity(served(kind, strict=strict).client(), timeout=5) is strict


@pytest.mark.parametrize("kinds", [KINDS, []], ids=["no object", "not served"])
def test_without_a_configuration_nodes_may_borrow(kinds: list[Kind]) -> None:
    assert strict_affinity(served(*kinds).client(), timeout=5) is False


def test_only_the_crds_are_asked_where_that_is_set() -> None:
    api = served(*KINDS, strict=False)
    api.put(CONFIGURATIONS[1], {"metadata": {"name": "default"}, "spec": {"strictAffinity": True}})

    assert strict_affinity(api.client(), "crd.projectcalico.org/v1", timeout=5) is True
    assert strict_affinity(api.client(), timeout=5) is False


def test_what_may_not_be_read_is_an_error() -> None:
    api = served(*KINDS, strict=True)
    api.fault = lambda call: refusal(403, "Forbidden", "no") if call.path.endswith("/default") else None

    with pytest.raises(Forbidden):
        strict_affinity(api.client(), timeout=5)
