"""Wire the return: a separate informer of pods, for as long as it is enabled."""

from __future__ import annotations

from controllers.clock import CLOCK
from controllers.elasticity.pod_cache import PODS
from controllers.elasticity.return_home.occupants import Occupant, decode, facets
from controllers.elasticity.return_home.reconciler import FACET, Edge, ReturnReconciler
from controllers.elasticity.return_home.reporter import ReturnReporter
from controllers.elasticity.snapshot import Sources
from controllers.manager import Context
from kube.informer import Informer


class ReturnHomeController:
    """Follows the setting: pods are decoded once more only while it is on."""

    def __init__(self, context: Context, sources: Sources) -> None:
        self._context, self._sources = context, sources
        self._reporter = ReturnReporter(context.recorder)
        self._informer: Informer[Occupant] | None = None
        self._reconciler: ReturnReconciler | None = None

    def reconcile(self) -> None:
        if not self._sources.settings().return_home.enabled:
            self.close()
        elif (reconciler := self._reconciler or self._open()) is not None:
            reconciler.reconcile()

    def close(self) -> None:
        if self._informer is not None:
            self._context.informers.release(self._informer)
            self._reporter.count(0, 0)
        self._informer = self._reconciler = None

    def _open(self) -> ReturnReconciler | None:
        """None when the context stops before the pods are known."""
        informer = self._informer
        if informer is None:
            informer = self._informer = self._context.informers.of(PODS, Occupant, decode=decode)
            informer.add_index(FACET, facets)
        if not self._context.wait_synced(informer):
            return None
        edge = Edge(self._context.client, self._context.namespace)
        self._reconciler = ReturnReconciler(self._sources, informer, edge, self._reporter, CLOCK)
        return self._reconciler
