"""Calico's own configuration is read in whichever group serves it."""

from __future__ import annotations

import pytest

from calico.pools import CONFIGURATIONS, IPAMConfiguration, ipam_configuration
from dev.fake_api import BUILT_IN, FakeAPI, Kind, refusal
from kube.errors import Forbidden

KINDS = [
    Kind(each, kind) for each, kind in zip(CONFIGURATIONS, ("IPAMConfiguration", "IPAMConfig"), strict=True)
]


def served(*kinds: Kind, strict: bool | None = None) -> FakeAPI:
    """With Calico's configuration in the first of *kinds*, unless it has none."""
    api = FakeAPI(*BUILT_IN, *kinds)
    if strict is not None:
        spec = {"strictAffinity": strict, "ipCooldownSeconds": 60}
        api.put(kinds[0].resource, {"metadata": {"name": "default"}, "spec": spec})
    return api


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
@pytest.mark.parametrize("strict", [True, False])
def test_it_is_read_in_the_group_that_is_served(kind: Kind, strict: bool) -> None:
    found = ipam_configuration(served(kind, strict=strict).client(), timeout=5)

    assert (found.strict_affinity, found.cooldown) == (strict, 60)


@pytest.mark.parametrize("kinds", [KINDS, []], ids=["no object", "not served"])
def test_without_a_configuration_nodes_may_borrow_and_at_once(kinds: list[Kind]) -> None:
    found = ipam_configuration(served(*kinds).client(), timeout=5)

    assert found == IPAMConfiguration()
    assert (found.strict_affinity, found.cooldown) == (False, 0)


def test_only_the_crds_are_asked_where_that_is_set() -> None:
    api = served(*KINDS, strict=False)
    api.put(CONFIGURATIONS[1], {"metadata": {"name": "default"}, "spec": {"strictAffinity": True}})

    assert ipam_configuration(api.client(), "crd.projectcalico.org/v1", timeout=5).strict_affinity is True
    assert ipam_configuration(api.client(), timeout=5).strict_affinity is False


def test_what_may_not_be_read_is_an_error() -> None:
    api = served(*KINDS, strict=True)
    api.fault = lambda call: refusal(403, "Forbidden", "no") if call.path.endswith("/default") else None

    with pytest.raises(Forbidden):
        ipam_configuration(api.client(), timeout=5)
