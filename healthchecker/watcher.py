"""Each change of the Deployment is seen at once, and a server that does not answer is noticed within the bound.

A watch ends after a third to half of the bound, and is opened anew on the same connection: a watch that brings
nothing proves nothing before its proper end. After any failure the Deployment is read again.
"""

from __future__ import annotations

import random
import threading

import msgspec
import structlog

from healthchecker.config import Task
from healthchecker.readiness import Deployment
from healthchecker.sight import Sight
from kube.backoff import Backoff
from kube.client import Client
from kube.errors import KubeError, Unreachable, event_error
from kube.resources import DEPLOYMENTS, Selection
from kube.watch_event import Event, Identified

PAUSES = Backoff(base=0.5, cap=4.0, jitter=1.0)
SHORT = 0.5
"""Seconds; a watch that ends sooner is a failure: a server may accept watches and close them at once."""

log = structlog.get_logger(__name__)


def follow(
    client: Client, task: Task, sight: Sight, stop: threading.Event, *, pauses: Backoff = PAUSES
) -> None:
    """Keep *sight* true until *stop*; nothing is raised."""
    failures = 0
    while not stop.is_set():
        try:
            version = look(client, task, sight)
            while not stop.is_set():
                version = watch(client, task, sight, version)
                failures = 0
        except Exception as error:
            failures += 1
            stop.wait(_after(error, sight, pauses, failures))


def look(client: Client, task: Task, sight: Sight) -> str:
    """See the Deployment as it is; the version to watch from."""
    began = sight.clock()
    listed = client.list(
        DEPLOYMENTS,
        task.namespace,
        type=Deployment,
        field_selector=_only(task),
        timeout=task.bound / 6,
    )
    sight.see(next((each for each in listed.items if _is_it(each, task)), None), began)
    return listed.resource_version


def watch(client: Client, task: Task, sight: Sight, version: str) -> str:
    """See what happens after *version*, for a while; the version to watch from next."""
    began = sight.clock()
    duration = random.randint(task.bound // 3, task.bound // 2)  # noqa: S311 - spreads load
    with client.watch(
        DEPLOYMENTS,
        Selection(task.namespace, field_selector=_only(task)),
        resource_version=version,
        duration=duration,
        read_timeout=duration + task.bound / 6,
    ) as stream:
        for line in stream:
            version = _see(line, task, sight)
    ended = sight.clock()
    if ended - began < SHORT:
        raise Unreachable(f"a watch of Deployment {task.deployment} was over at once")
    sight.nothing_new(ended)
    return version


def _see(line: bytes, task: Task, sight: Sight) -> str:
    """Take in an event; its version."""
    try:
        event = msgspec.json.decode(line, type=Event)
        if event.type == "ERROR":
            raise event_error(bytes(event.object))
        if event.type != "BOOKMARK":
            deployment = msgspec.json.decode(event.object, type=Deployment)
            if _is_it(deployment, task):
                sight.see(None if event.type == "DELETED" else deployment, sight.clock())
        return msgspec.json.decode(event.object, type=Identified).metadata.resource_version
    except msgspec.MsgspecError as error:
        raise Unreachable(f"an event of Deployment {task.deployment} cannot be read: {error}") from error


def _only(task: Task) -> str:
    return f"metadata.name={task.deployment}"


def _is_it(deployment: Deployment, task: Task) -> bool:
    return deployment.metadata.name == task.deployment


def _after(error: Exception, sight: Sight, pauses: Backoff, failures: int) -> float:
    """Note the failure; seconds to wait."""
    sight.failed(error)
    pause = pauses.delay(failures)
    bug = not isinstance(error, KubeError)
    log.warning("following was interrupted", error=str(error), pause=pause, exc_info=bug)
    return pause
