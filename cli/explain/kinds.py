"""`drawbridge explain`: the kinds of objects that it explains, and what is read for each. Nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pkgutil import resolve_name
from typing import Any

import click
import msgspec

from api.ingress_daemonset import INGRESS_DAEMONSETS
from api.ingress_daemonset.template import readable
from api.ingress_daemonset.types import IngressDaemonSet
from cli.explain.prediction import BUDGETS, Budget, Make, Snapshot
from cli.installation import webhooks_in
from cli.inventory import SECONDS, Inventory
from cli.output import Document, Report, Table, age
from cli.session import Command, Commands, Session, log_no_decisions, object_name, pass_session
from features import FEATURES, Feature
from kube.errors import Forbidden, NotFound
from kube.resources import EVENTS, NAMESPACES, Selection
from kube.types import ObjectMeta, Value
from runtime import time
from webhook.replica import Replica

Raw = dict[str, Any]
MOST = 20
"""Events that are shown."""


@dataclass(frozen=True)
class Kind:
    """Of objects: *about* says what is explained of one, by its namespace and name; KubeError, Failure."""

    about: str
    explain: Callable[[Inventory, str, str], Report]
    namespaced: bool = True
    argument: str = "NAME"


def kind_of(name: str) -> Kind | None:
    """Of the feature that explains it."""
    found = next((row.explains[name] for row in FEATURES if name in row.explains), None)
    kind: Kind | None = resolve_name(found) if found else None
    return kind


class Kinds(Commands):
    def list_commands(self, _context: click.Context) -> list[str]:
        return sorted(name for row in FEATURES for name in row.explains)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        kind = kind_of(name)
        if kind is None:
            return None

        @click.command(name, cls=Command, help=kind.about)
        @click.argument("name", metavar=kind.argument, type=object_name)
        @pass_session
        def show(session: Session, name: str) -> None:
            session.show(kind.explain(Inventory(session.cluster), session.namespace, name))

        return show


@click.group(cls=Kinds)
def explain() -> None:
    """Explain why an object is treated as it is, and what would happen to it now. Nothing is written."""
    log_no_decisions()


def snapshot_of(inventory: Inventory, pods: Iterable[Raw] = (), namespaces: Iterable[str] = ()) -> Snapshot:
    """What the webhooks decide by, about *pods* and in these *namespaces*, and those of the pods."""
    by_key = {f"{each['metadata']['namespace']}/{each['metadata']['name']}": each for each in pods}
    names = sorted({*namespaces, *(key.partition("/")[0] for key in by_key)})
    raws = {name: inventory.get(NAMESPACES, name, None, Raw) for name in names}
    found = [each for name in names for each in ingress_daemonsets_of(inventory, name)]
    settings, policies = inventory.settings, inventory.policies
    webhooks = [*(each.as_webhook for each in policies), *webhooks_in(inventory.configurations)]
    replica = Replica(inventory.client, lambda: settings, "explain", inventory.now)
    makers = tuple(_maker(row, inventory, replica) for row in FEATURES)
    return Snapshot(settings, webhooks, inventory.now(), by_key, raws, found, makers=makers)


def _maker(row: Feature, inventory: Inventory, replica: Replica) -> Make:
    """Of webhooks whose reviews write nothing."""
    if row.predicted:
        made: Make = resolve_name(row.predicted)(inventory)
        return made
    webhooks = replica.webhooks([row])
    return lambda *_: webhooks


def ingress_daemonsets_of(inventory: Inventory, namespace: str | None) -> Sequence[IngressDaemonSet]:
    """Those that the controllers can read; none where the CRD is not installed."""
    try:
        stored = inventory.list(INGRESS_DAEMONSETS, Raw, Selection(namespace))
    except NotFound:
        return ()
    found = []
    for raw in stored:
        with suppress(msgspec.ValidationError):
            found.append(readable(raw))
    return found


def budgets_of(inventory: Inventory, namespace: str) -> Sequence[Budget] | None:
    """None where they may not be read."""
    try:
        return inventory.list(BUDGETS, Budget, Selection(namespace))
    except Forbidden:
        return None


class Series(Value, frozen=True):
    last_observed_time: datetime | None = None


class Event(Document, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    reason: str = ""
    message: str = ""
    reporting_component: str = ""
    event_time: datetime | None = None
    last_timestamp: datetime | None = None
    series: Series | None = None

    @property
    def at(self) -> datetime | None:
        in_series = self.series.last_observed_time if self.series else None
        return in_series or self.last_timestamp or self.event_time or self.metadata.creation_timestamp

    @property
    def content(self) -> Any:
        about = {"type": self.type, "reason": self.reason, "source": self.reporting_component}
        return {"at": self.at} | about | {"message": self.message}


def events_of(inventory: Inventory, namespace: str | None, **fields: str) -> Sequence[Event]:
    """With these *fields*, for example of the object that they are about."""
    selector = ",".join(f"{name}={value}" for name, value in fields.items())
    return inventory.list(EVENTS, Event, Selection(namespace, field_selector=selector))


def events_about(inventory: Inventory, kind: str, namespace: str | None, name: str) -> Sequence[Event]:
    return events_of(inventory, namespace, **{"involvedObject.kind": kind, "involvedObject.name": name})


def deadline() -> float:
    return time.monotonic() + SECONDS


def latest(found: Sequence[Event]) -> tuple[Event, ...]:
    """Those that are shown."""
    never = datetime.min.replace(tzinfo=UTC)
    return tuple(sorted(found, key=lambda each: each.at or never, reverse=True)[:MOST])


def event_table(rows: Sequence[Event], now: datetime) -> Table:
    return Table(
        ("EVENT", "TYPE", "REASON", "MESSAGE"),
        [(age(each.at, now), each.type, each.reason, " ".join(each.message.split())) for each in rows],
        empty="No Events.",
    )
