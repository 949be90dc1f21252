"""The emulator of a lab: as fast as is plausible, with chart values that point to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dev.lab.cloud.config import SECRET_ID, SECRET_KEY, Knobs, turn
from dev.lab.cloud.remote import Remote
from dev.lab.cloud.tls import AUTHORITY
from dev.lab.cloud.world import REGION

CLUSTER_ID = "cls-lab00000"
LOG = "cloud.log"
AT = re.compile(r"^the cloud is at http://(\S+)$", re.MULTILINE)


def knobs(changes: Mapping[str, Any]) -> Knobs:
    """Those of a lab, *changes* over them. Raises LabError naming the field that cannot be set so."""
    ours = Knobs(
        quota_total=2000,
        allocate_seconds=0.3,
        bind_seconds=0.6,
        unbind_seconds=0.6,
        release_seconds=0.3,
        tag_lag_seconds=0.5,
    )
    turn(ours, changes)
    return ours


def find(logs: Path) -> Remote | None:
    """The cloud that writes its log into *logs*; None for a lab without one."""
    path = logs / LOG
    said = AT.search(path.read_text()) if path.exists() else None
    return Remote(said[1]) if said else None


def values(endpoint: str) -> dict[str, Any]:
    """Helm values for a chart that is to work with the cloud at *endpoint*."""
    return {
        "anycastIP": {"enabled": True, "clusterID": CLUSTER_ID},
        "cloud": {
            "region": REGION,
            "endpoint": endpoint,
            "caBundle": AUTHORITY.read_text(),
            "keysInValues": True,
            "secretID": SECRET_ID,
            "secretKey": SECRET_KEY,
        },
    }


def is_wanted(values: Mapping[str, Any]) -> bool:
    """Whether these Helm values leave it open which cloud to use; an empty endpoint is Tencent Cloud's own."""
    return "endpoint" not in (values.get("cloud") or {})
