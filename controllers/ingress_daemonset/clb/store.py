"""Remember former weights in a ConfigMap per load balancer, in the namespace of Drawbridge.

Only the controllers write there. On an object of a user, what is remembered could be forged, and a foreign load
balancer would get the weights that the user chooses.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
import structlog

from api.ingress_daemonset import WEIGHTS_OF
from controllers.ingress_daemonset.clb.planner import Memory, Remembered
from kube.client import Client
from kube.errors import AlreadyExists, Conflict, NotFound
from kube.resources import CONFIG_MAPS
from kube.types import ConfigMap, ObjectMeta

KEY = "weights.json"
PREFIX = "drawbridge-weights-"
CALL_TIMEOUT = 4.0
"""Seconds; less than the time from the end of our leadership to the beginning of the next."""
DECODER = msgspec.json.Decoder(dict[str, Remembered])

log = structlog.stdlib.get_logger(__name__)


class Unreadable(Exception):
    """The former weights at one load balancer are not known."""


class WeightStore:
    """Safe to share between threads, one for each load balancer.

    What is remembered is read once, and no other process writes it from then on: Conflict or AlreadyExists when one
    has, and what is there is read again.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._stored: dict[str, ObjectMeta] = {}
        self._memory: dict[str, Memory] = {}
        self._unreadable: dict[str, Unreadable] = {}

    @property
    def load_balancers(self) -> list[str]:
        """Those of which weights are remembered."""
        return [*(each for each, memory in list(self._memory.items()) if memory), *list(self._unreadable)]

    def load(self) -> None:
        """Read all. KubeError."""
        found = self._client.list(CONFIG_MAPS, self._namespace, type=ConfigMap, label_selector=WEIGHTS_OF)
        for each in found.items:
            self._enter(each.metadata.labels[WEIGHTS_OF], each)

    def memory(self, load_balancer: str) -> Memory:
        """Unreadable, KubeError: what could not be read is read again."""
        if load_balancer in self._unreadable:
            self._read(load_balancer)
        if load_balancer in self._unreadable:
            raise self._unreadable[load_balancer]
        return self._memory.get(load_balancer, {})

    def put(self, load_balancer: str, memory: Memory) -> None:
        """Durable when it returns. KubeError."""
        try:
            if memory:
                self._enter(load_balancer, self._written(load_balancer, memory))
            else:
                self._delete(load_balancer)
        except (AlreadyExists, Conflict):
            self._read(load_balancer)
            raise

    def _written(self, load_balancer: str, memory: Memory) -> ConfigMap:
        version = self._version(load_balancer)
        body = _body(load_balancer, memory, version)
        if not version:
            return self._client.create(
                CONFIG_MAPS, body, self._namespace, type=ConfigMap, timeout=CALL_TIMEOUT
            )
        try:
            return self._client.replace(
                CONFIG_MAPS, _name(load_balancer), body, self._namespace, type=ConfigMap, timeout=CALL_TIMEOUT
            )
        except NotFound:
            log.warning("remembered weights were deleted by another client", load_balancer=load_balancer)
            self._stored.pop(load_balancer, None)
            raise

    def _delete(self, load_balancer: str) -> None:
        preconditions = {"resourceVersion": self._version(load_balancer)}
        with suppress(NotFound):
            self._client.delete(
                CONFIG_MAPS,
                _name(load_balancer),
                self._namespace,
                preconditions=preconditions,
                timeout=CALL_TIMEOUT,
            )
        self._forget(load_balancer)

    def _read(self, load_balancer: str) -> None:
        """An answer was lost, or another leader wrote."""
        selector = f"{WEIGHTS_OF}={load_balancer}"
        found = self._client.list(
            CONFIG_MAPS, self._namespace, type=ConfigMap, label_selector=selector, timeout=CALL_TIMEOUT
        )
        self._forget(load_balancer)
        for each in found.items:
            self._enter(load_balancer, each)

    def _version(self, load_balancer: str) -> str:
        stored = self._stored.get(load_balancer)
        return stored.resource_version if stored else ""

    def _enter(self, load_balancer: str, found: ConfigMap) -> None:
        try:
            memory = DECODER.decode(found.data.get(KEY, "{}"))
        except msgspec.MsgspecError as error:
            self._unreadable[load_balancer] = Unreadable(
                f"ConfigMap {found.metadata.name} is unreadable, and with it the former weights at {load_balancer}:"
                f" {error}; correct it, or set the weights yourself and delete it"
            )
        else:
            self._stored[load_balancer], self._memory[load_balancer] = found.metadata, memory

    def _forget(self, load_balancer: str) -> None:
        for known in (self._stored, self._memory, self._unreadable):
            known.pop(load_balancer, None)


def _name(load_balancer: str) -> str:
    return f"{PREFIX}{load_balancer}"


def _body(load_balancer: str, memory: Memory, version: str) -> dict[str, object]:
    metadata = {"name": _name(load_balancer), "labels": {WEIGHTS_OF: load_balancer}}
    guard = {"resourceVersion": version} if version else {}
    text = msgspec.json.encode(memory, order="deterministic").decode()
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata | guard, "data": {KEY: text}}
