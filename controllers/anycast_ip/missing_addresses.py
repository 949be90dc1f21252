"""An address that is not listed is not gone for that: the list may be empty by mistake, or another account's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from cloud.client import Cloud
from cloud.errors import CloudError
from controllers.anycast_ip.claim import CLUSTER_UUID, TYPES
from controllers.anycast_ip.state import GONE, Case, Do

ABSENT, ALONE = 60.0, 900.0
"""Seconds for which an address that nobody released must be missing before it counts as gone: while others of the
cluster are listed, and while none is, but its instance."""
AGAIN = 60.0


class NotBelieved(Exception):
    """An address is missing, and so is what would show that this is the right account, region and time."""


class Absence:
    """*settle* is the time from the end of an address until its tags can be deleted."""

    def __init__(
        self, cloud: Cloud, cluster_uuid: str, clock: Callable[[], float], settle: Callable[[], float]
    ) -> None:
        self._cloud, self._cluster_uuid = cloud, cluster_uuid
        self._clock, self._settle = clock, settle

    def judge(self, missing: Sequence[Case]) -> Mapping[str, Exception]:
        """Note which of the addresses are gone; returns, by node, the others that should have been long since."""
        expected = [case for case in missing if case.known.released or (case.claim and case.claim.releasing)]
        self._note_gone(expected)
        unexpected = [case for case in missing if case.known.seen is not GONE]
        for case in unexpected:
            case.known.recheck = True
        late = [case for case in unexpected if self._missed_for(case) >= ABSENT]
        return self._judge_late(late) if late else {}

    def _judge_late(self, late: Sequence[Case]) -> Mapping[str, Exception]:
        why = ""
        try:
            self._note_gone(self._certain(late))
        except CloudError as error:  # it is of no concern to those that were looked at in the same call
            why = f": {error}"
        return {case.uid: self._not_believed(case, why) for case in late if case.known.seen is not GONE}

    def _certain(self, late: Sequence[Case]) -> Collection[Case]:
        listed = {each.id for each in self._cloud.addresses_tagged(CLUSTER_UUID, self._cluster_uuid, TYPES)}
        gone = [case for case in late if case.claim and case.claim.address not in listed]
        return gone if listed else self._with_instances(gone)

    def _with_instances(self, alone: Collection[Case]) -> list[Case]:
        late = {case.claim.instance: case for case in alone if case.claim and self._missed_for(case) >= ALONE}
        return [late[each.id] for each in self._cloud.instances(late)]

    def _missed_for(self, case: Case) -> float:
        now, known = self._clock(), case.known
        known.absent_since = now if known.absent_since is None else known.absent_since
        return now - known.absent_since

    def _note_gone(self, cases: Collection[Case]) -> None:
        for case in cases:
            case.known.seen, case.known.recheck = GONE, False
            case.known.expect(Do.UNTAG, self._clock() + self._settle())

    def _not_believed(self, case: Case, why: str) -> NotBelieved:
        case.known.unready[Do.WATCH] = self._clock() + AGAIN
        return NotBelieved(
            f"{case.claim.address if case.claim else 'the address'} is not listed, and does not count as gone before"
            " another address of the cluster, or its instance, is listed: check that cloud.region and the keys are"
            f" those with which it was allocated{why}"
        )
