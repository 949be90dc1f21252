"""A configuration file of the original, Capo, means the same here without a change."""

from collections.abc import Mapping

HEADER = ("config.capo.io/v1", "CapoConfig")
MOVED = frozenset({"ipReserveMaxCount", "ipReserveTime", "ipReleasePeriod", "labelSelector"})
"""What stands at the top of a CapoConfig, and under `ipReservation` of ours."""


def translated(document: Mapping[str, object]) -> dict[str, object]:
    """The same settings as fields of a DrawbridgeConfig."""
    kept = {key: value for key, value in document.items() if key not in MOVED | {"apiVersion", "kind"}}
    return kept | {"ipReservation": {key: value for key, value in document.items() if key in MOVED}}
