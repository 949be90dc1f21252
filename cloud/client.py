"""The verbs: what is asked of Tencent Cloud, in batches and pages as large as it allows.

Every verb returns within the call timeout, or raises a CloudError; one of several calls takes so long for each.
To look up the name of a host takes what the machine's resolver allows itself, on top of that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from cloud import apis, responses
from cloud.apis import Api
from cloud.caller import Caller, Timing
from cloud.credentials import source_of
from cloud.errors import Gone, NotConfigured, StateConflict, TagExists
from cloud.responses import ListenerRow, QuotaRow, TargetRow
from cloud.transport import Transport
from cloud.types import ADDRESS_TYPES, ELASTIC, Address, Backend, Order, Tag, backend_key
from settings import CloudSettings

T = TypeVar("T")
E = TypeVar("E", bound=Exception)
PAGE = 100
FILTER_VALUES = 100
RELEASES = 20
"""The cloud documents no limit; the smallest that any of its batches has."""
TAGS = 10
PASSES = 3
ENOUGH = 2
"""So many different items that are refused alone make a refusal one of all."""


Page = tuple[list[Address], int]
"""The rows from an offset on, and how many there are in all."""


def caller(
    settings: CloudSettings,
    *,
    may_write: Callable[[], object],
    writes_within: float,
    sleep: Callable[[float], object],
) -> Caller:
    """One for all calls of the same APIs, so that all threads share the rates; nothing is called yet.

    *may_write* raises when nothing may be changed any more, *sleep* when waiting is to end: see `Caller`. An attempt to
    change something that may begin ends *writes_within* so many seconds. NotConfigured without a region.
    """
    if not settings.region:
        message = "cloud.region is empty; write for example ap-singapore"
        raise NotConfigured("NoRegion", message, action="connect")
    source = source_of(settings, os.environ)
    return Caller(
        Transport(settings, settings.region, source),
        settings,
        writes_within,
        may_write,
        source,
        Timing(sleep=sleep),
    )


class Cloud:
    """Safe to share between threads."""

    def __init__(self, calls: Caller) -> None:
        self._call = calls.call

    def addresses(self, ids: Collection[str]) -> dict[str, Address]:
        """Those of *ids* that exist; the others are not mentioned, even if they cannot be ids at all."""
        found = gathered(lambda some: self._page({"AddressIds": some}, 0)[0], ids, PAGE)
        return {each.id: each for each in found}

    def addresses_on(self, instances: Collection[str]) -> list[Address]:
        """All addresses of the instances, of any type: also a WanIP, which is not an EIP."""
        return gathered(
            lambda some: self._filtered({"instance-id": some, "address-type": ADDRESS_TYPES}),
            instances,
            FILTER_VALUES,
        )

    def addresses_tagged(self, key: str, values: Collection[str]) -> list[Address]:
        """Those with one of the values of the tag, by an index that may lag behind: a new address may be missing."""
        return gathered(
            lambda some: self._filtered({f"tag:{key}": some, "address-type": ELASTIC}), values, FILTER_VALUES
        )

    def addresses_named(self, name: str) -> list[Address]:
        """Those with exactly this name."""
        return self._filtered({"address-name": [name], "address-type": ELASTIC})

    def instances(self, ids: Collection[str]) -> dict[str, str]:
        """The states of those of *ids* that exist, as in `addresses`."""

        def read(some: Sequence[str]) -> list[tuple[str, str]]:
            asked = {"InstanceIds": some, "Limit": PAGE, "Offset": 0}
            found = self._call(apis.DESCRIBE_INSTANCES, asked, responses.Instances)
            return [(row.instance_id, (row.instance_state or "").upper()) for row in found.instance_set]

        return dict(gathered(read, ids, PAGE))

    def quotas(self) -> list[QuotaRow]:
        """Of addresses, in this region."""
        return self._call(apis.DESCRIBE_QUOTA, {}, responses.Quotas).quota_set

    def allocate(self, order: Order) -> str:
        """The id of this token's address: a new one, or the one that an earlier call with the same order brought."""
        answer = self._call(apis.ALLOCATE, _allocation(order), responses.Allocation)
        return answer.address_set[0]

    def associate(self, address_id: str, instance_id: str) -> None:
        """Begin to bind. The address must be UNBIND, and becomes BINDING, then BIND."""
        asked = {"AddressId": address_id, "InstanceId": instance_id}
        self._call(apis.ASSOCIATE, asked, responses.Done)

    def disassociate(self, address_id: str) -> None:
        """Begin to unbind. The address must be BIND or BIND_ENI."""
        self._call(apis.DISASSOCIATE, {"AddressId": address_id}, responses.Done)

    def release(self, ids: Collection[str]) -> None:
        """Give back addresses that are UNBIND, permanently; one that is refused spoils it for all.

        One of another account is Gone, as one is that was released.
        """
        self._call(apis.RELEASE, {"AddressIds": sorted(ids)}, responses.Done)

    def set_bandwidth(self, address_id: str, bandwidth: int) -> None:
        """In Mbps, bound or not."""
        asked = {"AddressIds": [address_id], "InternetMaxBandwidthOut": bandwidth}
        self._call(apis.MODIFY_BANDWIDTH, asked, responses.Done)

    def create_tags(self, tags: Collection[Tag]) -> None:
        """Make sure that they can be carried; one that is there is as good."""
        in_halves(lambda some: self._tag(apis.CREATE_TAGS, some), sorted(tags), (TagExists,), size=TAGS)

    def delete_tags(self, tags: Collection[Tag]) -> dict[Tag, Gone | StateConflict]:
        """Returns those that something still carries, and those that this account does not have."""
        return in_halves(
            lambda some: self._tag(apis.DELETE_TAGS, some), sorted(tags), (Gone, StateConflict), size=TAGS
        )

    def _tag(self, api: Api, tags: Sequence[Tag]) -> None:
        asked = [{"TagKey": key, "TagValue": value} for key, value in tags]
        self._call(api, {"Tags": asked}, responses.Done)

    def _filtered(self, filters: Mapping[str, Sequence[str]]) -> list[Address]:
        asked = [{"Name": name, "Values": list(values)} for name, values in filters.items()]
        return everything(lambda offset: self._page({"Filters": asked}, offset))

    def _page(self, asked: Mapping[str, object], offset: int) -> tuple[list[Address], int]:
        whole = {**asked, "Limit": PAGE, "Offset": offset}
        answer = self._call(apis.DESCRIBE_ADDRESSES, whole, responses.Addresses)
        return [row.value() for row in answer.address_set], answer.total_count


