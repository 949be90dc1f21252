"""What of anycast_ip contradicts itself is refused, with the way out."""

from __future__ import annotations

import pytest

from settings import SettingsError, parse

HEADER = "apiVersion: drawbridge.io/v1\nkind: DrawbridgeConfig\n"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param("{enabled: true}", "clusterID is empty", id="no cluster"),
        pytest.param("{clusterID: prod}", "anycastIP.clusterID", id="a name for an id"),
        pytest.param(
            "{addressType: HighQualityEIP, anycastZone: ANYCAST_ZONE_GLOBAL}",
            "only an AnycastEIP",
            id="a zone of nothing",
        ),
        pytest.param("{nodeLabels: {}}", "anycastIP.nodeLabels", id="all nodes"),
        pytest.param("{reverseReconcile: {maxPerRound: 0}}", "maxPerRound", id="none in a round"),
    ],
)
def test_a_contradiction_is_refused(given: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        parse(f"{HEADER}anycastIP: {given}\n")


def test_a_zone_goes_with_an_anycast_address() -> None:
    settings = parse(
        f"{HEADER}anycastIP: {{enabled: true, clusterID: cls-1, anycastZone: ANYCAST_ZONE_GLOBAL}}\n"
    )
    assert settings.anycast_ip.anycast_zone == "ANYCAST_ZONE_GLOBAL"
