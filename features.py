"""The features, a row each: the webhook server, the controllers and the command do what these rows say.

A row names its code as an entry point does, ``module:function``, which is imported when it is needed: a process loads
nothing of another one, and nothing of a feature that is off. A feature that is deleted with its row is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kube.client import Client
    from settings import Settings
    from telemetry.server import Server

Current = Callable[[], "Settings"]
"""The settings of the moment."""


@dataclass(frozen=True)
class Feature:
    """*runs* says whether its controllers have work; *paths* which webhooks the API server must call."""

    name: str
    runs: Callable[[Settings], bool]
    controllers: str
    """``run(context, settings)``: works until the context stops."""
    paths: Mapping[str, Callable[[Settings], bool]] = field(default_factory=dict)
    webhooks: str = ""
    """``webhooks(replica)``: its webhooks, also while it is off, because the chart may enable it meanwhile.

    If their reviews write nothing, and go by one look, `explain` and `simulate` ask them, too, by a deadline that never
    comes: else those that *predicted* makes.
    """
    endpoint: str = ""
    """``serve(client, settings)``: what each replica of the controllers serves, also while another one leads."""

    commands: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Of `drawbridge`: by name, ``module:command`` and the first sentence of its help, which is shown without it."""
    health: str = ""
    """``module:HEALTH``: what `status` and `doctor` say of it."""
    predicted: str = ""
    """``predicted(inventory)``: makes webhooks that read a snapshot, and write to a ledger of it."""
    explains: Mapping[str, str] = field(default_factory=dict)
    """The kinds of objects of which `explain` says why: ``module:KIND``."""
    simulates: Mapping[str, str] = field(default_factory=dict)
    """Sub-commands of `simulate`."""

    pages: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Of the dashboard: by path, ``module:read``, which is given an inventory, and the title."""

    effects: str = ""
    """``effects(inventory, change)``: on which objects a change of values has one, for `simulate values`."""
    releases: str = ""
    """``releases(inventory, change)``: the IPs that its leader releases after it."""

    def serve(self, client: Client, settings: Current) -> Server | None:
        """None when there is nothing to serve; CannotListen."""
        server: Server | None = resolve_name(self.endpoint)(client, settings) if self.endpoint else None
        return server


FEATURES = (
    Feature(
        "ip_reservation",
        runs=lambda settings: settings.ip_reservation.enabled,
        controllers="controllers.ip_reservation.controller:run",
        paths={
            "api.ip_reservation:PATH": lambda now: now.ip_reservation.enabled,
            "api.ip_reservation:SAME_ADDRESS_PATH": lambda now: (
                now.ip_reservation.enabled and now.ip_reservation.same_address.enabled
            ),
        },
        webhooks="webhook.ip_reservation.reads:webhooks",
        commands={
            "reservations": (
                "cli.ip_reservation.reservations:reservations",
                "List, release and hold reserved IPs.",
            )
        },
        pages={"reservations": ("dashboard.reservations:read", "IP reservation")},
        health="cli.ip_reservation.health:HEALTH",
        predicted="cli.ip_reservation.explanation:predicted",
        explains={"pod": "cli.ip_reservation.explanation:POD", "ip": "cli.ip_reservation.explanation:IP"},
        simulates={
            "drain": "cli.ip_reservation.removal:drain_command",
            "delete": "cli.ip_reservation.removal:delete_command",
        },
        effects="cli.ip_reservation.removal:effects",
        releases="cli.ip_reservation.removal:released",
    ),
    Feature(
        "anycast_ip",
        runs=lambda settings: settings.anycast_ip.enabled,
        controllers="controllers.anycast_ip.controller:run",
        paths={"api.anycast_ip:PATH": lambda now: now.anycast_ip.enabled}
        | {
            f"api.anycast_ip:POD_ADDRESS{each}_PATH": lambda now: (
                now.anycast_ip.enabled and now.anycast_ip.pod_address.enabled
            )
            for each in ("", "_WAIT")
        },
        webhooks="webhook.anycast_ip.routes:webhooks",
        endpoint="controllers.anycast_ip.feed:serve",
        commands={
            "addresses": ("cli.anycast_ip.addresses:addresses", "List the anycast IPs of nodes."),
        },
        pages={"addresses": ("cli.anycast_ip.addresses:addresses_of", "Anycast IP")},
        health="cli.anycast_ip.health:HEALTH",
        explains={"node": "cli.anycast_ip.node:NODE"},
        simulates={"join": "cli.anycast_ip.join:join_command"},
        effects="cli.anycast_ip.join:effects",
    ),
    Feature(
        "elasticity",
        runs=lambda settings: settings.elasticity.enabled or settings.elasticity.open_gates,
        controllers="controllers.elasticity.controller:run",
        paths={
            "api.elasticity:PATH": lambda now: now.elasticity.enabled,
            "api.elasticity:DAEMON_SETS_PATH": lambda now: now.elasticity.enabled,
        },
        webhooks="webhook.elasticity.leader:webhooks",
        commands={
            "elasticity": (
                "cli.elasticity.placements:elasticity",
                "List where pods run and why, and return them to local nodes.",
            )
        },
        pages={"elasticity": ("dashboard.elasticity:read", "Elasticity")},
        health="cli.elasticity.health:HEALTH",
        predicted="cli.elasticity.prediction:predicted",
        simulates={"scale": "cli.elasticity.scale:scale_command"},
        effects="cli.elasticity.scale:effects",
    ),
    Feature(
        "ingress_daemonset",
        runs=lambda settings: settings.ingress_daemonset.enabled,
        controllers="controllers.ingress_daemonset.controller:run",
        paths={
            f"api.ingress_daemonset:{each}_PATH": lambda now: now.ingress_daemonset.enabled
            for each in ("DEFAULTS", "RULES", "EVICTIONS")
        },
        webhooks="webhook.ingress_daemonset.cluster_lookup:webhooks",
        commands={
            "rollout": (
                "cli.ingress_daemonset.command:rollout",
                "List, follow, pause, promote, abort and undo rollouts.",
            )
        },
        pages={"rollouts": ("dashboard.rollouts:read", "Rollouts")},
        health="cli.ingress_daemonset.health:HEALTH",
        predicted="cli.ingress_daemonset.explanation:predicted",
        explains={"ingressdaemonset": "cli.ingress_daemonset.explanation:INGRESS_DAEMONSET"},
        simulates={"rollout": "cli.ingress_daemonset.forecast:rollout_command"},
        effects="cli.ingress_daemonset.forecast:effects",
    ),
    Feature(
        "certificates",
        runs=lambda settings: settings.certs.mode == "self-managed",
        controllers="controllers.certificates.controller:run",
    ),
)


def preload() -> None:
    """Import the webhooks of all features, and make none."""
    for feature in FEATURES:
        if feature.webhooks:
            resolve_name(feature.webhooks)


def running(settings: Settings) -> list[Feature]:
    """Those whose controllers have work; one that begins to have some takes a restart, done by the chart."""
    return [feature for feature in FEATURES if feature.runs(settings)]


def controllers(current: Current) -> dict[str, Callable[[Any], None]]:
    """Of those that run, by name; the manager calls each with its Context.

    Imported now, so that a new leader begins at once.
    """
    return {
        feature.name: partial(resolve_name(feature.controllers), settings=current)
        for feature in running(current())
    }


def unregistered(settings: Settings, registered: Iterable[str]) -> list[str]:
    """Paths of the webhook servers that the enabled features need, and no webhook configuration has."""
    known, paths = {*registered}, [each for feature in FEATURES for each in feature.paths.items()]
    needed = [str(resolve_name(path)) for path, is_needed in paths if is_needed(settings)]
    return [path for path in needed if path not in known]
