"""Another client changes Drawbridge's IPReservations during a storm."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from calico.segment import MANAGED_BY, MANAGER, RECORDS
from dev.lab.history import addresses
from dev.lab.session import Lab
from kube.errors import Conflict, NotFound
from kube.types import Pod
from tests.chaos.outside import Outside
from tests.chaos.storm import crowd, storming
from tests.cluster.workloads import GROUPS

IPRESERVATIONS = GROUPS["v1"]
JUNK = "no-address"
DAY = timedelta(days=1)
SOON = 10.0
"""Seconds for what the leader does at once, on a machine that is busy with a storm."""

Segment = dict[str, Any]
Change = Callable[[Lab, Segment], set[str] | None]
"""Does something to a segment; the addresses that it concerned. None: not to this one."""


def remove_an_entry(lab: Lab, segment: Segment) -> set[str]:
    taken = segment["spec"]["reservedCIDRs"].pop()
    put_back(lab, segment)
    return {taken}


def delete_it(lab: Lab, segment: Segment) -> set[str]:
    meta = segment["metadata"]
    lab.client.delete(
        IPRESERVATIONS, meta["name"], preconditions={"resourceVersion": meta["resourceVersion"]}
    )
    return set(segment["spec"]["reservedCIDRs"])


def empty_it(lab: Lab, segment: Segment) -> set[str]:
    taken, segment["spec"]["reservedCIDRs"] = segment["spec"]["reservedCIDRs"], []
    put_back(lab, segment)
    return set(taken)


def add_junk(lab: Lab, segment: Segment) -> set[str]:
    segment["spec"]["reservedCIDRs"].append(JUNK)
    put_back(lab, segment)
    return set()


def garble_the_records(lab: Lab, segment: Segment) -> set[str]:
    segment["metadata"]["annotations"][RECORDS] = '[{"cidr": 7'
    put_back(lab, segment)
    return set(segment["spec"]["reservedCIDRs"])


def set_the_clock_back_by_a_day(lab: Lab, segment: Segment) -> set[str] | None:
    """All that was written before lies in the future then, the ends of pods above all."""
    records = json.loads(segment["metadata"]["annotations"][RECORDS])
    if not any("ended" in record for record in records):
        return None
    for record in records:
        written = record.keys() & {"at", "asked", "ended"}
        record |= dict.fromkeys(written, (datetime.now(UTC) + DAY).isoformat())
    segment["metadata"]["annotations"][RECORDS] = json.dumps(records)
    put_back(lab, segment)
    return set()


def put_back(lab: Lab, segment: Segment) -> None:
    lab.client.replace(IPRESERVATIONS, segment["metadata"]["name"], segment)


@pytest.mark.parametrize("change", [remove_an_entry, delete_it, empty_it], ids=lambda each: each.__name__)
def test_what_another_client_takes_away_is_reserved_again_at_once(
    lab: Lab, outside: Outside, redis: str, change: Change
) -> None:
    pods = crowd(lab, outside, redis, 80)

    def concern(taken: set[str]) -> None:
        outside.disturb(*(pod.metadata.name for pod in pods if addresses(pod) & taken))
        lab.wait(lambda: taken <= entries(lab), SOON, "all to be back")

    meddle_with_a_storm(lab, pods, change, then=concern)

    assert outside.at_rest() == []


def entries(lab: Lab) -> set[str]:
    return {entry for each in segments(lab) for entry in each["spec"].get("reservedCIDRs") or ()}


def test_a_malformed_entry_is_taken_out_again(lab: Lab, outside: Outside, redis: str) -> None:
    pods = crowd(lab, outside, redis, 80)

    meddle_with_a_storm(lab, pods, add_junk)

    lab.wait(lambda: JUNK not in entries(lab), SOON, "it to be taken out")
    assert outside.at_rest() == []


def test_addresses_whose_records_were_garbled_are_kept_and_not_for_ever(
    lab: Lab, outside: Outside, redis: str
) -> None:
    pods = crowd(lab, outside, redis, 80)

    meddle_with_a_storm(lab, pods, garble_the_records)

    assert outside.at_rest() == []


def test_a_clock_that_jumps_back_keeps_no_address_for_ever_and_releases_none_early(
    lab: Lab, outside: Outside, redis: str
) -> None:
    pods = crowd(lab, outside, redis, 80)

    meddle_with_a_storm(lab, pods, set_the_clock_back_by_a_day)

    assert outside.at_rest() == []


def meddle_with_a_storm(
    lab: Lab, pods: Sequence[Pod], change: Change, then: Callable[[set[str]], object] = lambda taken: None
) -> set[str]:
    """What the change has taken out of a segment that is being filled."""
    with storming(lab, pods) as storm:
        storm.let(50)
        storm.await_answers(25)
        taken: set[str] = lab.wait(lambda: [*tried(lab, change)], 30, f"{change.__name__} to succeed")[0]
        then(taken)
        return taken


def tried(lab: Lab, change: Change) -> list[set[str]]:
    """The result, or nothing when another client wrote meanwhile, or there is no segment for it yet."""
    with suppress(Conflict, NotFound):
        for segment in segments(lab):
            if segment["spec"].get("reservedCIDRs") and (taken := change(lab, segment)) is not None:
                return [taken]
    return []


def segments(lab: Lab) -> list[Segment]:
    return lab.client.list(IPRESERVATIONS, label_selector=f"{MANAGED_BY}={MANAGER}").items
