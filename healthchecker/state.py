"""What a health checker answers, and why, as the controllers read it.

Times are durations, so that the clocks of two machines need not agree.
"""

from __future__ import annotations

import msgspec


class State(msgspec.Struct, frozen=True, rename="camel"):
    """*status* has been answered *for_seconds*, because of the Deployment of this uid, version and generation.

    For *detached_seconds* it has been 503 because the Deployment bears the annotation, with *scheduled* as what
    SCHEDULED says; *refusals* are the health checks that were answered so since. *seen_seconds_ago* is the age of what
    is known of the Deployment; None when it was never seen.
    """

    status: int = 503
    reason: str = ""
    for_seconds: float = 0.0
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    scheduled: str = ""
    detached_seconds: float = 0.0
    refusals: int = 0
    seen_seconds_ago: float | None = None
