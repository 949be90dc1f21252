"""Run the controllers of every enabled feature, as the one leader among the replicas."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import structlog

import features
from controllers import liveness
from controllers.informers import StaleInformer
from controllers.manager import manage, own_pod
from kube.client import Client
from kube.errors import KubeError
from kube.event_recorder import EventRecorder
from kube.leader_election import LeadershipLost, StillWorking
from kube.metrics_access import metrics_access
from runtime import threading
from settings import SettingsError, config_path
from settings.file import SettingsFile
from telemetry import logs
from telemetry.http import CannotListen, serve_health, serve_metrics
from telemetry.program import stop_on_signals

log = structlog.get_logger(__name__)


def main() -> int:
    """The exit code: 0 after SIGTERM, 1 when leadership was lost or given up, 2 for a wrong configuration."""
    stop = stop_on_signals()
    try:
        client = Client.from_environment()
        recorder = EventRecorder(client, "drawbridge-controllers")
        settings = SettingsFile(
            config_path(),
            on_change=lambda new: logs.set_level(new.logging.level),
            on_refused=partial(report_refused, recorder),
        )
    except (SettingsError, KubeError) as error:
        print(f"the controllers cannot start:\n{error}", file=sys.stderr)
        return 2
    logs.configure(settings.current.logging.level)
    try:
        with serving(client, settings, recorder, stop):
            controllers = features.controllers(lambda: settings.current)
            manage(controllers, client, recorder, settings.current.leader_election, stop)
    except CannotListen as error:
        print(f"the controllers cannot start:\n{error}", file=sys.stderr)
        return 2
    except (LeadershipLost, StaleInformer, StillWorking) as error:
        log.error("exiting, to start again as a follower", error=str(error))
        return 1
    return 0


@contextmanager
def serving(
    client: Client, settings: SettingsFile, recorder: EventRecorder, stop: threading.Event
) -> Iterator[None]:
    """Health, metrics, Events and reloads of the configuration, for the length of the block."""
    now = settings.current
    with ExitStack() as closing:
        closing.callback(recorder.close)
        health = serve_health(now.health.health_probe_bind_address, live=liveness.problem, ready=lambda: None)
        closing.callback(health.close)
        metrics = serve_metrics(now.metrics.bind_address, metrics_access(client, now.metrics))
        closing.callback(metrics.close)
        for feature in features.running(now):
            if server := feature.serve(client, lambda: settings.current):
                closing.callback(server.close)
        threading.Thread(target=settings.watch, args=(stop,), name="settings", daemon=True).start()
        yield


def report_refused(recorder: EventRecorder, error: SettingsError) -> None:
    recorder.event(
        own_pod(),
        "ConfigurationRefused",
        f"The last good configuration stays: {error}",
        type="Warning",
    )


if __name__ == "__main__":
    sys.exit(main())
