"""IP reservation in `status` and `doctor`: what is reserved, and whether Calico can do it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial

from api.ip_reservation import FINISHED
from api.standing import STANDING
from calico.pools import COOLDOWN, POOLS, IPPool
from calico.reservations import NotServed, Reservations
from calico.segment import IPReservation as Segment
from cli.cluster import attempt
from cli.health import PAGE, Finding, Health, Overview, Problem, Verdict
from cli.installation import ADMISSION, CALICO, CONTROLLERS, WEBHOOK, Access, Needs, needs_of
from cli.inventory import SECONDS, Inventory
from cli.ip_reservation.pools import headroom
from cli.ip_reservation.reservations import (
    Unmanaged,
    by_address,
    due,
    release_at,
    segments_of,
    settings_of,
)
from cli.output import Cell, duration
from kube.errors import KubeError, ServerError
from settings import IPReservationSettings, Settings

LOW = 0.1
"""The share of a pool's addresses that should be free; the alert has the same."""
TRIAL_SECONDS = 5.0
COOLDOWN_CHECK = "Calico's cooldown"
COOLDOWN_PAGE = "docs/reference/ip-reservation.md#calicos-cooldown"
RETURNED_IP = "docs/reference/ip-reservation.md#check-that-a-returned-ip-is-reached"


class IPReservation(Overview, frozen=True):
    """Addresses that are reserved: *not_ended* ones count towards no limit; the others go at their time. Those of
    *finished* pods have their own limit, and are not in *by_reason*.

    Of the first the ends of pods are not stored: they run, and are reserved *ahead*, or are going.
    """

    addresses: int
    ahead: int
    not_ended: int
    finished: int
    limit: int
    finished_limit: int
    by_reason: dict[str, int]
    next_release: datetime | None

    @property
    def held(self) -> int:
        """Those that count towards *limit*."""
        return self.addresses - self.not_ended - self.finished

    def state(self, now: datetime) -> Cell:
        if not self.addresses:
            return "no IP is reserved"
        going = self.not_ended - self.ahead
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.by_reason.items())
        said = [f"{self.held}/{self.limit} held for gone pods" + (f" ({reasons})" if reasons else "")]
        said += [f"{self.finished}/{self.finished_limit} for finished ones"] if self.finished else []
        said += [f"{self.ahead} reserved ahead for running ones"] if self.ahead else []
        said += [f"{going} for pods that are going"] if going else []
        following = f"; next release {due(self.next_release, now)}" if self.next_release else ""
        return ", ".join(said) + following


def look(inventory: Inventory) -> tuple[IPReservation, Iterable[Problem]]:
    """KubeError; Failure without Calico."""
    segments, settings = segments_of(inventory), settings_of(inventory)
    records = [record for record, _ in by_address(segments).values()]
    others = Unmanaged(segments)
    releases = [at for each in records if (at := release_at(each, settings)) and not others.name(each.cidr)]
    held = [each.reason or "unknown" for each in records if each.ended and each.reason != FINISHED]
    overview = IPReservation(
        len(records),
        sum(each.ended is None and each.reason == STANDING for each in records),
        sum(each.ended is None for each in records),
        sum(each.reason == FINISHED for each in records),
        settings.max_count,
        settings.max_finished,
        dict(Counter(held).most_common()),
        min(releases, default=None),
    )
    return overview, _problems(inventory, segments, settings, len(held))


def _problems(
    inventory: Inventory, segments: Sequence[Segment], settings: IPReservationSettings, held: int
) -> Iterator[Problem]:
    for each in segments:
        if each.malformed:
            yield Problem(
                f"IPReservation {each.metadata.name} has an entry that Calico cannot read: {each.malformed[0]!r};"
                " Calico may assign no IP to any pod",
                "docs/how-to/break-glass.md#calico-gives-no-address-to-any-pod",
            )
    if held >= settings.max_count:
        yield Problem(
            f"{held} IPs are held for gone pods: beyond ipReservation.maxCount, the oldest are released early",
            "docs/how-to/runbooks/ip-reservation.md#drawbridgeipsreleasedearly",
        )
    pools, unknown = headroom(inventory, segments) if settings.pools.enabled else ((), "")
    if unknown:
        yield Problem(f"Calico's pools are not known: {unknown}", PAGE)
    for pool in pools:
        if pool.free < LOW * pool.addresses:
            yield Problem(
                f"pool {pool.pool} has {pool.free} of {pool.addresses} IPs free: {pool.assigned} are assigned,"
                f" {pool.reserved} reserved",
                "docs/how-to/runbooks/ip-reservation.md#drawbridgepoollow",
            )


def needs(settings: Settings) -> Needs:
    ours, segments = settings.ip_reservation, ("ipreservations", CALICO)
    configuration = ("validatingwebhookconfigurations", ADMISSION, "", settings.certs.configuration_name)
    yield from needs_of(WEBHOOK, "get", "pods")
    yield from needs_of(WEBHOOK, "get", "namespaces")
    yield from needs_of(WEBHOOK, "create", *segments)
    yield from needs_of(CONTROLLERS, "watch", "pods")
    yield from needs_of(CONTROLLERS, "watch", "namespaces")
    yield from needs_of(CONTROLLERS, "list watch create patch delete", *segments)
    yield from needs_of(CONTROLLERS, "get update", *configuration)
    if ours.workload_opt_in:
        yield from needs_of(CONTROLLERS, "patch", "pods")
        yield from needs_of(CONTROLLERS, "watch", "deployments", "apps")
        yield from needs_of(CONTROLLERS, "watch", "statefulsets", "apps")
    if ours.same_address.enabled:
        yield from needs_of(WEBHOOK, "list", *segments)
        yield from needs_of(WEBHOOK, "list", "ippools", CALICO)
        yield from needs_of(CONTROLLERS, "patch", "pods")
    if ours.standing.enabled:
        yield from needs_of(WEBHOOK, "get", *configuration)
        yield from needs_of(CONTROLLERS, "patch", "pods")
    if ours.follows_pools:
        yield from needs_of(CONTROLLERS, "watch", "ippools", CALICO)
        # Calico's own API server has no blocks.
        yield from needs_of(CONTROLLERS, "watch", "ipamblocks", "crd.projectcalico.org")


