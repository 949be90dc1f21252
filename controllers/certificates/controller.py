"""Wire the controller of the certificate: one worker and one key."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from certs.rotation import Rules
from controllers.certificates.reconciler import Reconciler
from controllers.certificates.store import Store
from controllers.manager import Context
from controllers.workqueue import WorkQueue
from kube.errors import Backoff
from settings import CertsSettings, Settings

PAUSES = Backoff(base=0.1, cap=15.0)
"""Failures are retried soon: a certificate ends at its time."""


def enabled(settings: Settings) -> bool:
    return settings.certs.mode == "self-managed"


def run(context: Context, settings: Callable[[], Settings]) -> None:
    """Work until the context stops."""
    now = settings().certs
    store = Store(context.client, context.namespace, now.secret_name, now.configuration_name, context.check)
    reconciler = Reconciler(store, lambda: rules(settings().certs, context.namespace), context.recorder)
    queue = WorkQueue("certificates", pauses=PAUSES)
    queue.add("certificate")
    with context.working(queue, reconciler.reconcile):
        context.stop.wait()


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
