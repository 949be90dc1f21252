"""The steps that are taken at Tencent Cloud; each notes what it learned, and raises or returns what was refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import structlog
from msgspec.structs import replace

from cloud.client import Cloud
from cloud.errors import (
    CloudError,
    NotPermitted,
    QuotaExceeded,
    Rejected,
    StateConflict,
    TagMissing,
    TokenRefused,
)
from cloud.types import BIND, BIND_ENI, Address, Tag
from controllers.anycast_ip.claim import (
    CLUSTER_UUID,
    NODE_INSTANCE,
    TYPES,
    Claim,
    bound_to,
    instance_of,
    order_for,
    shared_tags,
)
from controllers.anycast_ip.claim_store import Book
from controllers.anycast_ip.missing_addresses import Absence
from controllers.anycast_ip.state import UNKNOWN, Case, Do, Known, Step
from kube.errors import KubeError, Unreachable
from settings import AnycastIPSettings

LAG = 60.0
"""Seconds for which nothing must be found by the name of an order before it is taken to have brought nothing."""
FIRST_WATCH = 0.7
LAGS = 2
"""Refusals to delete a tag that the index of tags may explain; after them it is asked who carries the tag."""
SETTLE, LONGEST_SETTLE = 2.0, 120.0
"""Seconds from the end of an address until its tags can be deleted; longer if the cloud says so."""

NOT_ORDERED = (QuotaExceeded, NotPermitted, Rejected, TagMissing)
Job = Sequence[tuple[Case, Step]]
Refused = Mapping[str, Exception]
"""By the uid of the node."""

log = structlog.stdlib.get_logger(__name__)


class InCloud:
    def __init__(
        self,
        cloud: Cloud,
        book: Book,
        cluster_uuid: str,
        settings: Callable[[], AnycastIPSettings],
        clock: Callable[[], float],
    ) -> None:
        self._cloud, self._book, self._cluster_uuid = cloud, book, cluster_uuid
        self._settings, self._clock = settings, clock
        self._shared_tags: set[Tag] = set()
        self._settle = SETTLE
        self._absence = Absence(cloud, cluster_uuid, clock, lambda: self._settle)
        self.steps: Mapping[Do, Callable[[Job], Refused | None]] = {
            Do.LOOK: self._look,
            Do.WATCH: self._watch,
            Do.TAG: self._tag,
            Do.ALLOCATE: self._allocate,
            Do.FIND: self._find,
            Do.BIND: self._bind,
            Do.UNBIND: self._unbind,
            Do.RELEASE: self._release,
            Do.UNTAG: self._untag,
        }

    def _look(self, job: Job) -> None:
        instances = {case.uid: instance_of(case.node) for case, _ in job if case.node}
        found = self._cloud.addresses_on(instances.values())
        for case, _ in job:
            case.known.on_instance = tuple(
                each for each in found if each.instance_id == instances.get(case.uid, "")
            )

    def _watch(self, job: Job) -> Refused:
        ids = {claim.address for claim in claims(job)}
        found = {each.id: each for each in self._cloud.addresses(ids)}
        missing = []
        for case, _ in job:
            if case.claim and (seen := found.get(case.claim.address)):
                self._note(case.known, seen)
            else:
                missing.append(case)
        return self._absence.judge(missing)

    def _note(self, known: Known, seen: Address) -> None:
        known.recheck = False
        if not isinstance(known.seen, Address) or known.seen.status != seen.status:
            known.failures.pop(Do.WATCH, None)
        if seen.status in (BIND, BIND_ENI):
            known.failures.pop(Do.BIND, None)
        known.seen, known.absent_since = seen, None

    def _tag(self, job: Job) -> Refused:
        shared = set(shared_tags(self._settings(), self._cluster_uuid).items())
        if missing := sorted(shared - self._shared_tags):
            for error in self._cloud.create_tags(missing).values():
                raise error
            self._shared_tags = shared
        for case, _ in job:
            case.known.untagged = False
        refused = self._cloud.create_tags(
            list(dict.fromkeys(tag for claim in claims(job) for tag in claim.tags))
        )
        failed = {
            case.uid: refused[tag]
            for case, _ in job
            if case.claim
            for tag in case.claim.tags
            if tag in refused
        }
        for case, _ in job:
            case.known.tagged = case.uid not in failed
        return failed

    def _allocate(self, job: Job) -> None:
        """Whatever the answer, the order counts as made, but for the refusals that leave no doubt."""
        ((case, _),) = job
        if not case.claim:
            return
        known = case.known
        before, (known.doubt, known.absent_since) = (known.doubt, known.absent_since), (True, None)
        try:
            order = order_for(case.claim, self._settings(), self._cluster_uuid)
            address_id = self._cloud.allocate(order)
        except TokenRefused:
            known.refused, known.nothing_found = True, False
            return
        except NOT_ORDERED as error:
            known.doubt, known.absent_since = before
            if isinstance(error, TagMissing):
                known.tagged = False
                self._shared_tags = set()
            raise
        self._book.put(replace(case.claim, address=address_id))
        known.expect(Do.WATCH, self._clock() + FIRST_WATCH)
        log.info("address allocated", node=case.claim.node, uid=case.uid, address=address_id)

    def _find(self, job: Job) -> None:
        ((case, _),) = job
        if not case.claim:
            return
        found = self._cloud.addresses_named(case.claim.name, TYPES)
        taken = {claim.address for claim in self._book.claims.values()}
        mine = [each for each in found if each.id not in taken and _is_for(each, case.claim)]
        if mine:
            self._book.put(replace(case.claim, address=mine[0].id))
            case.known.absent_since = None
            return
        now, since = self._clock(), case.known.absent_since
        case.known.absent_since = now if since is None else since
        case.known.nothing_found = now - case.known.absent_since >= LAG

    def _bind(self, job: Job) -> None:
        ((case, step),) = job
        if not case.claim or not step.address:
            return
        if case.claim.releasing:  # it was not released after all, and is to stay
            self._book.put(replace(case.claim, releasing=False))
        try:
            self._cloud.associate(step.address.id, case.claim.instance)
        finally:
            self._look_again(case)

    def _unbind(self, job: Job) -> None:
        ((case, step),) = job
        if not step.address:
            return
        try:
            self._cloud.disassociate(step.address.id)
        finally:
            self._look_again(case)

    def _look_again(self, case: Case) -> None:
        case.known.seen = UNKNOWN
        case.known.expect(Do.WATCH, self._clock() + FIRST_WATCH)

    def _release(self, job: Job) -> Refused:
        failed = self._mark_releasing(job)
        ids = {step.address.id: case for case, step in job if step.address and case.uid not in failed}
        try:
            refused = self._cloud.release(ids)
        finally:
            for case in ids.values():
                self._look_again(case)
        for each, case in ids.items():
            case.known.released = each not in refused
            log.info("address released", address=each, uid=case.uid, refused=str(refused.get(each, "")))
        return failed | {ids[each].uid: error for each, error in refused.items()}

    def _mark_releasing(self, job: Job) -> dict[str, Exception]:
        """Returns those whose claims cannot be written: their addresses are not released now."""
        failed: dict[str, Exception] = {}
        for case, _ in job:
            if case.claim and not case.claim.releasing:
                try:
                    self._book.put(replace(case.claim, releasing=True))
                except Unreachable:
                    raise
                except KubeError as error:
                    failed[case.uid] = error
        return failed

    def _untag(self, job: Job) -> Refused:
        """Tags that another claim needs, or will, stay, and so do those that another cluster uses."""
        uids = {case.uid for case, _ in job}
        needed = {tag for uid, each in self._book.claims.items() if uid not in uids for tag in each.tags}
        refused = self._cloud.delete_tags({tag for claim in claims(job) for tag in claim.tags} - needed)
        in_use = {tag for tag, error in refused.items() if isinstance(error, StateConflict)}
        self._settle = min(LONGEST_SETTLE, 2 * self._settle) if in_use else max(SETTLE, 0.9 * self._settle)
        kept = refused.keys() - self._of_others(in_use, job)
        failed: dict[str, Exception] = {}
        for case, _ in job:
            held = sorted(kept.intersection(case.claim.tags if case.claim else ()))
            case.known.untagged = not held
            if held:
                failed[case.uid] = _why_kept(held, refused)
        return failed

    def _of_others(self, in_use: Collection[Tag], job: Job) -> set[Tag]:
        """Of the tags that cannot be deleted for long, those that only addresses of other clusters carry."""
        asked = {
            tag
            for case, _ in job
            if case.claim and case.known.failures[Do.UNTAG] >= LAGS
            for tag in case.claim.tags
            if tag in in_use
        }
        return {tag for key in {key for key, _ in asked} for tag in self._foreign(key, asked)}

    def _foreign(self, key: str, tags: Collection[Tag]) -> list[Tag]:
        values = {value for each, value in tags if each == key}
        carriers = self._cloud.addresses_with_values(key, values, TYPES)
        by_value: dict[str, list[Address]] = {value: [] for value in values}
        for each in carriers:
            by_value.get(each.tags.get(key, ""), []).append(each)
        return [
            (key, value)
            for value, found in by_value.items()
            if found and all(each.tags.get(CLUSTER_UUID) != self._cluster_uuid for each in found)
        ]


def _why_kept(tags: Sequence[Tag], refused: Mapping[Tag, CloudError]) -> CloudError:
    """The cloud's own error, or one that names the tags that are in use."""
    error = next((refused[tag] for tag in tags if not isinstance(refused[tag], StateConflict)), None)
    return error or StateConflict("Attached", f"tags {set(tags)} are in use", action="DeleteTags")


def claims(job: Job) -> list[Claim]:
    return [case.claim for case, _ in job if case.claim]


def _is_for(address: Address, claim: Claim) -> bool:
    mine = address.tags.get(NODE_INSTANCE) == claim.instance
    return mine and bound_to(address) in ("", claim.instance)
