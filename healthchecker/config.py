"""The Deployment that a health checker watches, and how long it may answer without news of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from api import health_checks as names
from api.health_checks import DEFAULT_BOUND, LONGEST_BOUND, SHORTEST_BOUND, deployment_name
from api.ingress_daemonset import TO_BE_UPDATED

Port = Annotated[int, Meta(ge=1, le=65535)]
LISTS = {names.CONNECTION_PORTS: ",", names.CONNECTION_METRIC: " "}
"""What separates their parts."""


class ConfigError(Exception):
    """An environment variable that is missing or cannot be used."""


class Endpoint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A metric of the node's pods, in the text format of Prometheus."""

    port: Port
    path: str
    metric: str


class Config(msgspec.Struct, frozen=True):
    """*annotation* is a key, with any value.

    Connections are counted at the *counted* ports, or are what *endpoint* says; with neither, they are not.

    After *bound* seconds without the API server the checker fails its health checks, or keeps its answer.
    """

    namespace: str = msgspec.field(name=names.NAMESPACE)
    node: str = msgspec.field(name=names.NODE)
    ingress_daemonset: str = msgspec.field(name=names.INGRESS_DAEMONSET)
    port: Port = msgspec.field(name=names.PORT)
    annotation: str = msgspec.field(name=names.ANNOTATION, default=TO_BE_UPDATED)
    bound: Annotated[int, Meta(ge=SHORTEST_BOUND, le=LONGEST_BOUND)] = msgspec.field(
        name=names.BOUND, default=DEFAULT_BOUND
    )
    on_outage: Literal["keep", "fail"] = msgspec.field(name=names.ON_OUTAGE, default=names.KEEP)
    counted: tuple[Port, ...] = msgspec.field(name=names.CONNECTION_PORTS, default=())
    endpoint: Endpoint | None = msgspec.field(name=names.CONNECTION_METRIC, default=None)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Config:
        """What is empty is as if it were not set. ConfigError."""
        given = {name: text for name, text in environ.items() if text}
        lists = {name: given[name].split(separator) for name, separator in LISTS.items() if name in given}
        try:
            return msgspec.convert(given | lists, cls, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigError(
                f"{error}, a variable that the DaemonSets of an IngressDaemonSet set"
            ) from error

    @property
    def deployment(self) -> str:
        return deployment_name(self.ingress_daemonset, self.node)

    @property
    def field_selector(self) -> str:
        return f"metadata.name={self.deployment}"
