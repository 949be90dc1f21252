"""What is left of the cloud's quotas, as the leader last read them."""

from __future__ import annotations

from api.anycast_ip_quotas import QuotasRead, quotas_in
from cli.inventory import Inventory
from cli.output import Document
from kube.errors import KubeError


class QuotaLeft(Document, frozen=True):
    quota: str
    used: int
    limit: int
    left: int

    @property
    def is_low(self) -> bool:
        """Less than a tenth is left."""
        return self.left * 10 < self.limit


def left_of(found: QuotasRead | None) -> tuple[QuotaLeft, ...]:
    quotas = found.quotas if found else ()
    return tuple(QuotaLeft(each.id, each.current, each.limit, each.limit - each.current) for each in quotas)


def quotas_read(inventory: Inventory) -> QuotasRead | None:
    """None without an election, before the first read, and where the Lease may not be read."""
    try:
        return quotas_in(inventory.lease().metadata.annotations)
    except KubeError:
        return None
