"""The status as people see it: what is wrong first, then one line for each part."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rich.text import Text

from cli.output import Cell, Part, Table, age, bad, duration, faint, good, title, warning
from cli.status.problems import STOPPED
from cli.status.types import Elasticity, IPReservation, Leader, Rollout, Status

DONE = ("Complete", "Unknown")


def parts_of(status: Status, now: datetime) -> Iterator[Part]:
    yield _heading(status)
    for problem in status.problems:
        yield Text.assemble(bad("  ! "), problem.what)
        yield faint(f"    {problem.way_out}")
    yield ""
    yield _programs(status, now)
    yield ""
    yield _webhooks(status, now)
    yield ""
    yield Table(("FEATURE", "STATE"), list(_features(status, now)))
    yield from _rollouts(status)
    yield from _releases(status, now)


def _heading(status: Status) -> Text:
    name = title(f"Drawbridge {status.version} in namespace {status.namespace}: ")
    count = len(status.problems)
    return name + (bad(f"{count} problem{'s' if count > 1 else ''}") if count else good("nothing is wrong"))


def _programs(status: Status, now: datetime) -> Table:
    rows: list[list[Cell]] = []
    for each in status.programs:
        ready = f"{each.ready}/{each.wanted}"
        leader = _leader(status.leader, now) if each.name == "controllers" else Text()
        rows.append([each.name, (good if each.ready >= each.wanted else bad)(ready), each.version, leader])
    return Table(("PROGRAM", "READY", "VERSION", "LEADER"), rows)


def _leader(leader: Leader | None, now: datetime) -> Text:
    if leader is None:
        return faint("not readable")
    if not leader.holder:
        return bad("none")
    renewed = f", renewed {age(leader.renewed, now)} ago" if leader.renewed else ""
    return Text(leader.holder + renewed)


def _webhooks(status: Status, now: datetime) -> Table:
    rows: list[list[Cell]] = [
        [
            f"{each.kind} {each.name}",
            str(len(each.webhooks)),
            ", ".join(each.failure_policies),
            _expiry(each.ca_expires, now),
            _expiry(status.certificate_expires, now),
            ", ".join(each.webhooks),
        ]
        for each in status.webhook_configurations
    ]
    columns = (
        "WEBHOOK CONFIGURATION",
        "WEBHOOKS",
        "ON FAILURE",
        "CA EXPIRES",
        "CERTIFICATE EXPIRES",
        "NAMES",
    )
    return Table(columns, rows, wide=1)


def _expiry(ends: datetime | None, now: datetime) -> Text:
    if ends is None:
        return faint("unknown")
    return (
        good(f"in {duration((ends - now).total_seconds())}") if ends > now else bad(f"{age(ends, now)} ago")
    )


def _features(status: Status, now: datetime) -> Iterator[tuple[Cell, Cell]]:
    features = status.settings.features
    yield "IP reservation", _state(features["ipReservation"], _reserved(status.ip_reservation, now))
    yield "anycast IP", _state(features["anycastIP"], _anycast(status))
    yield "elasticity", _state(features["elasticity"], _placed(status.elasticity))
    yield "IngressDaemonSets", _state(features["ingressDaemonSet"], _rolling(status.ingress_daemon_sets))


def _state(enabled: bool, text: Cell | None) -> Cell:
    if not enabled:
        return faint("off")
    return faint("not readable") if text is None else text


def _reserved(found: IPReservation | None, now: datetime) -> Cell | None:
    if found is None:
        return None
    if not found.addresses:
        return "no IP is reserved"
    reasons = ", ".join(f"{count} {reason}" for reason, count in found.by_reason.items())
    counted = f"{found.addresses - found.not_ended} of {found.limit} count"
    text = (
        f"{found.addresses} reserved ({reasons}); {counted}, {found.not_ended} of pods without a stored end"
    )
    if found.next_releases:
        text += f"; next release {_until(found.next_releases[0].expires_at, now)}"
    return text


def _until(at: datetime, now: datetime) -> str:
    return f"in {duration((at - now).total_seconds())}" if at > now else "now"


def _anycast(status: Status) -> Cell | None:
    found = status.anycast_ip
    if found is None:
        return None
    if not found.nodes:
        return "no node needs an address"
    text = Text(f"{found.open} of {found.nodes} nodes open")
    if found.tainted:
        names = ", ".join(found.tainted[:3]) + (", ..." if len(found.tainted) > 3 else "")
        text += warning(f"; {len(found.tainted)} tainted: {names}")
    return text


def _placed(found: Elasticity | None) -> Cell | None:
    if found is None:
        return None
    text = f"{found.local} pods on local nodes, {found.on_super_nodes} on super nodes ({found.super_nodes})"
    return Text(text) + (warning(f"; {found.gated} gated") if found.gated else Text("; none gated"))


def _rolling(found: tuple[Rollout, ...] | None) -> Cell | None:
    if found is None:
        return None
    moving = sum(each.state not in DONE for each in found)
    return f"{len(found)}, {moving} of them with a rollout in progress" if found else "none"


def _rollouts(status: Status) -> Iterator[Part]:
    moving = [each for each in status.ingress_daemon_sets or () if each.state not in DONE]
    if moving:
        yield ""
        yield Table(
            ("ROLLOUT", "STATE", "UPDATED", "DETACHED", "MESSAGE"),
            [
                (
                    f"{each.namespace}/{each.name}",
                    bad(each.state) if each.state in STOPPED else warning(each.state),
                    f"{each.updated_nodes}/{each.desired_nodes}",
                    str(each.detached_nodes),
                    each.message,
                )
                for each in moving
            ],
        )


def _releases(status: Status, now: datetime) -> Iterator[Part]:
    releases = status.ip_reservation.next_releases if status.ip_reservation else ()
    if releases:
        yield ""
        yield Table(
            ("NEXT RELEASES", "IN", "POD", "REASON"),
            [
                (
                    each.address,
                    _until(each.expires_at, now).removeprefix("in "),
                    f"{each.namespace}/{each.pod}",
                    each.reason,
                )
                for each in releases
            ],
        )
