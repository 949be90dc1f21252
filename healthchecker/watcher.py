"""Watch one Deployment: each change is seen at once, and a silent server within the bound.

A watch ends after a third to half of the bound, and is opened again on the same connection: a watch without events
proves nothing before its proper end. After any failure the Deployment is read again.
"""

from __future__ import annotations

import msgspec
import structlog

from healthchecker.checker import Checker, Deployment
from healthchecker.config import Config
from kube.client import Client
from kube.errors import Backoff, KubeError, Unreachable, event_error
from kube.informer import Event, Identified
from kube.resources import DEPLOYMENTS, Selection
from runtime import random, threading

PAUSES = Backoff(base=0.5, cap=4.0, jitter=1.0)
SHORT = 0.5
"""Seconds; a watch that ends sooner is a failure: a server may accept watches and close them at once."""

log = structlog.get_logger(__name__)


def follow(
    client: Client, config: Config, checker: Checker, stop: threading.Event, *, pauses: Backoff = PAUSES
) -> None:
    """Keep *checker* up to date until *stop*; raises nothing."""
    failures = 0
    while not stop.is_set():
        try:
            version = look(client, config, checker)
            while not stop.is_set():
                version = watch(client, config, checker, version)
                failures = 0
        except Exception as error:
            failures += 1
            checker.failed(error)
            pause = pauses.delay(failures)
            log.warning(
                "watch failed", error=str(error), pause=pause, exc_info=not isinstance(error, KubeError)
            )
            stop.wait(pause)


def look(client: Client, config: Config, checker: Checker) -> str:
    """See the Deployment as it is; the version to watch from."""
    began = checker.clock()
    listed = client.list(
        DEPLOYMENTS,
        config.namespace,
        type=Deployment,
        field_selector=config.field_selector,
        timeout=config.bound / 6,
    )
    checker.see(next((each for each in listed.items if each.metadata.name == config.deployment), None), began)
    return listed.resource_version


def watch(client: Client, config: Config, checker: Checker, version: str) -> str:
    """See what happens after *version*, for a while; the version to watch from next."""
    began = checker.clock()
    duration = random.randint(config.bound // 3, config.bound // 2)
    with client.watch(
        DEPLOYMENTS,
        Selection(config.namespace, field_selector=config.field_selector),
        resource_version=version,
        duration=duration,
        read_timeout=duration + config.bound / 6,
    ) as stream:
        for line in stream:
            version = _see(line, config, checker)
    ended = checker.clock()
    if ended - began < SHORT:
        raise Unreachable(f"a watch of Deployment {config.deployment} was over at once")
    checker.nothing_new(ended)
    return version


def _see(line: bytes, config: Config, checker: Checker) -> str:
    try:
        event = msgspec.json.decode(line, type=Event)
        if event.type == "ERROR":
            raise event_error(bytes(event.object))
        if event.type != "BOOKMARK":
            deployment = msgspec.json.decode(event.object, type=Deployment)
            if deployment.metadata.name == config.deployment:
                checker.see(None if event.type == "DELETED" else deployment, checker.clock())
        return msgspec.json.decode(event.object, type=Identified).metadata.resource_version
    except msgspec.MsgspecError as error:
        raise Unreachable(f"an event of Deployment {config.deployment} cannot be read: {error}") from error
