"""Time, concurrency and chance: product code takes them from here, so that a simulator can replace them.

A simulator installs its own modules under these names before it imports any other product code; everywhere else they
are the standard library's. ``tests/test_layers.py`` refuses imports that pass by this module.
"""

from __future__ import annotations

import queue as queue
import random as random
import secrets as secrets
import threading as threading
import time as time
from concurrent import futures as futures
from datetime import UTC, datetime
from queue import SimpleQueue as SimpleQueue
from uuid import uuid4 as uuid4


def utc_now() -> datetime:
    """The time of day, for what is written; for waiting there is ``time.monotonic``, which no one sets."""
    return datetime.fromtimestamp(time.time(), UTC)
