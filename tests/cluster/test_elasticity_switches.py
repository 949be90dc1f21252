"""The two switches decide whether a pod without room at home may leave, and are followed live."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.session import Lab
from tests.cluster.elasticity import TOO_LARGE, Shop, asking, switch_all, switched, template

SENT, KEPT = "SentToSuperNode", "KeptAtHome"
TABLE = {
    ("true", "false"): SENT,
    ("true", ""): SENT,
    ("true", "true"): SENT,
    ("false", "false"): KEPT,
    ("false", ""): KEPT,
    ("false", "true"): SENT,
    ("", "false"): SENT,
    ("", ""): SENT,
    ("", "true"): SENT,
}
"""What becomes of a pod, by the switch for all and its own, of which "" is not set: as the original has it."""
OWN = ("false", "", "true")


@pytest.fixture(scope="module")
def shops(elastic_lab: Lab) -> Iterator[dict[str, Shop]]:
    """By the switch for all: three pods for which there is no room at home, each with another switch of its own.

    All have been decided on; and the switch for all is not set any more.
    """
    opened = {}
    try:
        for everywhere in ("true", "false", ""):
            switch_all(elastic_lab, everywhere)
            opened[everywhere] = Shop(elastic_lab)
            for own in OWN:
                opened[everywhere].run(name_of(own), template(switched(own), **asking(TOO_LARGE)))
            await_decisions(opened[everywhere])
        yield opened
    finally:
        switch_all(elastic_lab, "")


def await_decisions(shop: Shop) -> None:
    for own in OWN:
        shop.wait(lambda: {SENT, KEPT} & shop.events(name_of(own)).keys(), f"a word on {name_of(own)}")  # noqa: B023


def name_of(own: str) -> str:
    return f"own-{own or 'unset'}"


@pytest.mark.parametrize(("everywhere", "own"), TABLE, ids=lambda each: each or "unset")
def test_a_pod_without_room_is_decided_on_by_both_switches(
    shops: dict[str, Shop], everywhere: str, own: str
) -> None:
    becomes = TABLE[everywhere, own]
    told = shops[everywhere].events(name_of(own))

    assert (KEPT in told) == (becomes == KEPT)
    assert f"global={everywhere or 'unset'} local={own or 'unset'}" in told[becomes]
    # Those that were kept, too: in the end the switch for all is not set.
    shops[everywhere].await_away(name_of(own))


def test_a_pod_that_was_kept_goes_as_it_stands_when_the_switch_for_all_is_opened(elastic_lab: Lab) -> None:
    switch_all(elastic_lab, "false")
    try:
        shop = Shop(elastic_lab)
        shop.run("kept", template(**asking(TOO_LARGE)))
        shop.deploy("web", 3, template({"LOCAL_REPLICAS": "1"}))
        shop.await_event("kept", KEPT)
        shop.settle("web", 3)
        before = shop.pod("kept")
        assert (before.spec.node_name, len(shop.home("web"))) == ("", 3)
    finally:
        switch_all(elastic_lab, "true")
    shop.await_away("kept")
    assert shop.pod("kept").metadata.uid == before.metadata.uid
    assert len(shop.home("web")) == 3
    switch_all(elastic_lab, "")
