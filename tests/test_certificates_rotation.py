"""Whatever two leaders do and in whatever order, no API server meets a leaf that its bundle does not cover."""

from __future__ import annotations

import functools
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from cryptography import x509
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from certs import issue
from certs import rotation as bundles
from certs.issue import Pair
from certs.rotation import bundles_in, held_in
from controllers.certificates.controller import CONFIGURATIONS, SECRETS, Reconciler, Snapshot, Store
from kube.errors import ApiError
from tests.certificates import RULES as SLOW
from tests.certificates import SECOND, Cluster, Moment, reconciler

RULES = replace(SLOW, ca_validity=60 * SECOND, leaf_validity=50 * SECOND, renew_before=30 * SECOND)
OVERLAP = int(RULES.overlap.total_seconds())
LEADERS = st.integers(0, 1)
certificates_in, is_issued_by = functools.cache(bundles.certificates_in), functools.cache(issue.is_issued_by)
"""The same questions are asked after each step."""
KEYS = st.sampled_from(["tls.crt", "tls.key", "ca.crt", "ca.key"])


class Death(Exception):
    """A process ends before a write."""


class Rotation(RuleBasedStateMachine):
    """API servers are as late as the overlap allows, servers as late as they like, clocks wrong by an overlap."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster, self.moment = Cluster(), Moment()
        self.servers: list[Pair | None] = [None, None, None]
        self.known: list[tuple[list[list[bytes]], int]] = []
        """What the bundles of all configurations have been, and until when; the last ones are those of now."""
        self.cluster.written = self.remember

    @initialize(skews=st.tuples(*[st.integers(-OVERLAP, OVERLAP)] * 2))
    def begin(self, skews: tuple[int, int]) -> None:
        self.skews = skews
        self.leaders: list[tuple[Store, Reconciler]] = [self.born(0), self.born(1)]
        self.seen: list[Snapshot | None] = [None, None]
        self.cluster.register()
        self.live(2, (0, 1, 2))
        self.wait_for_long(30)

    def born(self, number: int) -> tuple[Store, Reconciler]:
        return reconciler(self.cluster, self.moment, rules=RULES, skew=self.skews[number])

    def remember(self) -> None:
        found = [self.cluster.configuration(each) or {} for each in CONFIGURATIONS]
        self.known = [(old, min(until, self.moment.seconds)) for old, until in self.known]
        self.known.append(([bundles_in(each) for each in found], 10**9))

    @rule(leader=LEADERS)
    def look(self, leader: int) -> None:
        self.seen[leader] = self.leaders[leader][0].read()

    @rule(leader=LEADERS)
    def act(self, leader: int) -> None:
        """On what it saw when it last looked, however long ago that was."""
        seen, self.seen[leader] = self.seen[leader], None
        if seen is not None:
            with suppress(ApiError):
                self.leaders[leader][1].act(seen)

    @rule(leader=LEADERS, times=st.integers(1, 4))
    def work(self, leader: int, times: int) -> None:
        for _ in range(times):
            self.leaders[leader][1].reconcile("")

    @rule(leader=LEADERS, writes=st.integers(0, 1))
    def die_at_work(self, leader: int, writes: int) -> None:
        left = [None] * writes

        def die() -> None:
            if not left:
                raise Death
            left.pop()

        self.cluster.before_write = die
        with suppress(Death):
            self.leaders[leader][1].reconcile("")
        self.cluster.before_write = lambda: None
        self.leaders[leader], self.seen[leader] = self.born(leader), None

    @rule(seconds=st.integers(1, OVERLAP + 2), reloading=st.sets(st.integers(0, 2)).map(sorted))
    def live(self, seconds: int, reloading: Sequence[int]) -> None:
        """All goes its way; some servers read what is new, others do not."""
        for _ in range(seconds):
            self.work(0, 2)
            self.work(1, 2)
            for server in reloading:
                self.reload(server)
            self.every_api_server_can_verify_every_server()
            self.moment.seconds += 1

    @rule(seconds=st.sampled_from([1, 2, OVERLAP // 2, OVERLAP]))
    def wait(self, seconds: int) -> None:
        self.moment.seconds += seconds

    @rule(seconds=st.sampled_from([20, 30, 100]))
    def wait_for_long(self, seconds: int) -> None:
        self.moment.seconds += seconds

    @rule(server=st.integers(0, 2))
    def reload(self, server: int) -> None:
        leaf = held_in(self.cluster.data).leaf
        if any(issue.belongs(leaf.key, each) for each in certificates_in(leaf.certificate)):
            self.servers[server] = leaf

    @precondition(lambda self: self.is_in_use())
    @rule(key=KEYS)
    def damage_the_secret(self, key: str) -> None:
        secret = self.cluster.secret() or {}
        self.cluster.put(SECRETS, secret | {"data": secret["data"] | {key: b64encode(b"x").decode()}})

    @precondition(lambda self: self.is_in_use())
    @rule()
    def lose_the_secret(self) -> None:
        self.cluster.lose_secret()

    def is_in_use(self) -> bool:
        """Whether the leaf in the Secret is trusted: before that nothing could have worked yet."""
        leaf = held_in(self.cluster.data).leaf.certificate
        return bool(self.known) and all(
            any(is_issued_by(leaf, each) for each in certificates_in(bundle))
            for held in self.known[-1][0]
            for bundle in held
        )

    @invariant()
    def every_api_server_can_verify_every_server(self) -> None:
        now = self.moment.now()
        for bundle in self.bundles_in_use():
            trusted = [each for each in certificates_in(bundle) if lasts(each, now)]
            for leaf in filter(None, self.servers):
                (served,) = certificates_in(leaf.certificate)
                if trusted and lasts(served, now):
                    assert any(is_issued_by(leaf.certificate, each) for each in trusted)

    def bundles_in_use(self) -> set[bytes]:
        """By API servers that learn of a change at any time before the overlap is over."""
        recent = [held for held, until in self.known if until > self.moment.seconds - OVERLAP]
        return {bundle for held in recent for each in held for bundle in each}

    def teardown(self) -> None:
        """Left alone, it soon comes to rest, for a while at least."""
        if not hasattr(self, "leaders"):
            return
        for _ in range(4 * OVERLAP):
            for _, each in self.leaders:
                each.reconcile("")
            if self.is_at_rest():
                return
            self.moment.seconds += 1
        raise AssertionError("nothing comes to rest")

    def is_at_rest(self) -> bool:
        now, held = self.moment.now(), held_in(self.cluster.data)
        if held.signer is None or not is_issued_by(held.leaf.certificate, held.signer):
            return False
        return all(
            lasts(each, now) for each in (held.signer, *certificates_in(held.leaf.certificate))
        ) and all(held.signer in certificates_in(each) for each in self.bundles_in_use())


def lasts(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


Rotation.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestRotation = Rotation.TestCase
