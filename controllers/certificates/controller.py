"""The certificate as the leader keeps it: one worker, which looks every few seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from certs.rotation import Rules
from controllers.certificates.reconciler import Keeper
from controllers.certificates.store import Site
from controllers.workqueue import WorkQueue, run_workers
from kube.backoff import Backoff
from kube.client import Client
from kube.event_recorder import EventRecorder
from settings import CertsSettings

PAUSES = Backoff(base=0.1, cap=15.0)
"""A certificate that cannot be kept is looked after again soon: it ends at its time."""


def lead(
    client: Client,
    settings: Callable[[], CertsSettings],
    namespace: str,
    recorder: EventRecorder,
    stop: threading.Event,
    check: Callable[[], None],
) -> None:
    """Work until *stop*; *check* raises LeadershipLost before a write that is not ours to make any more."""
    now = settings()
    site = Site(client, namespace, now.secret_name, now.configuration_name, check)
    keeper = Keeper(site, lambda: rules(settings(), namespace), recorder)
    queue = WorkQueue("certificates", pauses=PAUSES)
    workers = run_workers(queue, keeper.reconcile, name="certificates", check=check)
    queue.add("certificate")
    stop.wait()
    queue.shut_down()
    for worker in workers:
        worker.join()


def rules(settings: CertsSettings, namespace: str) -> Rules:
    """For the name by which API servers call a Service."""
    periods = settings.self_managed
    return Rules(
        f"{settings.service_name}.{namespace}.svc",
        ca_validity=timedelta(seconds=periods.ca_validity),
        leaf_validity=timedelta(seconds=periods.leaf_validity),
        renew_before=timedelta(seconds=periods.renew_before),
        overlap=timedelta(seconds=periods.overlap),
    )
