"""One life of a container: its process, probed while it runs and stopped in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from dev.lab.kubelet import probes
from dev.lab.kubelet.probes import Probe, Verdict
from dev.lab.kubelet.process import Process

LEAST_GRACE = 2.0  # left for SIGTERM after a preStop hook that took all the time; from the real kubelet

Deadline = Callable[[], float]  # an instant of time.monotonic(); it may come nearer from one call to the next
Warn = Callable[[str, str], None]  # takes reason and message


class Life:
    """``poke`` is called from other threads whenever something that can be read here has changed."""

    def __init__(
        self,
        process: Process,
        spec: Mapping[str, Any],
        *,
        address: str,
        grace: float,
        poke: Callable[[], None],
        warn: Warn,
    ) -> None:
        self.since = time.time()
        self.why = ""
        self.stopping = False
        self.started = "startupProbe" not in spec
        self._readiness = Verdict(good="readinessProbe" not in spec)
        self._process = process
        self._spec = spec
        self._address = address
        self._grace = grace
        self._poke = poke
        self._warn = warn
        self._no_more_probes = threading.Event()
        self._may_probe = threading.Event()
        self._begin()

    def _begin(self) -> None:
        self._process.follow(self._ended)
        if self.started:
            self._may_probe.set()
        begins = {"startupProbe": self._startup, "readinessProbe": self._ready, "livenessProbe": self._alive}
        for kind, begin in begins.items():
            if kind in self._spec:
                self._thread(begin, self._spec[kind])

    def _thread(self, target: Callable[..., object], *arguments: object) -> None:
        threading.Thread(target=target, args=arguments, daemon=True).start()

    def _ended(self) -> None:
        self._no_more_probes.set()
        self._may_probe.set()
        self._poke()

    @property
    def exit_code(self) -> int | None:
        return self._process.exit_code

    @property
    def ready(self) -> bool:
        return self.started and self._readiness.good and not self.stopping

    def kill(self) -> None:
        self._process.kill()

    def stop(self, deadline: Deadline, why: str = "") -> None:
        """Begin to stop it: preStop, then SIGTERM, and SIGKILL at the deadline."""
        if self.stopping:
            return
        self.stopping, self.why = True, why
        self._thread(self._stop, deadline)
        self._poke()

    def _stop(self, deadline: Deadline) -> None:
        hook, begun = self._spec.get("lifecycle", {}).get("preStop"), time.monotonic()
        least = 0.0
        if hook and deadline() > begun:
            end = begun + hook["sleep"]["seconds"]
            self._process.wait(lambda: min(end, deadline()))
            least = time.monotonic() + LEAST_GRACE
        self._process.terminate()
        if not self._process.wait(lambda: max(deadline(), least)):
            self._process.kill()

    def _startup(self, spec: Mapping[str, Any]) -> None:
        probe, failures = probes.parse(spec), 0

        def report(succeeded: bool) -> None:
            nonlocal failures
            failures += not succeeded
            if succeeded:
                self.started = True
                self._may_probe.set()
                self._poke()
            elif failures >= probe.failure_threshold:
                self._unhealthy("Startup", probe, spec)

        probes.follow(probe, self._check(spec), self._no_more_probes, report, until_success=True)

    def _ready(self, spec: Mapping[str, Any]) -> None:
        probe = probes.parse(spec)

        def report(succeeded: bool) -> None:
            before, self._readiness = self._readiness, probes.judge(self._readiness, succeeded, probe)
            if before.good != self._readiness.good:
                self._poke()

        self._may_probe.wait()
        probes.follow(probe, self._check(spec), self._no_more_probes, report, eager=True)

    def _alive(self, spec: Mapping[str, Any]) -> None:
        probe, verdict = probes.parse(spec), Verdict(good=True)

        def report(succeeded: bool) -> None:
            nonlocal verdict
            verdict = probes.judge(verdict, succeeded, probe)
            if not verdict.good:
                self._unhealthy("Liveness", probe, spec)

        self._may_probe.wait()
        probes.follow(probe, self._check(spec), self._no_more_probes, report)

    def _unhealthy(self, name: str, probe: Probe, spec: Mapping[str, Any]) -> None:
        if self.stopping:
            return
        times = f"failed {probe.failure_threshold} times in a row"
        why = f"{name} probe of container {self._spec['name']!r} {times}"
        self._warn("Unhealthy", f"{why}; it will be restarted")
        end = time.monotonic() + spec.get("terminationGracePeriodSeconds", self._grace)
        self.stop(lambda: end, why)

    def _check(self, spec: Mapping[str, Any]) -> probes.Check:
        return probes.http_check(spec, self._spec, self._address)