def _allocation(order: Order) -> dict[str, object]:
    params: dict[str, object] = {
        "AddressCount": 1,
        "AddressType": order.type,
        "AddressName": order.name,
        "ClientToken": order.token,
        "AnycastZone": order.zone,
        "InternetChargeType": order.terms.charge_type,
        "InternetMaxBandwidthOut": order.terms.bandwidth,
        "BandwidthPackageId": order.terms.bandwidth_package,
        # Sorted, because a token counts for one and the same order only.
        "Tags": [{"Key": key, "Value": value} for key, value in sorted(order.tags.items())],
    }
    return {name: value for name, value in params.items() if value}


def everything(page: Callable[[int], Page]) -> list[Address]:
    """Every row, each once, with *page* a function of the offset.

    A row that comes or goes between two pages moves others across their border. So a list that changed
    while it was read is read again, up to three times, and all that was seen counts: of rows that came or
    went in the meantime, some may be missing and some be gone.
    """
    seen: dict[str, Address] = {}
    for _ in range(PASSES):
        rows, totals = list[Address](), set[int]()
        while True:
            more, total = page(len(rows))
            rows += more
            totals.add(total)
            if not more or len(rows) >= total:
                break
        found = {row.id: row for row in rows}
        seen |= found
        if totals == {len(found)}:
            break
    return list(seen.values())


def in_halves(
    call: Callable[[Sequence[T]], object],
    items: Sequence[T],
    spoiling: tuple[type[E], ...],
    *,
    general: tuple[type[E], ...] = (),
    size: int = 0,
) -> dict[T, E]:
    """Do *call* for all items, *size* at a time, though one that is refused spoils the call for all that are in it.

    A call that fails with one of the *spoiling* errors is made again for each half. When two items are refused
    alone with *general* errors before anything was done, the rest counts as refused, too, without a call. Returns
    the refused items with their errors; any other error is raised.
    """
    refused: dict[T, E] = {}
    size = size or max(1, len(items))
    left = [items[start : start + size] for start in range(0, len(items), size)][::-1]
    served = False
    while left:
        some = left.pop()
        try:
            call(some)
            served = True
        except spoiling as error:
            if len(some) > 1:
                middle = len(some) // 2
                left += [some[middle:], some[:middle]]
                continue
            refused[some[0]] = error
            if not served and sum(isinstance(each, general) for each in refused.values()) >= ENOUGH:
                return refused | {each: error for group in left for each in group}
    return refused


