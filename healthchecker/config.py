"""The Deployment that a health checker watches, and how long it may answer without news of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from api import health_checks as names
from api.health_checks import (
    DEFAULT_ANNOTATION,
    DEFAULT_BOUND,
    FAIL,
    KEEP,
    LONGEST_BOUND,
    SHORTEST_BOUND,
    deployment_name,
)


class ConfigError(Exception):
    """An environment variable that is missing or cannot be used."""


@dataclass(frozen=True)
class Endpoint:
    """A metric of the node's pods, in the text format of Prometheus."""

    port: int
    path: str
    metric: str


@dataclass(frozen=True)
class Config:
    """*annotation* is a key, with any value.

    Connections are counted at the *counted* ports, or are what *endpoint* says; with neither, they are not.

    After *bound* seconds without the API server the checker *fails* its health checks, or keeps its answer.
    """

    namespace: str
    node: str
    ingress_daemonset: str
    port: int
    annotation: str = DEFAULT_ANNOTATION
    bound: int = DEFAULT_BOUND
    fails: bool = False
    counted: tuple[int, ...] = ()
    endpoint: Endpoint | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Config:
        outage = environ.get(names.ON_OUTAGE) or KEEP
        if outage not in (KEEP, FAIL):
            raise ConfigError(f"{names.ON_OUTAGE} is {outage!r}; write {KEEP} or {FAIL}")
        return cls(
            namespace=_text(environ, names.NAMESPACE),
            node=_text(environ, names.NODE),
            ingress_daemonset=_text(environ, names.INGRESS_DAEMONSET),
            port=_number(_text(environ, names.PORT), names.PORT, 1, 65535),
            annotation=environ.get(names.ANNOTATION) or DEFAULT_ANNOTATION,
            bound=_number(
                environ.get(names.BOUND, str(DEFAULT_BOUND)), names.BOUND, SHORTEST_BOUND, LONGEST_BOUND
            ),
            fails=outage == FAIL,
            counted=_ports(environ.get(names.CONNECTION_PORTS, "")),
            endpoint=_endpoint(environ.get(names.CONNECTION_METRIC, "")),
        )

    @property
    def deployment(self) -> str:
        return deployment_name(self.ingress_daemonset, self.node)

    @property
    def field_selector(self) -> str:
        return f"metadata.name={self.deployment}"


def _text(environ: Mapping[str, str], name: str) -> str:
    if value := environ.get(name):
        return value
    raise ConfigError(f"{name} is not set; the health-check DaemonSets of an IngressDaemonSet set it")


def _ports(text: str) -> tuple[int, ...]:
    return tuple(_number(each, names.CONNECTION_PORTS, 1, 65535) for each in text.split(",") if each)


def _endpoint(text: str) -> Endpoint | None:
    if not text:
        return None
    port, *rest = text.split(" ")
    if len(rest) != 2:
        raise ConfigError(f"{names.CONNECTION_METRIC} is {text!r}; write a port, a path and a metric")
    return Endpoint(_number(port, names.CONNECTION_METRIC, 1, 65535), *rest)


def _number(text: str, name: str, least: int, most: int) -> int:
    if text.isdecimal() and text.isascii() and least <= int(text) <= most:
        return int(text)
    raise ConfigError(f"{name} is {text!r}; write a whole number from {least} to {most}")
