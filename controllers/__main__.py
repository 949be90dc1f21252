"""Run every feature's controllers, as the one leader among the replicas."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from queue import SimpleQueue

import structlog

from controllers import liveness
from controllers.anycast_ip import controller as anycast_ip
from controllers.certificates import controller as certificates
from controllers.elasticity import controller as elasticity
from controllers.ingress_daemonset import controller as ingress_daemonset
from controllers.ip_reservation import controller as ip_reservation
from controllers.workqueue import StaleInformer
from kube.client import Client
from kube.errors import KubeError
from kube.event_recorder import EventRecorder, Regarding
from kube.leader_election import LeaderElector, LeadershipLost, StillWorking, Times
from settings import LeaderElection, Settings, SettingsError, SettingsFile, config_path
from telemetry import logs
from telemetry.http import serve_health, serve_metrics
from telemetry.signals import stop_on_signals

log = structlog.get_logger(__name__)

Lead = Callable[[threading.Event, Callable[[], None]], None]

STOP_WITHIN = 20.0
"""Seconds for all features to end: less than the pod is given, so that it is said which one did not."""


def main() -> int:
    """The exit code: 0 after SIGTERM, 1 when leadership was lost or given up, 2 when there is nothing to start with."""
    stop = stop_on_signals()
    try:
        client = Client.from_environment()
        recorder = EventRecorder(client, "drawbridge-controllers")
        settings = SettingsFile(config_path(), on_change=follow, on_refused=partial(tell_refusal, recorder))
    except (SettingsError, KubeError) as error:
        print(f"the controllers cannot start:\n{error}", file=sys.stderr)
        return 2
    logs.configure(settings.current.logging.level)
    with beside(settings, recorder, stop):
        try:
            run(client, settings, recorder, stop)
        except (LeadershipLost, StaleInformer, StillWorking) as error:
            log.error("exiting, to start anew as a follower", error=str(error))
            return 1
    return 0


@contextmanager
def beside(settings: SettingsFile, recorder: EventRecorder, stop: threading.Event) -> Iterator[None]:
    """Health, metrics, Events and following the configuration, for as long as the block runs."""
    now = settings.current
    with ExitStack() as closing:
        closing.callback(recorder.close)
        health = serve_health(now.health.health_probe_bind_address, live=liveness.problem, ready=lambda: None)
        closing.callback(health.close)
        closing.callback(serve_metrics(now.metrics.bind_address).close)
        threading.Thread(target=settings.watch, args=(stop,), name="settings", daemon=True).start()
        yield


def run(client: Client, settings: SettingsFile, recorder: EventRecorder, stop: threading.Event) -> None:
    election = settings.current.leader_election
    features = features_of(client, settings, recorder)
    if not election.leader_elect:
        lead_all(features, lambda: None, stop)
        return
    lease = lease_of(client, election)
    lease.run(stop, partial(lead_all, features, lease.check))


def features_of(client: Client, settings: SettingsFile, recorder: EventRecorder) -> list[Lead]:
    """The enabled ones; to enable another takes a restart, which the chart sees to."""
    now = settings.current
    namespace = os.environ.get("POD_NAMESPACE") or now.leader_election.resource_namespace
    features: list[Lead] = []
    if now.certs.mode == "self-managed":
        features.append(
            partial(certificates.lead, client, lambda: settings.current.certs, namespace, recorder)
        )
    if now.ip_reservation.enabled:
        features.append(
            partial(ip_reservation.lead, client, lambda: settings.current.ip_reservation, recorder)
        )
    if now.anycast_ip.enabled:
        features.append(
            partial(
                anycast_ip.lead,
                client,
                lambda: settings.current.anycast_ip,
                lambda: settings.current.cloud,
                namespace,
                recorder,
            )
        )
    if now.elasticity.enabled or now.elasticity.open_gates:
        features.append(partial(elasticity.lead, client, lambda: settings.current.elasticity, recorder))
    if now.ingress_daemonset.enabled:
        features.append(
            partial(ingress_daemonset.lead, client, lambda: settings.current.ingress_daemonset, recorder)
        )
    return features


def lead_all(
    features: list[Lead],
    check: Callable[[], None],
    stop: threading.Event,
    *,
    within: float = STOP_WITHIN,
) -> None:
    """Each feature in a thread of its own until *stop*; when one breaks all end, and its error is raised.

    StillWorking when one does not end *within* so many seconds: nothing must follow then but the end of the process.
    Daemon threads: one that hangs must not keep a process that has lost its leadership.
    """
    failures: SimpleQueue[BaseException] = SimpleQueue()
    threads = [
        threading.Thread(
            target=_lead, args=(feature, check, stop, failures), name=f"leader-{_name(feature)}", daemon=True
        )
        for feature in features
    ]
    for thread in threads:
        thread.start()
    stop.wait()
    hanging = _join(threads, within)
    error = None if failures.empty() else failures.get()
    if hanging:
        raise StillWorking(f"not ended within {within:g} s: {', '.join(hanging)}") from error
    if error:
        raise error


def _name(feature: Lead) -> str:
    function = getattr(feature, "func", feature)
    return str(getattr(function, "__module__", type(feature).__name__)).removeprefix("controllers.")


def _join(threads: Sequence[threading.Thread], within: float) -> list[str]:
    """The names of those that did not end."""
    deadline = time.monotonic() + within
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [thread.name for thread in threads if thread.is_alive()]


def _lead(
    feature: Lead,
    check: Callable[[], None],
    stop: threading.Event,
    failures: SimpleQueue[BaseException],
) -> None:
    try:
        feature(stop, check)
    except BaseException as error:
        failures.put(error)
    finally:
        stop.set()


def lease_of(client: Client, election: LeaderElection) -> LeaderElector:
    # A restarted container has the pod's name, too; it must not take itself for its predecessor.
    identity = f"{os.environ.get('POD_NAME', 'controllers')}_{secrets.token_hex(4)}"
    times = Times(election.lease_duration, election.renew_deadline, election.retry_period)
    return LeaderElector(client, election.resource_name, election.resource_namespace, identity, times=times)


def follow(_old: Settings, new: Settings) -> None:
    logs.set_level(new.logging.level)


def tell_refusal(recorder: EventRecorder, error: SettingsError) -> None:
    recorder.event(
        Regarding.pod(*(os.environ.get(name, "") for name in ("POD_NAMESPACE", "POD_NAME", "POD_UID"))),
        "ConfigurationRefused",
        f"The last good configuration stays: {error}",
        type="Warning",
    )


if __name__ == "__main__":
    sys.exit(main())