def checks(inventory: Inventory) -> Iterator[Finding]:
    settings = inventory.installed.settings_or_defaults.ip_reservation
    yield _of_api(inventory)
    yield from _of_cooldown(settings, attempt(inventory.cooldown))
    if settings.same_address.enabled:
        yield _of_same_address(attempt(partial(inventory.of_calico, POOLS, IPPool)))
    if account := inventory.installed.accounts.get(WEBHOOK, ""):
        yield _reserved(inventory, account)


def _of_api(inventory: Inventory) -> Finding:
    check, refused = "Calico's API", "Deletions of selected pods are refused"
    try:
        group = inventory.reservations.resource(timeout=SECONDS).api_version
    except NotServed as error:
        way_out = "install Calico's CRDs, or set ipReservation.advanced.calicoApiVersion to auto"
        return Finding(check, Verdict.WRONG, f"{error} {refused}", way_out)
    except ServerError as error:
        way_out = "repair Calico's API server: kubectl get apiservices"
        return Finding(check, Verdict.WRONG, f"it does not answer: {error.message}. {refused}", way_out)
    except KubeError as error:
        return Finding.unread(check, "", error)
    return Finding(check, Verdict.OK, f"IPReservation is served in {group}")


def _of_cooldown(settings: IPReservationSettings, cooldown: int | KubeError) -> Iterator[Finding]:
    """*cooldown* in seconds, 0 for none."""
    if isinstance(cooldown, KubeError):
        yield Finding.unread(COOLDOWN_CHECK, "", cooldown)
        return
    lasts, reserved = duration(cooldown), duration(settings.duration)
    kept = f"Calico keeps every IP for {lasts} after its release"
    what_each_covers = f"what each of them covers: {COOLDOWN_PAGE}"
    if not cooldown:
        message = f"none ({COOLDOWN} is not set): only reservations keep IPs"
        yield Finding(COOLDOWN_CHECK, Verdict.OK, message)
    elif cooldown < settings.duration:
        yield Finding(COOLDOWN_CHECK, Verdict.OK, f"{kept}; reservations last longer: {reserved}")
    else:
        yield Finding(
            COOLDOWN_CHECK,
            Verdict.WARNING,
            f"{kept} ({COOLDOWN}), and ipReservation.duration is {reserved}: reservations add little",
            f"raise ipReservation.duration, or lower {COOLDOWN}; {what_each_covers}",
        )
    if cooldown and settings.same_address.enabled:
        yield Finding(
            COOLDOWN_CHECK,
            Verdict.WARNING,
            f"Calico refuses an IP for {lasts} after its release ({COOLDOWN}), also to its own pod that"
            " comes back: with ipReservation.sameAddress, StatefulSets' pods that come back earlier get other IPs",
            f"lower {COOLDOWN}, or switch ipReservation.sameAddress off; {what_each_covers}",
        )


def _of_same_address(pools: Sequence[IPPool] | KubeError | None) -> Finding:
    """None where Calico's pools are not served."""
    check = "the same address"
    if isinstance(pools, KubeError):
        return Finding.unread(check, "pools ", pools)
    if pools is None:
        return Finding(check, Verdict.SKIPPED, "Calico's pools are not served")
    if not (names := ", ".join(each.metadata.name for each in pools if each.has_ip_in_ip)):
        return Finding(check, Verdict.OK, "no pool has IP-in-IP, the encapsulation that is not tested")
    return Finding(
        check,
        Verdict.WARNING,
        f"pools with IP-in-IP ({names}): ipReservation.sameAddress is not tested there, an IP that comes back on"
        " another node may be unreachable, first of all from its former node",
        f"check it in your own cluster, or switch ipReservation.sameAddress off: {RETURNED_IP}",
    )


def _reserved(inventory: Inventory, account: str) -> Finding:
    """Whether the webhook server's *account* can reserve an address, and release it."""
    from calico.ledger import ADDRESS, round_trip  # which loads the metrics, too, and status needs none

    check, ours, cluster = "a reservation", inventory.installed, inventory.cluster
    asked = Access("impersonate", "serviceaccounts", "", ours.namespace, account.rpartition(":")[2])
    may: object = "you impersonate another user already, which cannot be done twice"
    if client := cluster.client_of(account):
        may = attempt(partial(inventory.may, asked))
    if client is None or may is not True:
        why = may or "you may not impersonate the ServiceAccount of the webhook servers"
        return Finding(check, Verdict.SKIPPED, f"not tried: {why}", "helm test checks it")
    store = Reservations(client, ours.settings_or_defaults.ip_reservation.calico_api_version)
    if problem := round_trip(store, "doctor", ours.namespace, cluster.now(), TRIAL_SECONDS):
        return Finding(check, Verdict.WRONG, problem, f"{PAGE}#a-request-is-refused-or-fails")
    return Finding(check, Verdict.OK, f"{ADDRESS} was reserved as pods' addresses are, and released")


HEALTH = Health(
    "IP reservation", "ipReservation", "ipReservation", "reserved IPs", look, needs, checks=checks
)
