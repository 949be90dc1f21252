"""At most one process leads: it writes to the outside only between the renewals of its Lease.

Leadership counts from the *start* of the last write that succeeded and ends ``renew_deadline`` later; other processes
wait ``lease_duration``. The time between the two is for writes in flight and for ``lead`` to stop: no write may take
longer than :attr:`LeaderElector.grace`. So ``lead`` calls :meth:`LeaderElector.check` before each write to the outside:
it reads only the clock, and holds also after the process was suspended. The lease of another process has expired when
its record did not change for the duration that it names, on our clock: clocks of two machines are never compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from prometheus_client import Counter, Gauge

from kube.client import Client
from kube.errors import Forbidden, KubeError, NotFound
from kube.lease_spec import LeaseSpec, Observed, acquired, may_take, observe, released, renewed, spec_of
from kube.resources import LEASES
from runtime import futures, random, threading, time, utc_now
from settings import LeaderElection

LEADER = Gauge("drawbridge_leader", "1 while this process leads.", ["lease"])
MASTER = Gauge("leader_election_master_status", "1 while this process leads, as Capo names it.", ["name"])
RENEW_FAILURES = Counter("drawbridge_lease_renew_failures", "Renewals that did not succeed.")

CALL_TIMEOUT = 5.0

log = structlog.get_logger(__name__)


class LeadershipLost(Exception):
    """Another process may lead from now on."""


class StillWorking(Exception):
    """Raised by ``lead`` when some of its work goes on: the lease is not released then, but expires."""


class LeaderElector:
    """*identity* is unique: ``<pod name>_<uuid>``."""

    def __init__(
        self,
        client: Client,
        election: LeaderElection,
        identity: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._times, self._identity, self._clock = client, election, identity, clock
        self._name, self._namespace = election.resource_name, election.resource_namespace
        self._observed: Observed | None = None
        self._held: dict[str, Any] | None = None
        self._annotations: Mapping[str, str] = {}
        self._renewed_at = self._sent_at = -math.inf
        self._is_lost = False
        self._lock = threading.Lock()
        self._log = log.bind(lease=f"{self._namespace}/{self._name}", identity=identity)
        self._leads(False)

    @property
    def is_leader(self) -> bool:
        return not self._is_lost and self._clock() < self._valid_until

    @property
    def grace(self) -> float:
        """Seconds for a write that begins while this process leads: then another one may."""
        return min(CALL_TIMEOUT, self._times.lease_duration - self._times.renew_deadline)

    def check(self) -> None:
        """Raise LeadershipLost unless a write that begins now ends before another process may lead.

        From then on for all threads, and for good: those that have seen it have ended.
        """
        if not self.is_leader:
            self._is_lost = True
            raise LeadershipLost(f"{self._identity} no longer holds lease {self._namespace}/{self._name}")

    def annotate(self, annotations: Mapping[str, str]) -> None:
        """Renew the Lease with them, beside those that it has. Safe from any thread.

        After a KubeError, the next renewal writes them.
        """
        with self._lock:
            self._annotations = {**self._annotations, **annotations}
            self._renew()

    def run(self, stop: threading.Event, lead: Callable[[threading.Event], None]) -> None:
        """Campaign, then run ``lead`` in a thread and renew until *stop*; what ``lead`` raises is raised here.

        *stop* sets ``lead``'s event; the lease is released when ``lead`` has returned, which sets *stop*, too. When
        leadership is lost, the event is set, ``lead`` has until the lease expires, and LeadershipLost is raised.
        """
        if not self._campaign(stop):
            return
        ending = threading.Event()
        work = _started(lead, ending, stop)
        try:
            self._hold(stop, ending, work)
        except LeadershipLost:
            self._leads(False)
            self._log.error("leadership lost")
            ending.set()
            _wait(work, self._renewed_at + self._times.lease_duration - self._clock())
            raise
        if not isinstance(work.exception(), StillWorking):
            self._release()
        work.result()

    def _campaign(self, stop: threading.Event) -> bool:
        while not stop.is_set():
            if self._attempt(self._acquire):
                self._leads(True)
                self._log.info("leadership acquired")
                return True
            stop.wait(self._times.retry_period * random.uniform(0.8, 1.2))
        return False

    def _hold(self, stop: threading.Event, ending: threading.Event, work: futures.Future[None]) -> None:
        while not work.done():
            renewal = min(self._clock() + self._times.retry_period, self._valid_until)
            if stop.wait(max(0.0, renewal - self._clock())):
                ending.set()
                _wait(work, renewal - self._clock())
            if not work.done() and not self._attempt(self._renew):
                RENEW_FAILURES.inc()

    def _attempt(self, step: Callable[[], bool]) -> bool:
        """Whether it succeeded; a KubeError is logged, and the next renewal reads the lease again."""
        try:
            with self._lock:
                return step()
        except Forbidden as error:
            way_out = "grant get, create and update on leases.coordination.k8s.io"
            self._log.error("lease forbidden", error=str(error), action=way_out)
        except KubeError as error:
            self._log.warning("lease not written", error=str(error))
        return False

    def _acquire(self) -> bool:
        """Whether it could be taken; a Conflict when another process was first."""
        current = self._client.find(LEASES, self._name, self._namespace, timeout=CALL_TIMEOUT)
        now = self._clock()  # after the answer: the record may be that young
        lasting = self._times.lease_duration
        if current is None:
            self._create()
        else:
            self._observed = observe(self._observed, spec_of(current), now)
            if not may_take(self._observed, self._identity, lasting, now):
                return False
            taken = acquired(self._observed.spec, self._identity, lasting, utc_now())
            self._write(current, taken, CALL_TIMEOUT)
        self._renewed_at = self._sent_at
        return True

    def _create(self) -> None:
        body = {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": acquired(LeaseSpec(), self._identity, self._times.lease_duration, utc_now()),
        }
        self._sent_at = self._clock()
        self._held = self._client.create(LEASES, body, self._namespace, timeout=CALL_TIMEOUT)

    def _renew(self) -> bool:
        try:
            current = self._held or self._client.get(
                LEASES, self._name, self._namespace, timeout=self._left()
            )
            self._held = None  # until it is written: after an error, it is read again
            if spec_of(current).holder_identity != self._identity:
                self._give_up()
            self._write(current, renewed(self._times.lease_duration, utc_now()), self._left())
        except NotFound:
            self._give_up()  # the process that creates it leads at once
        self.check()  # a renewal that took too long does not count: another process may act already
        self._renewed_at = self._sent_at
        return True

    def _left(self) -> float:
        """Seconds for a call that must end while this process leads."""
        left = self._valid_until - self._clock()
        self.check()  # afterwards, so that some is left
        # One hung call must not end the leadership.
        return min(CALL_TIMEOUT, self._times.renew_deadline / 2, left)

    def _give_up(self) -> None:
        self._renewed_at = -math.inf
        self.check()

    @property
    def _valid_until(self) -> float:
        return self._renewed_at + self._times.renew_deadline

    def _write(self, current: dict[str, Any], change: dict[str, Any], timeout: float) -> None:
        body = current | {"spec": (current.get("spec") or {}) | change}
        if added := self._annotations:
            metadata = current["metadata"]
            body["metadata"] = metadata | {"annotations": {**(metadata.get("annotations") or {}), **added}}
        self._sent_at = self._clock()
        self._held = self._client.replace(LEASES, self._name, body, self._namespace, timeout=timeout)

    def _release(self) -> None:
        self._leads(False)
        held = self._held
        self._renewed_at = -math.inf
        try:
            if held is not None:
                self._write(held, released(utc_now()), CALL_TIMEOUT)
        except KubeError as error:
            self._log.warning("lease not released, the next leader waits for its end", error=str(error))

    def _leads(self, does: bool) -> None:
        LEADER.labels(self._name).set(does)
        MASTER.labels(self._name).set(does)


def _started(
    lead: Callable[[threading.Event], None], ending: threading.Event, ended: threading.Event
) -> futures.Future[None]:
    work: futures.Future[None] = futures.Future()

    def run() -> None:
        try:
            lead(ending)
        except BaseException as error:  # SystemExit, too, must reach the caller
            work.set_exception(error)
        else:
            work.set_result(None)
        ended.set()

    threading.Thread(target=run, name="leader", daemon=True).start()
    return work


def _wait(work: futures.Future[None], seconds: float) -> None:
    futures.wait([work], timeout=max(0.0, seconds))
