"""Health, metrics and reloads of the configuration, in the process of the webhook server."""

from collections.abc import Callable
from functools import partial

from kube.client import Client
from kube.metrics_access import metrics_access
from runtime import futures, threading, time, utc_now
from settings.file import SettingsFile
from telemetry.http import serve_health, serve_metrics
from webhook.worker import WebhookWorker

PATIENCE = 1.0
"""Seconds that a probe waits for the thread pool: a busy pool is not stuck."""
NOT_READY_AFTER, DEAD_AFTER = 5.0, 60.0
"""Seconds without an answer of the pool; no request may take as long as the second."""


class Pulse:
    """Whether a thread pool still takes work, by one tiny job at a time."""

    def __init__(
        self,
        submit: Callable[[Callable[[], None]], futures.Future[None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._submit, self._clock = submit, clock
        self._lock = threading.Lock()
        self._beat: futures.Future[None] | None = None
        self._sent = 0.0

    def silence(self, patience: float) -> float:
        """Seconds that a job has waited, after *patience*; 0 when it was done."""
        with self._lock:
            if self._beat is None or self._beat.done():
                self._beat, self._sent = self._submit(lambda: None), self._clock()
            beat, sent = self._beat, self._sent
        try:
            beat.result(patience)
        except TimeoutError:
            return self._clock() - sent
        return 0.0


class SideServers:
    """Runs from the start of a worker to its exit."""

    def __init__(self, worker: WebhookWorker, settings: SettingsFile, client: Client) -> None:
        self._worker = worker
        self._pulse = Pulse(worker.submit)
        self._stop = threading.Event()
        now, live = settings.current, partial(self._silent_for, DEAD_AFTER)
        self._servers = [
            serve_health(now.health.health_probe_bind_address, live=live, ready=self.not_ready),
            serve_metrics(now.metrics.bind_address, metrics_access(client, now.metrics)),
        ]
        threading.Thread(target=settings.watch, args=(self._stop,), name="settings", daemon=True).start()

    def not_ready(self) -> str | None:
        """Why this replica must get no new connections, if so."""
        if self._worker.drain_ends is not None:
            return "shutting down"
        return self._worker.pair.problem(utc_now()) or self._silent_for(NOT_READY_AFTER)

    def close(self) -> None:
        self._stop.set()
        for server in self._servers:
            server.close()

    def _silent_for(self, limit: float) -> str | None:
        silence = self._pulse.silence(PATIENCE)
        return f"the thread pool has not answered for {silence:.0f} s" if silence > limit else None
