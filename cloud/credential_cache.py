"""What calls are signed with; keys that end are renewed in time, and used to their end while that fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cloud.errors import CloudError, NotConfigured

AHEAD = 300.0
"""Seconds before their end from when on keys are renewed: as far as the cloud's clock may be from ours."""
PAUSE = 10.0
"""Seconds between two attempts to renew; for a call that waits for keys, too."""

ENDED = NotConfigured(
    "KeysEnded", "the keys had ended when they came: is this machine's clock right?", action="credentials"
)


@dataclass(frozen=True)
class Keys:
    """*token* belongs to keys that end."""

    secret_id: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


Source = Callable[[], Keys]
"""Brings the keys of the moment; raises CloudError when there are none."""


@dataclass(frozen=True)
class TemporaryKeys:
    """*end* is in Unix time."""

    keys: Keys
    end: float


class CredentialCache:
    """A source of the keys that *fetch* brings."""

    def __init__(self, fetch: Callable[[], TemporaryKeys], *, clock: Callable[[], float] = time.time) -> None:
        self._fetch, self._clock = fetch, clock
        self._lock = threading.Lock()
        self._held: TemporaryKeys | None = None
        self._failure: CloudError = ENDED
        self._look_at = float("-inf")

    def __call__(self) -> Keys:
        """Raises what *fetch* raised when there are no keys that are good now."""
        with self._lock:
            now = self._clock()
            if now >= self._look_at:
                self._renew(now)
            if self._held and now < self._held.end:
                return self._held.keys
            raise self._failure.with_traceback(None)

    def _renew(self, now: float) -> None:
        try:
            self._held, self._failure = self._fetch(), ENDED
        except CloudError as error:
            self._failure = error
        ends = self._held.end - AHEAD if self._held else now
        self._look_at = max(now + PAUSE, ends)
