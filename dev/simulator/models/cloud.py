"""Tencent Cloud: the lab's emulator behind a transport that takes time, and may lose an answer.

Two accounts, as keys may turn out to be another's. What each address was, from change to change, is what a bill shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, TypeVar

import msgspec

from cloud.apis import Api
from cloud.errors import ServerFault, Throttled, Unavailable
from cloud.responses import decoded
from dev.lab.cloud import envelope, faults, policy, products
from dev.lab.cloud.config import Knobs
from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.limits import Limits
from dev.lab.cloud.request import Request
from dev.lab.cloud.values import WAN_IP, Address
from dev.lab.cloud.world import World
from dev.simulator.core.kernel import EPOCH, Kernel, Process
from settings import CloudSettings

T = TypeVar("T")
QUOTA = 100
REGION = "ap-singapore"
CHANGES = frozenset(
    {
        "AllocateAddresses",
        "AssociateAddress",
        "DisassociateAddress",
        "ReleaseAddresses",
        "ModifyAddressesBandwidth",
        "CreateTags",
        "DeleteTags",
        "BatchModifyTargetWeight",
    }
)
Arrived = Callable[[Process | None, str, Mapping[str, object], str], None]
"""Called with the process that asked, unless it waits no more, the action, its parameters and the outcome, when a call
was carried out."""


class Cloud:
    def __init__(self, kernel: Kernel, dice: Random) -> None:
        self._kernel, self._dice = kernel, dice
        self._limits = Limits()
        self.knobs = Knobs(quota_total=QUOTA, tag_keys=10000, tag_values=10000)
        self.account = World(self.knobs, self._time)
        self.other_account = World(
            msgspec.structs.replace(self.knobs, instances_exist=False, seed=1), self._time
        )
        self.on_arrival: Arrived = lambda *_: None
        self.on_change: Callable[[], None] = lambda: None
        """Called when one was carried out, in the process that asked."""
        self._other_until = 0.0
        self._away_until = 0.0
        self._late, self._latest = 0.0, 0.0

    def _time(self) -> float:
        return EPOCH + self._kernel.now

    def use_keys_of_the_other_account(self, until: float) -> None:
        self._other_until = until

    @property
    def has_keys_of_the_other_account(self) -> bool:
        return self._kernel.now < self._other_until

    def go_away(self, until: float) -> None:
        """No call arrives until then."""
        self._away_until = until

    def delay_changes(self, share: float, latest: float) -> None:
        """So many calls that change something are carried out when the client gives up, or up to *latest* s later."""
        self._late, self._latest = share, latest

    def calm(self) -> None:
        self._other_until = self._away_until = self._late = 0.0
        for name, value in msgspec.structs.asdict(Knobs()).items():
            if name in TROUBLE:
                setattr(self.knobs, name, value)

    @property
    def addresses(self) -> list[Address]:
        """Elastic ones of our account, as its bill lists them."""
        return [each for each in self.account.addresses.values() if each.type != WAN_IP]

    @property
    def weights(self) -> Mapping[str, int]:
        """By instance, at load balancers with weights, which do not probe; empty without one."""
        with self.account.advanced():
            found = [each for targets in self.account.load_balancers.values() for each in targets.values()]
        return {each.instance: each.weight for each in found}

    @property
    def running(self) -> set[str]:
        """Instances that have an address, and are not being ended."""
        bound = {each.instance_id for each in self.addresses if each.instance_id}
        return {each for each in bound if (found := self.account.instance(each)) and found.state == "RUNNING"}

    def transport(self, _settings: CloudSettings, region: str, _source: object) -> Transport:
        return Transport(self, region or REGION)

    def answer(self, api: Api, params: Mapping[str, object], region: str, timeout: float) -> bytes:
        """The answer's body; Unavailable when none arrives within *timeout* seconds."""
        kernel, dice = self._kernel, self._dice
        world = self.other_account if self.has_keys_of_the_other_account else self.account
        strike = faults.strike(self.knobs, api.action, dice)
        there, back = dice.uniform(0.01, 0.1), dice.uniform(0.01, 0.1) + strike.delay
        kernel.sleep(min(there, timeout))
        if kernel.now < self._away_until:
            kernel.sleep(timeout - there)
            raise Unavailable("Network", "timed out", action=api.action)
        failure = FAILURES.get(strike.kind, Unavailable)("Failed", strike.kind, action=api.action)
        if strike.kind and (isinstance(failure, Throttled) or not self.knobs.errors_after_commit):
            raise failure
        if api.action in CHANGES and faults.hits(dice, self._late):
            self._carry_out_late(world, api, params, region, timeout - there)
            kernel.sleep(timeout - there)
            raise Unavailable("Network", "timed out", action=api.action)
        body, outcome = self._carried_out(world, api, params, region)
        self.on_arrival(kernel.process, api.action, params, outcome)
        if api.action in CHANGES:
            self.on_change()
        kernel.sleep(min(back, timeout))
        if strike.kind:
            raise failure
        if strike.lost or there + back > timeout:
            raise Unavailable("Lost", "no answer", action=api.action)
        return body

    def _carry_out_late(
        self, world: World, api: Api, params: Mapping[str, object], region: str, timeout: float
    ) -> None:
        """Whatever becomes of the process that asked, for which *timeout* is left."""
        after = self._dice.uniform(0.9 * timeout, timeout + self._latest)
        process = self._kernel.process if after <= timeout else None

        def arrive() -> None:
            _, outcome = self._carried_out(world, api, params, region)
            self.on_arrival(process, api.action, params, outcome)

        self._kernel.spawn(arrive, f"late {api.action}", self._kernel.system, after)

    def _carried_out(
        self, world: World, api: Api, params: Mapping[str, object], region: str
    ) -> tuple[bytes, str]:
        """In *world*, the account whose keys signed the request."""
        service = api.service
        try:
            policy.check_action(world, api.action)
            if code := self.knobs.errors.get(api.action):
                raise Fault(code, "made to fail")
            action = products.find(service.name, service.version, api.action, region)
            self._limits.take(self.knobs, api.action, "keys", action.rate, self._time())
            read = Request("POST", "/", "", {}, msgspec.json.encode(params)).read(action.params)
            with world.advanced():
                policy.check_resources(world, api.action, read)
                return envelope.success(action.run(world, read, region), "r"), "OK"
        except Fault as fault:
            return envelope.failure(fault, "r"), fault.code


FAILURES = {"InternalError": ServerFault, "RequestLimitExceeded": Throttled}
RULES = (
    "already_bound_while_binding", "errors_after_commit", "instance_end_unbinds", "instance_shown_after_unbinding",
    "instance_shown_while_binding", "stale_rows", "tag_batches_atomic", "token_busy_while_creating",
)  # fmt: skip
"""Of the cloud that are not documented, or that knobs of trouble have."""
TROUBLE = frozenset(
    {
        "throttled", "internal_errors", "server_errors", "lost", "slow", "bind_fails", "errors", "denied",
        "tag_lag_seconds", "filter_lag_seconds",
    }
)  # fmt: skip


class Transport:
    """In place of ``cloud.transport.Transport``."""

    def __init__(self, cloud: Cloud, region: str) -> None:
        self._cloud, self._region = cloud, region

    def call(self, api: Api, params: Mapping[str, object], type: type[T], timeout: float) -> T:  # noqa: A002
        body = self._cloud.answer(api, params, self._region, timeout)
        found: Any = decoded(body, 200, type, api.action)
        return found  # type: ignore[no-any-return]
