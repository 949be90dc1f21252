"""Which version of Drawbridge runs; the image says it in its environment."""

import os
import platform

VERSION = os.environ.get("DRAWBRIDGE_VERSION") or "0.1.0"
REVISION = os.environ.get("DRAWBRIDGE_REVISION") or "unknown"
BUILD = {"version": VERSION, "revision": REVISION, "python": platform.python_version()}
"""What /version answers, too."""
