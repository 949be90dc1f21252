"""Run the controllers of every enabled feature, as the one leader among the replicas."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec

import structlog

import controllers
from controllers import liveness
from controllers.informers import StaleInformer
from controllers.manager import Controller, Manager, own_pod
from kube.client import Client
from kube.errors import KubeError
from kube.event_recorder import EventRecorder
from kube.leader_election import LeadershipLost, StillWorking
from kube.metrics_access import metrics_access
from runtime import threading
from settings import Settings, SettingsError, config_path
from settings.file import SettingsFile
from telemetry import logs, stop_on_signals
from telemetry.http import CannotListen, serve_health, serve_metrics
from telemetry.server import Server

log = structlog.get_logger(__name__)


def main() -> int:
    """The exit code: 0 after SIGTERM, 1 when leadership was lost or given up, 2 for a wrong configuration."""
    stop = stop_on_signals()
    try:
        client = Client.from_environment()
        recorder = EventRecorder(client, "drawbridge-controllers")
        settings = SettingsFile(config_path(), on_change=follow, on_refused=partial(report_refused, recorder))
    except (SettingsError, KubeError) as error:
        print(f"the controllers cannot start:\n{error}", file=sys.stderr)
        return 2
    logs.configure(settings.current.logging.level)
    try:
        with serving(client, settings, recorder, stop):
            Manager(client, recorder, settings.current.leader_election).run(enabled(settings), stop)
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
        access = metrics_access(client, now.metrics)
        closing.callback(serve_metrics(now.metrics.bind_address, access=access).close)
        for each in endpoints(client, settings):
            closing.callback(each.close)
        threading.Thread(target=settings.watch, args=(stop,), name="settings", daemon=True).start()
        yield


def enabled(settings: SettingsFile) -> dict[str, Controller]:
    """By name, the controllers of the enabled features; enabling another takes a restart, done by the chart.

    A feature is a package here that has ``enabled(settings)``, and a module ``controller`` with
    ``run(context, settings)``, which is imported only for an enabled one.
    """
    return {
        name: partial(import_module(f"controllers.{name}.controller").run, settings=lambda: settings.current)
        for name in features(settings)
    }


def endpoints(client: Client, settings: SettingsFile) -> Iterator[Server]:
    """What each replica serves for the enabled features, also while another one leads; CannotListen.

    A feature that serves has a module ``endpoint`` with ``serve(client, settings)``.
    """
    for name in features(settings):
        if find_spec(f"controllers.{name}.endpoint"):
            serve = import_module(f"controllers.{name}.endpoint").serve
            if server := serve(client, lambda: settings.current):
                yield server


def features(settings: SettingsFile) -> list[str]:
    """The names of those that are enabled."""
    found = [each.name for each in pkgutil.iter_modules(controllers.__path__) if each.ispkg]
    return [name for name in found if import_module(f"controllers.{name}").enabled(settings.current)]


def follow(_old: Settings, new: Settings) -> None:
    logs.set_level(new.logging.level)


def report_refused(recorder: EventRecorder, error: SettingsError) -> None:
    recorder.event(
        own_pod(),
        "ConfigurationRefused",
        f"The last good configuration stays: {error}",
        type="Warning",
    )


if __name__ == "__main__":
    sys.exit(main())
