"""Which IPs a drain or a deletion would reserve, and why not the others: by the webhooks' own decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from api.ip_reservation import PATH as RESERVES
from cli.explain import requests
from cli.explain.answers import UNREGISTERED, why_not_reserved
from cli.explain.foresight import Foresight, foresee
from cli.explain.reservations import ip_of
from cli.explain.snapshot import Snapshot
from cli.explain.webhook_configurations import ApiRequest
from cli.output import Document, Part, Table, bad, title, warning
from cli.pools.headroom import Headroom, PoolFacts, headroom
from cli.pools.headroom import parts as of_pools
from cli.simulate.returning import Returning, kept_ips, returning
from cli.simulate.returning import parts as of_returning
from features import unregistered
from kube.types import MIRROR

Raw = Mapping[str, Any]
Foreseen = tuple[Raw, Foresight]


class ReservedIP(Document, frozen=True):
    ip: str
    pod: str
    node: str
    owner: str


class Unreserved(Document, frozen=True):
    """A pod that goes, and whose IPs are free at once."""

    pod: str
    ips: tuple[str, ...]
    why: str


class Kept(Document, frozen=True):
    """A pod that a drain leaves where it is."""

    pod: str
    why: str


class Denied(Document, frozen=True):
    """A pod that is not removed at the first attempt: a drain tries again."""

    pod: str
    message: str


class Removal(Document, frozen=True):
    """*counted* reservations are of pods that are gone, of at most *most*; *beyond* are released early after this.

    *problem* is why no IP is reserved though the feature is on; *unknown* says which conditions could not be evaluated:
    their webhooks are taken to be called.
    """

    what: str
    reserved: tuple[ReservedIP, ...]
    not_reserved: tuple[Unreserved, ...]
    kept: tuple[Kept, ...]
    denied: tuple[Denied, ...]
    unknown: tuple[str, ...]
    counted: int
    most: int
    pools: tuple[Headroom, ...] = ()
    pools_unknown: str = ""
    returning: tuple[Returning, ...] = ()
    problem: str = ""

    @property
    def beyond(self) -> int:
        return max(0, self.counted + len({each.ip for each in self.reserved}) - self.most)


def drain(node: str, pods: Iterable[Raw], snapshot: Snapshot, counted: int) -> Removal:
    """As `kubectl drain --ignore-daemonsets --delete-emptydir-data --force` goes through *pods*."""
    present = list(pods)
    kept = tuple(Kept(key_of(pod), why) for pod in present if (why := stays(pod)))
    going = [pod for pod in present if not stays(pod)]
    foreseen = _foreseen(going, snapshot, requests.eviction)
    found = _removal(f"Draining node {node}", foreseen, snapshot, (kept, counted))
    return replace(found, returning=returning(foreseen, snapshot))


def deletion(pods: Sequence[Raw], snapshot: Snapshot, counted: int) -> Removal:
    foreseen = _foreseen(pods, snapshot, requests.deletion)
    found = _removal(f"Deleting {', '.join(map(key_of, pods))}", foreseen, snapshot, ((), counted))
    return replace(found, returning=returning(foreseen, snapshot))


def removal_of(what: str, pods: Sequence[Raw], snapshot: Snapshot, counted: int) -> Removal:
    """By deletions, each in a request, of pods that do not come back."""
    return _removal(what, _foreseen(pods, snapshot, requests.deletion), snapshot, ((), counted))


def with_pools(found: Removal, facts: PoolFacts) -> Removal:
    kept = kept_ips(found.returning)
    pools = headroom(facts, (each.ip for each in found.reserved if each.ip not in kept))
    return replace(found, pools=pools, pools_unknown=facts.unknown)


def stays(pod: Raw) -> str:
    """Why a drain leaves *pod* alone; nothing when it evicts it."""
    metadata = pod["metadata"]
    if MIRROR in (metadata.get("annotations") or {}):
        return "mirror of a static pod"
    owners = metadata.get("ownerReferences") or ()
    of_daemon_set = any(each.get("controller") and each.get("kind") == "DaemonSet" for each in owners)
    is_finished = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return "pod of a DaemonSet" if of_daemon_set and not is_finished else ""


def parts(found: Removal) -> Iterator[Part]:
    going = len({each.pod for each in found.reserved}) + len(found.not_reserved)
    yield title(f"{found.what}: {_count(len(found.reserved), 'IP')} reserved, {_count(going, 'pod')} removed")
    if found.problem:
        yield bad(f"{found.problem}: see drawbridge status.")
    if found.beyond:
        yield warning(
            f"With the {found.counted} that are reserved, this is {found.beyond} over ipReserveMaxCount"
            f" ({found.most}): the oldest are released first."
        )
    for each in found.unknown:
        yield warning(f"Taken to be called, as it is not known: {each}")
    yield Table(
        ("RESERVED", "POD", "NODE", "OWNER"),
        [(each.ip, each.pod, each.node, each.owner) for each in found.reserved],
        empty="No IP is reserved.",
        wide=2,
    )
    if found.not_reserved:
        rows = [(each.pod, " ".join(each.ips), each.why) for each in found.not_reserved]
        yield Table(("NOT RESERVED", "IP", "WHY"), rows)
    yield from of_returning(found.returning)
    if found.denied:
        yield Table(("DENIED AT FIRST", "WHY"), [(each.pod, each.message) for each in found.denied])
    if found.kept:
        yield Table(("STAYS", "WHY"), [(each.pod, each.why) for each in found.kept])
    yield from of_pools(found.pools, found.pools_unknown)


def key_of(pod: Raw) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _removal(
    what: str,
    foreseen: Sequence[Foreseen],
    snapshot: Snapshot,
    rest: tuple[tuple[Kept, ...], int],
) -> Removal:
    kept, counted = rest
    return Removal(
        what=what,
        reserved=tuple(each for pod, ahead in foreseen for each in _reserved(pod, ahead)),
        not_reserved=tuple(_unreserved(pod, ahead) for pod, ahead in foreseen if not ahead.records),
        kept=kept,
        denied=tuple(
            Denied(key_of(pod), " ".join(ahead.denials)) for pod, ahead in foreseen if ahead.denials
        ),
        unknown=tuple(dict.fromkeys(each for _, ahead in foreseen for each in ahead.unknown)),
        counted=counted,
        most=snapshot.settings.ip_reservation.ip_reserve_max_count,
        problem=_problem(snapshot),
    )


def _problem(snapshot: Snapshot) -> str:
    registered = [each.path for each in snapshot.webhooks]
    return UNREGISTERED if RESERVES in unregistered(snapshot.settings, registered) else ""


def _foreseen(
    pods: Iterable[Raw], snapshot: Snapshot, request: Callable[[Raw], ApiRequest]
) -> Sequence[Foreseen]:
    return [(pod, foresee(request(pod), snapshot)) for pod in sorted(pods, key=key_of)]


def _reserved(pod: Raw, ahead: Foresight) -> Iterator[ReservedIP]:
    for record in ahead.records:
        yield ReservedIP(ip_of(record.cidr), key_of(pod), record.node, record.owner)


def _unreserved(pod: Raw, ahead: Foresight) -> Unreserved:
    ips = tuple(each["ip"] for each in pod.get("status", {}).get("podIPs", ()))
    return Unreserved(key_of(pod), ips, why_not_reserved(ahead))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
