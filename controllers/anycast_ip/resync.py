"""All addresses of the cluster, a hundred a page, read now and then for what changed behind our back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import structlog

from cloud.client import Cloud
from cloud.errors import CloudError
from cloud.types import Address, Quota
from controllers.anycast_ip.claim import CLUSTER_UUID, TYPES, Claim
from controllers.anycast_ip.planner import serves
from controllers.anycast_ip.state import UNKNOWN, Known
from controllers.workqueue import Stopping
from kube.backoff import Backoff
from kube.leader_election import LeadershipLost

PAUSES = Backoff(base=2.0, cap=120.0)

log = structlog.stdlib.get_logger(__name__)


class Sweep:
    """*addresses* is None until they were read for the first time; *error* is why they were not, the last time."""

    def __init__(
        self,
        cloud: Cloud,
        cluster_uuid: str,
        tell: Callable[[Sequence[Quota]], None],
        clock: Callable[[], float],
    ) -> None:
        self._cloud, self._cluster_uuid, self._tell, self._clock = cloud, cluster_uuid, tell, clock
        self.addresses: Sequence[Address] | None = None
        self.error: CloudError | None = None
        self._news: Sequence[Address] | None = None
        self._failures = 0
        self._begun = self.due = clock()

    def begin(self, period: float) -> None:
        """The next one is due after *period* seconds, or sooner if this one fails."""
        self._begun = self._clock()
        self.due = self._begun + period

    def hasten(self, period: float) -> None:
        """The next one is due no later than *period* seconds after the last: it may be shorter than it was then."""
        self.due = min(self.due, self._begun + period)

    def run(self) -> None:
        """Never raises; what went wrong is *error*, and is tried again sooner."""
        try:
            self._news = self.addresses = self.inventory()
            self.error, self._failures = None, 0
            self._read_quotas()
        except CloudError as error:
            self.error = error
            self._try_again()
            log.warning("the addresses of the cluster were not read", error=str(error))
        except (LeadershipLost, Stopping):
            log.info("the addresses of the cluster are not read without leadership")
        except Exception:
            self._try_again()
            log.exception("the addresses of the cluster were not read")

    def _try_again(self) -> None:
        self._failures += 1
        self.due = self._clock() + PAUSES.delay(self._failures)

    def inventory(self) -> list[Address]:
        """What carries the cluster's tag, as far as the cloud's index of tags knows."""
        return self._cloud.addresses_tagged(CLUSTER_UUID, self._cluster_uuid, TYPES)

    def news(self) -> Sequence[Address] | None:
        """What was read since this was asked the last time, if anything was."""
        news, self._news = self._news, None
        return news

    def _read_quotas(self) -> None:
        try:
            self._tell(self._cloud.quotas())
        except CloudError as error:
            log.warning("the quotas were not read", error=str(error))


def compare(
    found: Iterable[Address], claims: Mapping[str, Claim], known: Mapping[str, Known], opened: Collection[str]
) -> None:
    """Note what is as it was; what is not, or was not listed, is to be looked at by its id, whose answer is fresh.

    Of a node that is not among the *opened*, a list that may be old proves nothing.
    """
    by_id = {each.id: each for each in found}
    for uid, each in known.items():
        claim = claims.get(uid)
        if claim is None or not claim.address:
            continue
        seen = by_id.get(claim.address)
        if seen is None or not serves(seen, claim.instance):
            each.recheck = True
        elif each.seen is UNKNOWN and uid in opened:
            each.seen = seen
