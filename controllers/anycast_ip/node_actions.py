"""The steps that are taken at the API server: claims, and the marks on nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

import structlog

from controllers.anycast_ip.claim import Claim, claim_for, inherited, instance_of, renewed, with_address
from controllers.anycast_ip.claim_store import Book
from controllers.anycast_ip.cloud_actions import Job, Refused
from controllers.anycast_ip.node_writer import Nodes
from controllers.anycast_ip.state import Case, Do, Step
from kube.types import Node
from settings import AnycastIPSettings
from webhook.anycast_ip import wanted

log = structlog.stdlib.get_logger(__name__)


class StillThere(Exception):
    """The API server has a node that we have not heard of any more."""


class InCluster:
    def __init__(
        self,
        nodes: Nodes,
        book: Book,
        cluster_uuid: str,
        settings: Callable[[], AnycastIPSettings],
        now: Callable[[], datetime],
        opened: Callable[[Case], None],
    ) -> None:
        self._nodes, self._book, self._cluster_uuid = nodes, book, cluster_uuid
        self._settings, self._now, self._opened = settings, now, opened
        steps: dict[Do, Callable[[Case, Step], None]] = {
            Do.CLAIM: self._claim,
            Do.ADOPT: self._adopt,
            Do.INHERIT: self._inherit,
            Do.RENEW: self._renew,
            Do.FORGET: self._forget,
            Do.CONFIRM: self._confirm,
            Do.OPEN: self._open,
            Do.CLOSE: self._close,
            Do.STRIP: self._strip,
            Do.FREE: self._free,
        }
        self.steps: Mapping[Do, Callable[[Job], Refused | None]] = {
            do: _for_one(step) for do, step in steps.items()
        }

    def _claim(self, case: Case, _: Step) -> None:
        if case.node:
            self._book.put(claim_for(case.node, self._settings(), self._now()))
            case.known.start_anew()
            case.known.doubt, case.known.tagged, case.known.untagged = False, False, True

    def _adopt(self, case: Case, step: Step) -> None:
        if case.node and step.address:
            claim = claim_for(case.node, self._settings(), self._now())
            self._book.put(with_address(claim, step.address, self._cluster_uuid))
            case.known.start_anew()
            log.info("address adopted", node=claim.node, uid=case.uid, address=step.address.id)

    def _inherit(self, case: Case, _: Step) -> None:
        """The new claim comes first: of two with the same address, the one without a node is just dropped."""
        if case.node and case.forebear:
            self._book.put(inherited(case.forebear, case.node))
            case.known.start_anew()
            self._book.drop(case.forebear.uid)

    def _renew(self, case: Case, _: Step) -> None:
        if case.claim:
            self._book.put(renewed(case.claim, self._now()))
            case.known.start_anew()
            case.known.doubt = False

    def _forget(self, case: Case, _: Step) -> None:
        self._book.drop(case.uid)
        case.known.start_anew()

    def _confirm(self, case: Case, _: Step) -> None:
        """What is done next cannot be undone: it is done on a fresh look at node and address."""
        if case.claim and case.node is None:
            there = self._nodes.now(case.claim.node)
            if there and self._is_still(there, case.claim):
                raise StillThere(f"the API server has node {case.claim.node}")
        case.known.confirmed, case.known.recheck = True, True

    def _is_still(self, node: Node, claim: Claim) -> bool:
        """The Node object of *claim*, or a newer one of its instance, which will inherit it."""
        same = instance_of(node) == claim.instance and wanted(node, self._settings())
        return same or node.metadata.uid == claim.uid

    def _open(self, case: Case, step: Step) -> None:
        if case.node and step.address:
            self._nodes.open(case.node, step.address)
            self._opened(case)

    def _close(self, case: Case, _: Step) -> None:
        if case.node:
            self._nodes.close(case.node)
            log.warning("an open node without its address was tainted", node=case.node.metadata.name)

    def _strip(self, case: Case, _: Step) -> None:
        if case.node:
            self._nodes.strip(case.node)
            case.known.was_wanted = False

    def _free(self, case: Case, _: Step) -> None:
        if case.node:
            self._nodes.free(case.node)


def _for_one(step: Callable[[Case, Step], None]) -> Callable[[Job], None]:
    def take(job: Job) -> None:
        ((case, planned),) = job
        step(case, planned)

    return take
