"""All parts of the leader's IngressDaemonSets, on a clock of their own, against the API server of the tests."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from controllers.ingress_daemonset.confirmation import Reading
from controllers.ingress_daemonset.copies import RESOURCES
from controllers.ingress_daemonset.readings import Checker, Reader
from controllers.ingress_daemonset.reconciler import Reconciler
from controllers.ingress_daemonset.reporter import Reporter
from controllers.ingress_daemonset.retry_state import Troubles
from controllers.ingress_daemonset.writer import Writer
from kube.leader_election import LeadershipLost
from settings import IngressDaemonSetSettings
from tests.factories import NOW
from tests.fakes import FakeClock, FakeRecorder
from tests.ingress_daemonset_api import Api
from tests.ingress_daemonset_world import DETACHED, complete, state_of
from webhook.ingress_daemonset import FINALIZER

KEY = "edge/web"
DETACHING = {
    "maxUnavailableNodes": 1,
    "annotateNodeToDetach": {"key": DETACHED, "value": "true", "gracePeriodSeconds": 10},
}


class Leader:
    """All parts of one leader, in the caller's thread."""

    def __init__(self, api: Api, before: Leader | None = None) -> None:
        """On the clock of the one *before*, if there was one."""
        self.api, self.recorder = api, FakeRecorder()
        self.clock = before.clock if before else FakeClock()
        self.began = before.began if before else self.clock()
        self.leads = True
        reporter, books = Reporter(self.recorder), api.books(self.clock)  # type: ignore[arg-type]
        for kind in RESOURCES:
            books.of(kind).listen(lambda old, new: None)
        self.writer = Writer(
            api,  # type: ignore[arg-type]
            books,
            reporter,
            check=self._check,
            stopped=lambda: False,
            hand_out=lambda work: work(),
            troubles=Troubles(self.clock, self.now),
        )
        self.unread: set[str] = set()
        """The nodes whose health checkers cannot be read."""
        settings = IngressDaemonSetSettings.model_validate(
            {"enabled": True, "detachmentReminder": "10m", "healthChecker": {"image": "drawbridge:1"}}
        )
        self.reconciler = Reconciler(
            api,  # type: ignore[arg-type]
            books,
            self.writer,
            reporter,
            Reader(lambda work: work(), self.read, clock=self.clock),
            lambda: settings,
            self._check,
            self.clock,
            self.now,
        )

    def read(self, checker: Checker) -> Reading:
        """A health checker that sees each write at once."""
        if checker.node in self.unread:
            return Reading(checker.address, checker.port, error="connection refused")
        held = self.api.objects["Deployment", f"edge/web-{checker.node}"]
        return Reading(checker.address, checker.port, state_of(held, self.now()))

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.clock() - self.began)

    def _check(self) -> None:
        if not self.leads:
            raise LeadershipLost("another leads")

    def look(self) -> float | None:
        return self.reconciler.reconcile(KEY)

    def settle(self, *, until: Callable[[], bool] = lambda: False) -> None:
        """Look whenever a look is due, while pods start at once and the watches tell all, until nothing is left."""
        for _ in range(200):
            if until():
                return
            before = len(self.api.writes)
            due = self.look()
            self.run_pods()
            quiet = not self.api.news and len(self.api.writes) == before
            self.api.deliver()
            if quiet and (due is None or due > 3600):
                return
            self.clock.advance(due if due is not None else 1.0)
        raise AssertionError("it does not come to rest")

    def looks(self, seconds: float, *keys: str) -> int:
        """How often *keys* are reconciled in that time, as the work queue would: when due, and not before."""
        began, count = self.clock(), 0
        due = dict.fromkeys(keys or (KEY,), began)
        while due and min(due.values()) < began + seconds:
            key = min(due, key=lambda each: due[each])
            self.clock.advance(max(0.0, due.pop(key) - self.clock()))
            count += 1
            if (again := self.reconciler.reconcile(key)) is not None:
                due[key] = self.clock() + again
        self.clock.advance(max(0.0, began + seconds - self.clock()))
        return count

    def run_pods(self) -> None:
        """As the Deployment controller and the kubelets would."""
        for (kind, _), held in list(self.api.objects.items()):
            seen = held.get("status", {}).get("observedGeneration")
            if kind == "Deployment" and seen != held["metadata"].get("generation"):
                complete(held)
                self.api.put(kind, held)

    def retemplate(self, image: str) -> None:
        """The finalizer, which is the first write of any rollout, is there already."""
        template = self.api.objects["IngressDaemonSet", KEY]["spec"]["template"]
        template["spec"]["containers"][0]["image"] = image
        change = {"metadata": {"finalizers": [FINALIZER]}, "spec": {"template": template}}
        self.api.edit("IngressDaemonSet", KEY, change)
        self.api.deliver()

    def off(self) -> set[str]:
        return {
            key
            for (kind, key), raw in self.api.objects.items()
            if kind == "Node" and DETACHED in raw["metadata"]["annotations"]
        }

    def images(self) -> set[str]:
        return {
            raw["spec"]["template"]["spec"]["containers"][0]["image"]
            for (kind, _), raw in self.api.objects.items()
            if kind == "Deployment"
        }
