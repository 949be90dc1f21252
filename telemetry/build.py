"""Which version of Drawbridge runs; the image says it in its environment."""

import json
import os
import platform

from prometheus_client import Gauge

VERSION = os.environ.get("DRAWBRIDGE_VERSION") or "0.1.0"
REVISION = os.environ.get("DRAWBRIDGE_REVISION") or "unknown"
BUILD = {"version": VERSION, "revision": REVISION, "python": platform.python_version()}
"""What /version answers, too."""

Gauge(
    "drawbridge_build_info",
    "1, with the version of the program as labels.",
    ["version", "revision", "python"],
).labels(**BUILD).set(1)


def version_json() -> bytes:
    return json.dumps(BUILD).encode() + b"\n"
