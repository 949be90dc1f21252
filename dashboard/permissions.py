"""What the user of the page may change."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from cli.access import Access
from cli.cluster import Cluster
from cli.inventory import Inventory
from kube.errors import KubeError


class Permissions:
    """Asked once: what changes later, a write shows. With *read_only*, nothing may be changed."""

    def __init__(self, cluster: Cluster, read_only: bool) -> None:
        self._cluster, self.read_only = cluster, read_only
        self._known: dict[Access, bool] = {}

    def granted(self, wanted: Iterable[Access]) -> set[Access]:
        if self.read_only:
            return set()
        asked, may = {*wanted}, Inventory(self._cluster).may
        answers = self._cluster.read({each: partial(may, each) for each in asked - self._known.keys()})
        self._known |= {each: may for each, may in answers.items() if not isinstance(may, KubeError)}
        return {each for each in asked if self._known.get(each)}
