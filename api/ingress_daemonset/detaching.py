"""How nodes are detached from load balancers, as values with all defaults."""

from __future__ import annotations

from kube.types import Value


class Annotation(Value, frozen=True):
    """What is written to detach, and after how many seconds the load balancer sends nothing more."""

    key: str = ""
    value: str = ""
    grace_period_seconds: int = 0


class Timestamp(Value, frozen=True):
    """The annotation with the time of a Node's detachment, and how many seconds later it is safe."""

    key: str = ""
    format: str = "RFC3339"
    grace_period_seconds: int = 0


class Weights(Value, frozen=True):
    """Load balancers at which a node's backends get weight 0, and how many seconds later it gets nothing more."""

    load_balancers: tuple[str, ...] = ()
    grace_period_seconds: int = 0


class Endpoint(Value, frozen=True):
    """A metric of the pods on the node, in the text format of Prometheus."""

    port: int = 0
    path: str = "/metrics"
    metric: str = ""


class Connections(Value, frozen=True):
    """At most how many connections may be open before pods are replaced, and for how many seconds that is waited for.

    They are counted at *ports*, or are what *endpoint* says.
    """

    max: int = 0
    timeout_seconds: int = 300
    ports: tuple[int, ...] = ()
    endpoint: Endpoint | None = None