def gathered(ask: Callable[[Sequence[str]], list[T]], ids: Collection[str], size: int) -> list[T]:
    """What *ask* finds for all ids, *size* at a time, though an id of nothing may spoil a question."""
    found: list[T] = []
    in_halves(lambda some: found.extend(ask(some)), sorted(set(ids)), (Gone,), size=size)
    return found


RULES, TARGETS_OF_RULE, TARGETS = 100, 50, 500
"""In one call: listeners or rules, targets of each, and targets in all."""
INSTANCE = "CVM"
"""The type of targets that are called by the ids of instances, also spelled cvm; others, by their addresses."""
LAYER_4 = ("TCP", "UDP", "TCP_SSL", "QUIC")
OFF = "Close"
"""The detail of a target whose listener has no health check."""


class LoadBalancers:
    """The backends of a load balancer, their health, and their weights. Safe to share between threads.

    `BatchModifyTargetWeight` begins a task of the cloud. What became of it is read back, not asked by the id of the
    task, which ends with the process that began it.
    """

    def __init__(self, calls: Caller) -> None:
        self._call = calls.call

    def backends(self, load_balancer: str) -> list[Backend]:
        """All of them. Gone when there is no such load balancer."""
        asked = {"LoadBalancerId": load_balancer}
        found = self._call(apis.DESCRIBE_TARGETS, asked, responses.Listeners)
        return [
            Backend(
                listener=listener.listener_id,
                location=location,
                instance=row.instance_id or "" if (row.type or INSTANCE).upper() == INSTANCE else "",
                address=next(iter(row.private_ip_addresses or ()), ""),
                port=row.port,
                weight=row.weight or 0,
            )
            for listener, location, row in _targets(found.listeners)
        ]

    def healthy(self, load_balancer: str) -> dict[str, bool]:
        """By the keys of backends; one whose listener has no health check counts as healthy."""
        asked = {"LoadBalancerIds": [load_balancer]}
        found = self._call(apis.DESCRIBE_TARGET_HEALTH, asked, responses.TargetHealth)
        ours = (each for each in found.load_balancers or () if each.load_balancer_id == load_balancer)
        targets = (target for each in ours for target in _targets(each.listeners))
        return {
            # The target's id is that of its instance, else there is only its address.
            backend_key(
                listener.listener_id,
                location,
                (row.target_id if (row.target_id or "").startswith("ins-") else row.ip) or "",
                row.port,
            ): bool(row.health_status) or row.health_status_detail == OFF
            for listener, location, row in targets
        }

    def set_weights(self, load_balancer: str, weights: Mapping[Backend, int]) -> None:
        """Begin to set them, in as few calls as the cloud allows; those before an error are begun."""
        for rules in batches(weights):
            asked = {"LoadBalancerId": load_balancer, "ModifyList": rules}
            self._call(apis.MODIFY_TARGET_WEIGHTS, asked, responses.Done)


def batches(weights: Mapping[Backend, int]) -> Iterator[list[dict[str, object]]]:
    """The lists for calls that set *weights*."""
    by_rule: dict[tuple[str, str], list[dict[str, object]]] = {}
    for backend, weight in sorted(weights.items(), key=lambda each: each[0].key):
        name = {"InstanceId": backend.instance} if backend.instance else {"EniIp": backend.address}
        target = {**name, "Port": backend.port, "Weight": weight}
        by_rule.setdefault((backend.listener, backend.location), []).append(target)
    batch: list[dict[str, object]] = []
    count = 0
    for (listener, location), all_targets in by_rule.items():
        rule = {"ListenerId": listener} | ({"LocationId": location} if location else {})
        for start in range(0, len(all_targets), TARGETS_OF_RULE):
            targets = all_targets[start : start + TARGETS_OF_RULE]
            if batch and (len(batch) == RULES or count + len(targets) > TARGETS):
                yield batch
                batch, count = [], 0
            batch.append({**rule, "Targets": targets})
            count += len(targets)
    if batch:
        yield batch


def _targets(listeners: Iterable[ListenerRow] | None) -> Iterator[tuple[ListenerRow, str, TargetRow]]:
    """With the listener, and the location if there is one."""
    for listener in listeners or ():
        yield from ((listener, "", row) for row in listener.targets or ())
        for rule in listener.rules or ():
            location = "" if listener.protocol in LAYER_4 else rule.location_id or ""
            yield from ((listener, location, row) for row in rule.targets or ())
