"""One container of a pod over all its lives, each begun when it is due."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from dev.lab.kubelet import status
from dev.lab.kubelet.life import Deadline, Life


class Container:
    """Its methods are for the pod's own thread."""

    def __init__(self, spec: Mapping[str, Any], *, policy: str) -> None:
        self.spec = spec
        self.lives = 0
        self._policy = policy
        self._life: Life | None = None
        self._ended: status.Ended | None = None
        self._waiting = ("ContainerCreating", "")
        self._crashes = 0
        self._again_at: float | None = 0.0
        self._over = False

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def running(self) -> bool:
        return self._life is not None

    @property
    def done(self) -> bool:
        """Whether it has ended and will not be started again."""
        return self._life is None and self._again_at is None

    def due_in(self, now: float) -> float | None:
        """Seconds until it is to be started; None if it is not. Times are of ``time.monotonic()``."""
        return None if self._again_at is None else max(0.0, self._again_at - now)

    def hold_back(self, reason: str, message: str, until: float) -> bool:
        """Wait until then, and say what for; whether that is news."""
        news = self._waiting != (reason, message)
        self._waiting, self._again_at = (reason, message), until
        return news

    def begin(self, life: Life) -> None:
        self._life, self._again_at = life, None
        self.lives += 1

    def collect(self, now: float) -> None:
        """Take note of its end, if it has come."""
        life = self._life
        if life is None or life.exit_code is None:
            return
        finished = time.time()
        reason = "Completed" if life.exit_code == 0 else "Error"
        self._ended = status.Ended(life.exit_code, reason, life.why, life.since, finished)
        self._life = None
        if not self._over and status.may_restart(self._policy, life.exit_code):
            self._crashes = status.crashes_in_a_row(self._crashes, finished - life.since)
            delay = status.restart_delay(self._crashes)
            message = (
                f"back-off {delay:.0f}s restarting container {self.name!r}, which ended with {life.exit_code}"
            )
            self.hold_back("CrashLoopBackOff", message, now + delay)

    def stop(self, deadline: Deadline) -> None:
        """End it in order, and never start it again."""
        self._over, self._again_at = True, None
        if self._life:
            self._life.stop(deadline)

    def kill(self) -> None:
        """End it at once, and never start it again."""
        self._over, self._again_at = True, None
        if self._life:
            self._life.kill()

    def state(self, *, terminating: bool) -> status.State:
        life, done = self._life, self.done
        return status.State(
            name=self.name,
            image=self.spec["image"],
            waiting=self._waiting,
            running_since=life.since if life else None,
            ended=self._ended if done else None,
            last=None if done else self._ended,
            restarts=max(0, self.lives - 1),
            ready=life is not None and life.ready and not terminating,
            started=life is not None and life.started,
        )
